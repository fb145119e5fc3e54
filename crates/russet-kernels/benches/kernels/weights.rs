//! Products with weights in every format: of one token, and of a prompt.

use std::hint::black_box;

use half::f16;
use russet_kernels::elem::Rounding;
use russet_kernels::linear::linear;
use russet_kernels::packed::{Bits, BlockSource, PackedRows, Product, packed_linear};
use russet_kernels::quant::{
    BlockFormat, BlockRows, Code, DenseRows, Elements, Floats, GgufRows, Grid, Meaning, Palette,
    RowFormat, Scaling, TableRows,
};

use crate::limits::{LARGE, Unit};
use crate::{Bench, Work, numbers};

/// Outputs and inputs of a layer: the codes of all formats fit in the second cache.
const SHAPE: (usize, usize) = (1536, 576);
/// Inputs where weights come from memory.
const WIDE: usize = 2048;

pub(crate) fn all(bench: &Bench) {
    packed(bench);
    half_precision(bench);
    blocks(bench);
    tables(bench);
    gguf(bench);
}

/// A product with `rows` of one token, and of a prompt, which is done in `unit`s.
fn products(bench: &Bench, name: &str, rows: &dyn RowFormat, bytes: usize, tokens: &[usize]) {
    let (n, k) = (rows.rows(), rows.k());
    for &m in tokens {
        let (x, mut y) = (numbers(m * k), vec![f16::ZERO; m * n]);
        let work = Work {
            bytes,
            products: m * n * k,
            unit: if m == 1 { Unit::F32 } else { Unit::Words },
        };
        bench.row(&format!("{name} [{n}, {k}] x {m}"), work, || {
            linear(&bench.pool, black_box(&x), rows, &mut y, m);
        });
    }
}

/// Codes that repeat.
fn codes(n: usize) -> Vec<u8> {
    (0..251).map(|i| (i * 31) as u8).cycle().take(n).collect()
}

fn half_precision(bench: &Bench) {
    let one = |n: usize, k: usize, tokens: &[usize]| {
        let data = numbers(n * k);
        if let Some(rows) = DenseRows::new(&data, k, Rounding::F16) {
            products(bench, "f16", &rows, 2 * n * k, tokens);
        }
    };
    if bench.wants("f16") {
        one(SHAPE.0, SHAPE.1, &[1, 4, 16, 128, 512]);
        one(LARGE / (2 * WIDE), WIDE, &[1]);
    }
}

fn blocks(bench: &Bench) {
    let (n, k) = SHAPE;
    let (data, scales) = (codes(n * k), numbers(n * k / 32));
    for (name, code, bytes) in [("i4/32", Code::I4, n * k / 2), ("i8/32", Code::I8, n * k)] {
        let rows = BlockRows {
            data: &data[..bytes],
            code,
            rows: n,
            k,
            block: 32,
            scales: Floats::F16(&scales),
            zeros: None,
            shifts: None,
            rounding: Rounding::F16,
        };
        products(bench, name, &rows, bytes + n * k / 16, &[1, 512]);
    }
}

fn gguf(bench: &Bench) {
    let (n, k) = (SHAPE.0, 512);
    for &format in BlockFormat::ALL {
        let bytes = n * format.row_bytes(k).unwrap_or(0);
        let data = codes(bytes);
        if let Some(rows) = GgufRows::new(format, &data, k, Rounding::F32) {
            products(bench, format.name(), &rows, bytes, &[1, 512]);
        }
    }
}

/// What is looked up: a palette for 32 rows, or codes that mean something with a scale per row and 32 columns.
fn tables(bench: &Bench) {
    for bits in [1, 2, 3, 4, 6, 8] {
        looked_up(bench, &format!("lut{bits}"), bits, None, SHAPE, &[1, 512]);
    }
    let meanings = [
        ("i2/32", 2, Meaning::Signed),
        ("f4e2m1/32", 4, Meaning::E2M1),
        ("f8e4m3/32", 8, Meaning::E4M3),
        ("f8e5m2/32", 8, Meaning::E5M2),
    ];
    for (name, bits, meaning) in meanings {
        looked_up(bench, name, bits, Some(meaning), SHAPE, &[1, 512]);
    }
    let large = (LARGE / WIDE, WIDE);
    looked_up(bench, "lut4", 4, None, large, &[1]);
}

fn looked_up(
    bench: &Bench,
    name: &str,
    bits: usize,
    meaning: Option<Meaning>,
    (rows, k): (usize, usize),
    tokens: &[usize],
) {
    if !bench.wants(name) {
        return;
    }
    let data = codes(rows * k * bits / 8);
    let halves = numbers((rows * k / 32).max((rows / 32) << bits));
    let numbers = Elements::Floats(Floats::F16(&halves));
    let palette = Palette {
        tables: Grid {
            data: numbers,
            block: [32, k],
            strides: [1, 1],
        },
        vector: 1,
    };
    let scaling = Scaling {
        scale: Grid {
            data: numbers,
            block: [1, 32],
            strides: [k / 32, 1],
        },
        zero: None,
        shift: None,
        folded: bits == 8,
    };
    let w = TableRows {
        codes: &data,
        bits,
        meaning: meaning.unwrap_or(Meaning::Unsigned),
        rows,
        k,
        palette: meaning.is_none().then_some(palette),
        scaling: meaning.is_some().then_some(scaling),
        rounding: Rounding::F16,
    };
    if let Some(w) = w.checked() {
        products(bench, name, &w, data.len(), tokens);
    }
}

/// Codes of four or eight bits to be packed.
struct Codes {
    data: Vec<u8>,
    shape: (usize, usize),
    bits: Bits,
}

impl BlockSource for Codes {
    fn rows(&self) -> usize {
        self.shape.0
    }
    fn k(&self) -> usize {
        self.shape.1
    }
    fn bits(&self) -> Bits {
        self.bits
    }
    fn zero(&self) -> i32 {
        8
    }
    fn has_offsets(&self) -> bool {
        false
    }
    fn half_scales(&self) -> bool {
        true
    }
    fn block(&self, row: usize, block: usize, codes: &mut [u8; 32]) -> (f32, f32) {
        let bytes = &self.data[(row * self.shape.1 + block * 32) / 2..][..16];
        for (pair, byte) in codes.chunks_exact_mut(2).zip(bytes) {
            pair.copy_from_slice(&[byte & 15, byte >> 4]);
        }
        (0.01, 0.0)
    }
}

/// The fused q/k/v, gate and down projections and the vocabulary of a llama of 135 million parameters.
fn packed(bench: &Bench) {
    let one: (&[usize], &[usize]) = (&[1], &[1, 4, 16, 128, 512]);
    let shapes = [
        ((960, 576), one.0),
        (SHAPE, one.1),
        ((576, 1536), one.0),
        ((49_152, 576), one.0),
    ];
    for (bits, name) in [(Bits::Four, "packed 4"), (Bits::Eight, "packed 8")] {
        for (shape, tokens) in shapes {
            if bench.wants(name) {
                packed_products(bench, name, bits, shape, tokens);
            }
        }
    }
}

fn packed_products(
    bench: &Bench,
    name: &str,
    bits: Bits,
    (n, k): (usize, usize),
    tokens: &[usize],
) {
    let source = Codes {
        data: codes(n * k / 2),
        shape: (n, k),
        bits,
    };
    let Ok(weights) = PackedRows::pack(&bench.pool, &[&source]) else {
        return;
    };
    for &m in tokens {
        let (x, mut y) = (numbers(m * k), vec![f16::ZERO; m * n]);
        let work = Work {
            bytes: weights[0].size(),
            products: m * n * k * if m <= 8 { 2 } else { 1 },
            unit: if m <= 8 { Unit::Bytes } else { Unit::Words },
        };
        bench.row(&format!("{name} [{n}, {k}] x {m}"), work, || {
            let product = Product {
                weights: &weights[0],
                out: &mut y[..],
                add: None,
            };
            packed_linear(&bench.pool, black_box(&x), m, &mut [Some(product)]);
        });
    }
}
