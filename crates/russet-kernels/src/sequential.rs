//! Products that round at every step: `sum = round(sum + round(a * b))`, in the order of the columns.
//!
//! This is how Apple's CPU runtime multiplies half-precision matrices (see `docs/oracle-differences.md`), so it is what exact mode
//! does. Rows of the result lie along the lanes; several registers of them hide how long one step takes.

use crate::convert;
use crate::elem::{Elem, Rounding};
use crate::isa::Isa;
use crate::quant::{COLUMN_STEP, Order, RowFormat};
use crate::scratch;
use crate::simd::{Kernel, Simd, pieces};
use crate::threads::{Pool, Rows};

/// Weight rows a task: a multiple of every register's lanes times [`REGISTERS`].
const STRIP: usize = 128;
/// Registers of sums that advance together.
const REGISTERS: usize = 8;

/// `sums[j] = round(sums[j] + round(x[c] * w[c * stride + j]))` for each column `c` in turn, `w` being columns of `stride`
/// numbers. `rounding` is that of a storage type; sums start from what they are.
///
/// # Panics
/// If `w` is shorter than the columns of `x`, or `sums` longer than `stride`.
pub fn accumulate(x: &[f32], w: &[f32], stride: usize, rounding: Rounding, sums: &mut [f32]) {
    accumulate_on(Isa::best(), x, (w, stride), rounding, sums);
}

fn accumulate_on(
    isa: Isa,
    x: &[f32],
    (w, stride): (&[f32], usize),
    rounding: Rounding,
    sums: &mut [f32],
) {
    assert!(
        sums.len() <= stride && w.len() >= x.len() * stride,
        "accumulate: lengths"
    );
    isa.run(Accumulate {
        x,
        w,
        stride,
        rounding,
        sums,
    });
}

struct Accumulate<'a> {
    x: &'a [f32],
    w: &'a [f32],
    stride: usize,
    rounding: Rounding,
    sums: &'a mut [f32],
}

impl Kernel for Accumulate<'_> {
    type Out = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        match self.rounding {
            Rounding::F32 => self.all::<S, f32>(s),
            Rounding::F16 => self.all::<S, half::f16>(s),
            Rounding::Bf16 => self.all::<S, half::bf16>(s),
        }
    }
}

impl Accumulate<'_> {
    #[inline(always)]
    fn all<S: Simd, R: Elem>(mut self, s: S) {
        let n = self.sums.len();
        let mut j = 0;
        while j + REGISTERS * S::LANES <= n {
            self.registers::<S, R>(s, j);
            j += REGISTERS * S::LANES;
        }
        for (i, len) in pieces(n - j, S::LANES) {
            self.part::<S, R>(s, j + i, len);
        }
    }

    /// Whole registers of sums from `j` on.
    #[inline(always)]
    fn registers<S: Simd, R: Elem>(&mut self, s: S, j: usize) {
        let mut sums = [s.splat(0.0); REGISTERS];
        for (i, sum) in sums.iter_mut().enumerate() {
            *sum = s.load(&self.sums[j + i * S::LANES..]);
        }
        let mut c = 0;
        while c < self.x.len() {
            let x = s.splat(self.x[c]);
            let w = &self.w[c * self.stride + j..c * self.stride + j + REGISTERS * S::LANES];
            for (i, sum) in sums.iter_mut().enumerate() {
                let product = R::round(s, s.mul(s.load(&w[i * S::LANES..]), x));
                *sum = R::round(s, s.add(*sum, product));
            }
            c += 1;
        }
        for (i, sum) in sums.iter().enumerate() {
            s.store(*sum, &mut self.sums[j + i * S::LANES..]);
        }
    }

    /// One register of sums, perhaps not full.
    #[inline(always)]
    fn part<S: Simd, R: Elem>(&mut self, s: S, j: usize, len: usize) {
        let mut sum = f32::load_part(s, &self.sums[j..], len);
        let mut c = 0;
        while c < self.x.len() {
            let w = f32::load_part(s, &self.w[c * self.stride + j..], len);
            let product = R::round(s, s.mul(w, s.splat(self.x[c])));
            sum = R::round(s, s.add(sum, product));
            c += 1;
        }
        f32::store_part(s, sum, &mut self.sums[j..], len);
    }
}

/// out `[m, n]` = x `[m, k]` times the transposed weights `[n, k]`, every step rounded to the type of x.
///
/// # Panics
/// If the lengths do not fit.
pub fn sequential_linear<T: Elem>(
    pool: &Pool,
    x: &[T],
    weights: &dyn RowFormat,
    out: &mut [T],
    m: usize,
) {
    let (n, k) = (weights.rows(), weights.k());
    assert!(
        m.checked_mul(k) == Some(x.len()) && m.checked_mul(n) == Some(out.len()),
        "sequential linear: lengths"
    );
    if m == 0 || n == 0 {
        return;
    }
    let wide = &mut *scratch::floats(x.len());
    convert::convert(x, wide);
    let (wide, outs) = (&*wide, Rows::new(out, n));
    pool.run(n.div_ceil(STRIP), &|task| {
        let first = task * STRIP;
        let rows = STRIP.min(n - first);
        let sums = &mut *scratch::floats(m * rows);
        sums.fill(0.0);
        add_strip(weights, (first, rows), (wide, k), T::ROUNDING, sums);
        for (token, sums) in sums.chunks_exact(rows).enumerate() {
            // SAFETY: rows of the weight are shared out among tasks: no other task has these columns.
            convert::convert(sums, unsafe { outs.part(token * n + first, rows) });
        }
    });
}

/// Adds the products of all tokens with some rows, by pieces of their columns.
fn add_strip(
    weights: &dyn RowFormat,
    (first, rows): (usize, usize),
    (x, k): (&[f32], usize),
    rounding: Rounding,
    sums: &mut [f32],
) {
    let columns = &mut *scratch::floats(COLUMN_STEP * rows);
    for start in (0..k).step_by(COLUMN_STEP) {
        let len = COLUMN_STEP.min(k - start);
        transpose(weights, (first, rows), (start, len), columns);
        for (x, sums) in x.chunks_exact(k).zip(sums.chunks_exact_mut(rows)) {
            let x = &x[start..start + len];
            accumulate(x, &columns[..len * rows], rows, rounding, sums);
        }
    }
}

/// columns[c * rows + r] = element (first + r, start + c), in the matrix's own order of columns.
fn transpose(
    weights: &dyn RowFormat,
    (first, rows): (usize, usize),
    (start, len): (usize, usize),
    columns: &mut [f32],
) {
    /// Rows decoded before they are written across: a cache line of each column.
    const BAND: usize = 16;
    let isa = Isa::best();
    let band = &mut *scratch::floats(BAND * len);
    let natural = &mut *scratch::floats(len);
    for r in (0..rows).step_by(BAND) {
        let count = BAND.min(rows - r);
        for (i, row) in band.chunks_exact_mut(len).take(count).enumerate() {
            if weights.order() == Order::Natural {
                weights.dequantize(isa, first + r + i, start, row);
            } else {
                weights.dequantize(isa, first + r + i, start, natural);
                weights.order().restore(natural, row);
            }
        }
        for (c, column) in columns.chunks_exact_mut(rows).take(len).enumerate() {
            for (i, place) in column[r..r + count].iter_mut().enumerate() {
                *place = band[i * len + c];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quant::{BlockRows, Code, DenseRows, Floats, dequantize_row};
    use crate::testing::Random;
    use half::{bf16, f16};

    fn reference<T: Elem>(x: &[f32], w: &[f32]) -> f32 {
        let round = |v: f32| T::ROUNDING.scalar(v);
        x.iter()
            .zip(w)
            .fold(0.0, |sum, (x, w)| round(sum + round(x * w)))
    }

    fn check<T: Elem>(w: &dyn RowFormat, m: usize) {
        let (n, k) = (w.rows(), w.k());
        let x = Random::new(m as u64).floats(m * k);
        let x: Vec<T> = x.iter().map(|v| T::from_f32(*v)).collect();
        let wide: Vec<f32> = x.iter().map(|v| v.to_f32()).collect();
        let mut out = vec![T::ZERO; m * n];
        sequential_linear(&Pool::new(2), &x, w, &mut out, m);
        let mut row = vec![0.0; k];
        for j in 0..n {
            dequantize_row(w, j, &mut row);
            for i in 0..m {
                let want = reference::<T>(&wide[i * k..(i + 1) * k], &row);
                assert_eq!(
                    out[i * n + j].to_f32(),
                    want,
                    "n={n} k={k} m={m} ({i}, {j})"
                );
            }
        }
    }

    #[test]
    fn every_step_is_rounded_in_order() {
        for (n, k) in [(1, 1), (5, 40), (130, 600), (257, 96)] {
            let data: Vec<f16> = Random::new(7)
                .floats(n * k)
                .iter()
                .map(|v| f16::from_f32(*v))
                .collect();
            let w = DenseRows::new(&data, k, Rounding::F16).unwrap();
            for m in [1, 3] {
                check::<f16>(&w, m);
                check::<bf16>(&w, m);
            }
        }
    }

    #[test]
    fn columns_of_packed_nibbles_come_in_order() {
        let (rows, k, block) = (40, 1088, 32);
        let data = Random::new(5).bytes(rows * k / 2);
        let scales: Vec<f16> = (0..rows * k / block)
            .map(|i| f16::from_f32(0.01 + i as f32 * 1e-5))
            .collect();
        let w = BlockRows {
            data: &data,
            code: Code::I4,
            rows,
            k,
            block,
            scales: Floats::F16(&scales),
            zeros: None,
            shifts: None,
            rounding: Rounding::F16,
        };
        check::<f16>(&w.checked().unwrap(), 2);
    }

    #[test]
    fn every_instruction_set_rounds_alike() {
        let mut random = Random::new(3);
        let (x, w) = (random.floats(50), random.floats(50 * 150));
        for rounding in [Rounding::F32, Rounding::F16, Rounding::Bf16] {
            let results: Vec<Vec<f32>> = Isa::available()
                .iter()
                .map(|isa| {
                    let mut sums = vec![0.0; 150];
                    accumulate_on(*isa, &x, (&w, 150), rounding, &mut sums);
                    sums
                })
                .collect();
            assert!(results.windows(2).all(|r| r[0] == r[1]), "{rounding:?}");
        }
    }
}
