//! y = x W^T: activations [m, k] times a weight [n, k] in any [`RowFormat`].
//!
//! One token: rows are dequantised and multiplied in registers, never stored. Several tokens: a tile of rows is dequantised
//! once into the cache and multiplied with packed panels of tokens, or, where that is as precise and faster, taken apart into words
//! ([`crate::packed`]). Either way the pool shares out the rows, sums are in f32, and the result is rounded once to the output
//! type.

use crate::convert;
use crate::elem::Elem;
use crate::gemm::{self, Store, Tile};
use crate::isa::Isa;
use crate::packed;
use crate::quant::{COLUMN_STEP, Order, RowFormat};
use crate::scratch;
use crate::simd::{Kernel, Simd};
use crate::threads::{Pool, Rows};

/// Weight rows per task with many tokens: a multiple of every `TILE_ROWS`.
const TILE: usize = 48;
/// Weight rows per register-to-output step with one token.
const STRIP: usize = 16;
/// Up to this many tokens the rows are multiplied one token at a time.
const FEW: usize = 3;
/// The same where many tokens would be multiplied in words: taking rows apart takes as long as some tokens do.
const FEW_FOR_WORDS: usize = 6;
/// Tokens per pass: bounds the working memory.
const PASS: usize = 512;

/// out[i, j] = the product of x row i with weight row j, for `m` rows of x.
///
/// `x` is [m, k], `out` is [m, n], both row-major.
///
/// # Panics
/// If the lengths do not fit.
pub fn linear<T: Elem>(pool: &Pool, x: &[T], weights: &dyn RowFormat, out: &mut [T], m: usize) {
    T::linear(pool, x, weights, out, m);
}

pub(crate) fn linear_on<X: Elem, Y: Elem>(
    isa: Isa,
    pool: &Pool,
    x: &[X],
    weights: &dyn RowFormat,
    out: &mut [Y],
    m: usize,
) {
    let (n, k) = (weights.rows(), weights.k());
    assert!(
        m.checked_mul(k) == Some(x.len()) && m.checked_mul(n) == Some(out.len()),
        "linear: lengths"
    );
    if n == 0 || m == 0 {
        return;
    }
    if k == 0 {
        return out.fill(Y::ZERO);
    }
    let words = packed::suits_words(isa, weights);
    if m <= if words { FEW_FOR_WORDS } else { FEW } {
        return few(isa, pool, x, weights, out);
    }
    if words {
        return arranged(x, k, weights.order(), |x| {
            packed::words_linear(isa, pool, x, weights, out);
        });
    }
    for (x, out) in x.chunks(PASS * k).zip(out.chunks_mut(PASS * n)) {
        many(isa, pool, x, weights, out);
    }
}

/// Widens rows of x and puts them in the weight's order.
fn arranged<X: Elem, R>(x: &[X], k: usize, order: Order, f: impl FnOnce(&[f32]) -> R) -> R {
    let buf = &mut *scratch::floats(2 * x.len());
    let (wide, ordered) = buf.split_at_mut(x.len());
    convert::convert(x, wide);
    if order == Order::Natural {
        return f(wide);
    }
    for (x, out) in wide.chunks_exact(k).zip(ordered.chunks_exact_mut(k)) {
        order.arrange(x, out);
    }
    f(ordered)
}

fn few<X: Elem, Y: Elem>(isa: Isa, pool: &Pool, x: &[X], weights: &dyn RowFormat, out: &mut [Y]) {
    let (n, k) = (weights.rows(), weights.k());
    // Several tasks per thread even out the load; a task below some thousands of weights is not worth claiming.
    let strip = (n / (4 * pool.threads()))
        .min(256)
        .max(1 + 4096 / k)
        .next_multiple_of(STRIP);
    let outs = Rows::new(out, n);
    arranged(x, k, weights.order(), |x| {
        pool.run(n.div_ceil(strip), &|task| {
            for first in (task * strip..n.min((task + 1) * strip)).step_by(STRIP) {
                let rows = STRIP.min(n - first);
                let mut y = [0.0; STRIP];
                for (token, x) in x.chunks_exact(k).enumerate() {
                    weights.dot_rows(isa, first, x, &mut y[..rows]);
                    // SAFETY: rows of the weight are shared out among tasks: no other task has these columns.
                    convert::convert(&y[..rows], unsafe { outs.part(token * n + first, rows) });
                }
            }
        });
    });
}

fn many<X: Elem, Y: Elem>(isa: Isa, pool: &Pool, x: &[X], weights: &dyn RowFormat, out: &mut [Y]) {
    let (n, k) = (weights.rows(), weights.k());
    let m = x.len() / k;
    let width = isa.run(gemm::Width);
    let panels = m.div_ceil(width);
    let packed = &mut *scratch::floats(panels * width * k);
    arranged(x, k, weights.order(), |x| {
        pool.for_chunks_mut(packed, width * k, &|i, panel| {
            let x = &x[i * width * k..];
            isa.run(Pack {
                x,
                k,
                tokens: width.min(x.len() / k),
                panel,
            });
        });
    });
    let outs = Rows::new(out, n);
    pool.run(n.div_ceil(TILE), &|task| {
        let first = task * TILE;
        let rows = TILE.min(n - first);
        isa.run(TileTask {
            isa,
            weights,
            first,
            rows,
            packed,
            m,
            outs: &outs,
        });
    });
}

struct Pack<'a> {
    x: &'a [f32],
    k: usize,
    tokens: usize,
    panel: &'a mut [f32],
}

impl Kernel for Pack<'_> {
    type Out = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        gemm::pack(s, self.x, self.k, self.tokens, self.panel);
    }
}

/// Some rows of the weight times all tokens of the pass.
struct TileTask<'a, Y> {
    isa: Isa,
    weights: &'a dyn RowFormat,
    first: usize,
    rows: usize,
    packed: &'a [f32],
    m: usize,
    outs: &'a Rows<'a, Y>,
}

impl<Y: Elem> Kernel for TileTask<'_, Y> {
    type Out = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // An odd number of cache lines apart, rows of the result do not fall on the same sets.
        let stride = self.m.next_multiple_of(gemm::panel_width::<S>()) + 16;
        let tile = &mut *scratch::floats(TILE * COLUMN_STEP);
        let sums = &mut *scratch::floats(TILE * stride);
        self.accumulate(s, tile, sums, stride);
        self.write(s, sums, stride);
    }
}

impl<Y: Elem> TileTask<'_, Y> {
    #[inline(always)]
    fn accumulate<S: Simd>(&self, s: S, tile: &mut [f32], sums: &mut [f32], stride: usize) {
        let (k, width) = (self.weights.k(), gemm::panel_width::<S>());
        let rows = self.rows.next_multiple_of(S::TILE_ROWS);
        for start in (0..k).step_by(COLUMN_STEP) {
            let columns = COLUMN_STEP.min(k - start);
            for (row, values) in tile.chunks_exact_mut(columns).take(rows).enumerate() {
                if row < self.rows {
                    self.weights
                        .dequantize(self.isa, self.first + row, start, values);
                } else {
                    values.fill(0.0);
                }
            }
            let store = if start == 0 {
                Store::Replace
            } else {
                Store::Add
            };
            for (i, panel) in self.packed.chunks_exact(width * k).enumerate() {
                let panel = &panel[start * width..(start + columns) * width];
                let tile = Tile {
                    data: tile,
                    row_stride: columns,
                    column_stride: 1,
                    rows,
                    columns,
                };
                let tokens = self.m - i * width;
                gemm::multiply::<S, f32, true>(
                    s,
                    tile,
                    panel,
                    tokens,
                    (&mut sums[i * width..], stride),
                    store,
                );
            }
        }
    }

    /// Transposes the sums into the output, rounded.
    #[inline(always)]
    fn write<S: Simd>(&self, s: S, sums: &[f32], stride: usize) {
        let n = self.weights.rows();
        for token in 0..self.m {
            let mut column = [0.0; TILE];
            for (row, value) in column[..self.rows].iter_mut().enumerate() {
                *value = sums[row * stride + token];
            }
            // SAFETY: rows of the weight are shared out among tasks: no other task has these columns.
            let out = unsafe { self.outs.part(token * n + self.first, self.rows) };
            for (i, len) in crate::simd::pieces(self.rows, S::LANES) {
                Y::store_part(s, f32::load_part(s, &column[i..], len), &mut out[i..], len);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elem::Rounding;
    use crate::quant::{BlockRows, Code, DenseRows, Floats, dequantize_row};
    use crate::testing::{Random, close};
    use half::f16;

    fn reference(x: &[f32], w: &dyn RowFormat) -> Vec<f64> {
        let (n, k) = (w.rows(), w.k());
        let mut rows = vec![0.0; n * k];
        for (i, row) in rows.chunks_mut(k).enumerate() {
            dequantize_row(w, i, row);
        }
        let product = |x: &[f32], w: &[f32]| {
            x.iter()
                .zip(w)
                .map(|(a, b)| f64::from(*a) * f64::from(*b))
                .sum()
        };
        x.chunks(k)
            .flat_map(|x| rows.chunks(k).map(move |w| product(x, w)))
            .collect()
    }

    /// How far sums in words may be off: both sides are rounded to one in 16,382 of the largest of their block, here below `largest`.
    fn words_error(w: &dyn RowFormat, largest: f32) -> f64 {
        (w.k() as f64).sqrt() * 4.0 * f64::from(largest) / 16_382.0
    }

    fn check(pool: &Pool, w: &dyn RowFormat, largest: f32, m: usize) {
        let (n, k) = (w.rows(), w.k());
        let x16: Vec<f16> = Random::new(m as u64)
            .floats(m * k)
            .into_iter()
            .map(f16::from_f32)
            .collect();
        let x: Vec<f32> = x16.iter().map(|v| v.to_f32()).collect();
        let want = reference(&x, w);
        for isa in Isa::available() {
            let (mut y, mut y16) = (vec![f32::NAN; m * n], vec![f16::NAN; m * n]);
            linear_on(*isa, pool, &x, w, &mut y, m);
            linear_on(*isa, pool, &x16, w, &mut y16, m);
            let words = m > FEW_FOR_WORDS && packed::suits_words(*isa, w);
            let error = if words { words_error(w, largest) } else { 0.0 };
            for ((y, y16), want) in y.iter().zip(&y16).zip(&want) {
                let near = (f64::from(*y) - want).abs() <= error || close(*y, *want, 10 * k);
                assert!(near, "{} m={m} n={n} k={k}: {y} {want}", isa.name());
                assert_eq!(*y16, f16::from_f32(*y), "{}", isa.name());
            }
        }
    }

    #[test]
    fn products_match_f64_at_every_size() {
        let mut random = Random::new(3);
        for threads in [1, 3] {
            let pool = Pool::new(threads);
            for (n, k) in [
                (1, 1),
                (5, 3),
                (16, 17),
                (47, 40),
                (49, 512),
                (100, 513),
                (13, 1100),
            ] {
                let data = random.floats(n * k);
                let w = DenseRows::new(&data, k, Rounding::F32).unwrap();
                for m in [1, 2, 4, 5, 15, 16, 17, 33, 64] {
                    check(&pool, &w, 1.0, m);
                }
            }
        }
    }

    #[test]
    fn four_bit_products_match_f64() {
        let mut random = Random::new(4);
        let pool = Pool::new(2);
        for (rows, k, block) in [
            (50_usize, 96_usize, 32_usize),
            (30, 1536, 32),
            (33, 544, 544),
        ] {
            let data = random.bytes((rows * k).div_ceil(2));
            let scales: Vec<f16> = random
                .floats(rows * k / block)
                .iter()
                .map(|v| f16::from_f32(v * 0.05))
                .collect();
            let scales = Floats::F16(&scales);
            let w = BlockRows {
                data: &data,
                code: Code::I4,
                rows,
                k,
                block,
                scales,
                zeros: None,
                shifts: None,
                rounding: Rounding::F16,
            };
            for m in [1, 3, 7, 40, 520] {
                check(&pool, &w.checked().unwrap(), 0.4, m);
            }
        }
    }

    #[test]
    fn half_precision_products_match_f64() {
        let (mut random, pool) = (Random::new(6), Pool::new(2));
        for (n, k) in [(1, 32), (33, 96), (70, 544), (49, 1120)] {
            let data: Vec<f16> = random
                .floats(n * k)
                .into_iter()
                .map(f16::from_f32)
                .collect();
            let w = DenseRows::new(&data, k, Rounding::F16).unwrap();
            for m in [1, 6, 7, 13, 130] {
                check(&pool, &w, 1.0, m);
            }
        }
    }

    #[test]
    fn empty_shapes_are_fine() {
        let (pool, none) = (Pool::new(1), [0.0_f32; 0]);
        let w = DenseRows::new(&none, 4, Rounding::F32).unwrap();
        linear(&pool, &[1.0_f32; 8], &w, &mut [0.0_f32; 0], 2);
    }
}
