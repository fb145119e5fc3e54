//! Every width, palette and block shape against the formulas of contract B, one element at a time.

use super::*;
use crate::quant::{COLUMN_STEP, Floats};
use crate::testing::{Random, close};

use half::f16;

/// A shape of a test: rows, columns, rows and columns of a block of each kind (palette, scale, zero and shift).
struct Shape {
    rows: usize,
    k: usize,
    vector: usize,
    palette: Option<(usize, usize)>,
    scale: Option<(usize, usize)>,
    affine: bool,
}

/// The parts of a matrix, owned.
struct Parts {
    codes: Vec<u8>,
    tables: Vec<f16>,
    scales: Vec<f16>,
    zeros: Vec<u8>,
    shifts: Vec<f32>,
}

fn grid<'a>(data: Elements<'a>, (rows, columns): (usize, usize), k: usize) -> Grid<'a> {
    Grid {
        data,
        block: [rows, columns],
        strides: [k / columns, 1],
    }
}

impl Parts {
    fn new(shape: &Shape, bits: usize) -> Self {
        let mut random = Random::new((shape.k * shape.rows + bits) as u64);
        let blocks = |(r, c): (usize, usize), rows: usize| rows / r * (shape.k / c);
        let mut halves = |n: usize, by: f32| -> Vec<f16> {
            random
                .floats(n)
                .iter()
                .map(|v| f16::from_f32(v * by))
                .collect()
        };
        let lines = shape.rows / shape.vector;
        let tables = shape
            .palette
            .map_or(0, |p| (blocks(p, lines) * shape.vector) << bits);
        let scales = shape.scale.map_or(0, |p| blocks(p, shape.rows));
        let (tables, scales) = (halves(tables, 0.5), halves(scales, 0.1));
        Self {
            tables,
            codes: random.bytes((lines * shape.k * bits).div_ceil(8)),
            zeros: random.bytes((scales.len() * bits).div_ceil(8)),
            shifts: random.floats(scales.len()),
            scales,
        }
    }

    fn rows<'a>(&'a self, shape: &Shape, bits: usize, meaning: Meaning) -> TableRows<'a> {
        let parameters = |data, block| grid(data, block, shape.k);
        let zeros = Elements::Codes(meaning, bits, &self.zeros);
        let shifts = Elements::Floats(Floats::F32(&self.shifts));
        TableRows {
            codes: &self.codes,
            bits,
            meaning,
            rows: shape.rows,
            k: shape.k,
            palette: shape.palette.map(|block| Palette {
                tables: parameters(Elements::Floats(Floats::F16(&self.tables)), block),
                vector: shape.vector,
            }),
            scaling: shape.scale.map(|block| Scaling {
                scale: parameters(Elements::Floats(Floats::F16(&self.scales)), block),
                zero: shape.affine.then(|| parameters(zeros, block)),
                shift: shape.affine.then(|| parameters(shifts, block)),
                folded: bits == 8 || shape.palette.is_some(),
            }),
            rounding: Rounding::F16,
        }
    }
}

/// The formula.
fn value(w: &TableRows<'_>, row: usize, column: usize) -> f32 {
    let vector = w.vector();
    let at = (row / vector * w.k + column) * w.bits;
    let bit = |b: usize| w.codes[(at + b) / 8] >> ((at + b) % 8) & 1;
    let code = (0..w.bits).fold(0, |c, b| c | bit(b) << b);
    let find = |g: &Grid<'_>, row: usize| row / g.block[0] * g.strides[0] + column / g.block[1];
    let q = match &w.palette {
        Some(p) => {
            let table = find(&p.tables, row / vector) << w.bits;
            p.tables
                .data
                .get((table + usize::from(code)) * vector + row % vector)
        }
        None => w.meaning.value(code, w.bits),
    };
    let Some(s) = &w.scaling else { return q };
    let round = |v| w.rounding.scalar(v);
    let of = |g: Option<Grid<'_>>| g.map_or(0.0, |g| g.data.get(find(&g, row)));
    let (scale, zero, shift) = (of(Some(s.scale)), of(s.zero), of(s.shift));
    if s.folded {
        round(round(q * scale) + round(shift - round(zero * scale)))
    } else {
        round(round((q - zero) * scale) + shift)
    }
}

fn check(w: &TableRows<'_>) {
    let x = Random::new(3).floats(w.k);
    for row in 0..w.rows {
        let want: Vec<f32> = (0..w.k).map(|c| value(w, row, c)).collect();
        let terms = want
            .iter()
            .zip(&x)
            .map(|(a, b)| f64::from(*a) * f64::from(*b));
        let product: f64 = terms.sum();
        let largest = want.iter().fold(1.0_f32, |m, v| m.max(v.abs()));
        for isa in Isa::available() {
            let mut got = vec![f32::NAN; w.k];
            for (i, part) in got.chunks_mut(COLUMN_STEP).enumerate() {
                w.dequantize(*isa, row, i * COLUMN_STEP, part);
            }
            assert_eq!(got, want, "{} row {row} of {w:?}", isa.name());
        }
        for isa in Isa::available() {
            let mut out = vec![0.0; w.rows - row];
            w.dot_rows(*isa, row, &x, &mut out);
            let (got, want) = (out[0] / largest, product / f64::from(largest));
            assert!(close(got, want, 40 * w.k), "{}: {got} {want}", isa.name());
        }
    }
}

const SHAPES: [Shape; 7] = [
    Shape {
        rows: 4,
        k: 96,
        vector: 1,
        palette: None,
        scale: Some((1, 32)),
        affine: true,
    },
    Shape {
        rows: 6,
        k: 96,
        vector: 1,
        palette: None,
        scale: Some((2, 24)),
        affine: false,
    },
    Shape {
        rows: 3,
        k: 35,
        vector: 1,
        palette: None,
        scale: Some((3, 5)),
        affine: true,
    },
    Shape {
        rows: 4,
        k: 608,
        vector: 1,
        palette: Some((4, 608)),
        scale: None,
        affine: false,
    },
    Shape {
        rows: 6,
        k: 96,
        vector: 1,
        palette: Some((2, 48)),
        scale: Some((1, 96)),
        affine: false,
    },
    Shape {
        rows: 8,
        k: 1104,
        vector: 2,
        palette: Some((2, 1104)),
        scale: Some((4, 1104)),
        affine: true,
    },
    Shape {
        rows: 6,
        k: 21,
        vector: 3,
        palette: Some((1, 7)),
        scale: None,
        affine: false,
    },
];

#[test]
fn every_width_and_shape_matches_the_formulas() {
    for shape in &SHAPES {
        for bits in [1, 2, 3, 4, 6, 8] {
            let parts = Parts::new(shape, bits);
            for meaning in [Meaning::Unsigned, Meaning::Signed] {
                check(&parts.rows(shape, bits, meaning).checked().unwrap());
            }
        }
    }
}

#[test]
fn small_floats_match_the_formulas() {
    for shape in &SHAPES[..3] {
        for (bits, meaning) in [(4, Meaning::E2M1), (8, Meaning::E5M2), (8, Meaning::E4M3)] {
            let mut parts = Parts::new(shape, bits);
            // Numbers that are neither infinite nor none.
            let tame = |b: &mut u8| *b &= if bits == 8 { 0xbb } else { 0xff };
            parts
                .codes
                .iter_mut()
                .chain(&mut parts.zeros)
                .for_each(tame);
            check(&parts.rows(shape, bits, meaning).checked().unwrap());
        }
    }
}

#[test]
fn parts_that_do_not_fit_are_refused() {
    let shape = &SHAPES[5];
    let parts = Parts::new(shape, 4);
    let good = parts.rows(shape, 4, Meaning::Unsigned);
    assert!(good.checked().is_some());
    assert!(TableRows { bits: 5, ..good }.checked().is_none());
    assert!(TableRows { rows: 9, ..good }.checked().is_none());
    assert!(
        TableRows {
            k: usize::MAX,
            ..good
        }
        .checked()
        .is_none()
    );
    assert!(
        TableRows {
            codes: &parts.codes[1..],
            ..good
        }
        .checked()
        .is_none()
    );
    let palette = Palette {
        vector: 0,
        ..good.palette.unwrap()
    };
    assert!(
        TableRows {
            palette: Some(palette),
            ..good
        }
        .checked()
        .is_none()
    );
    let mut scaling = good.scaling.unwrap();
    scaling.scale.block[1] = 5;
    assert!(
        TableRows {
            scaling: Some(scaling),
            ..good
        }
        .checked()
        .is_none()
    );
}

#[test]
fn turned_codes_lie_the_other_way() {
    let (n, k) = (70_usize, 9_usize);
    for bits in [1, 2, 3, 4, 6, 8] {
        let codes = Random::new(bits as u64).bytes((n * k * bits).div_ceil(8));
        let mut turned = vec![0; codes.len()];
        turn_codes(&codes, bits, (n, k), &mut turned);
        for (row, column) in (0..n).flat_map(|r| (0..k).map(move |c| (r, c))) {
            let want = code(&codes, bits, row * k + column);
            assert_eq!(code(&turned, bits, column * n + row), want, "{bits} bits");
        }
    }
}

#[test]
fn joined_codes_are_those_of_the_runs() {
    let runs = [3..9, 0..8, 40..41, 5..5, 16..40, 8..16];
    for bits in [1_usize, 2, 3, 4, 6, 8, 16] {
        let codes = Random::new(bits as u64).bytes((41 * bits).div_ceil(8));
        let wanted: Vec<usize> = runs.iter().cloned().flatten().collect();
        let mut joined = vec![0; (wanted.len() * bits).div_ceil(8)];
        join_codes(&codes, bits, runs.iter().cloned(), &mut joined);
        let unit = bits.min(8);
        let parts = bits / unit;
        for (to, from) in wanted.into_iter().enumerate() {
            for part in 0..parts {
                let [got, want] = [(&joined, to), (&codes, from)]
                    .map(|(data, i)| code(data, unit, i * parts + part));
                assert_eq!(got, want, "{bits} bits, code {to}");
            }
        }
    }
}
