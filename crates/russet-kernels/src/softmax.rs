//! Softmax of rows, in f32, rounded once.

use crate::elem::Elem;
use crate::isa::Isa;
use crate::scratch;
use crate::simd::{Kernel, Simd, pieces};
use crate::threads::Pool;

/// Elements per task below which sharing out costs more than it saves.
const SHARE: usize = 8 << 10;

/// out = e^(x - max) / sum e^(x - max), over rows of `width`.
///
/// # Panics
/// If the lengths do not fit.
pub fn softmax<T: Elem>(pool: &Pool, x: &[T], width: usize, out: &mut [T]) {
    assert!(
        x.len() == out.len() && (x.is_empty() || width > 0 && x.len().is_multiple_of(width)),
        "softmax: lengths"
    );
    if x.is_empty() {
        return;
    }
    let chunk = width * (SHARE / width).max(1);
    pool.for_chunks_mut(out, chunk, &|i, out| {
        Isa::best().run(Softmax {
            x: &x[i * chunk..i * chunk + out.len()],
            width,
            out,
        });
    });
}

struct Softmax<'a, T> {
    x: &'a [T],
    width: usize,
    out: &'a mut [T],
}

impl<T: Elem> Kernel for Softmax<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let row = &mut *scratch::floats(self.width);
        for (x, out) in self
            .x
            .chunks_exact(self.width)
            .zip(self.out.chunks_exact_mut(self.width))
        {
            let max = widen_and_max(s, x, row);
            let inverse = s.splat(1.0 / exponentials(s, row, max));
            for (i, len) in pieces(row.len(), S::LANES) {
                let e = f32::load_part(s, &row[i..], len);
                T::store_part(s, s.mul(e, inverse), &mut out[i..], len);
            }
        }
    }
}

/// Widens `x` into `row`; returns the largest value.
#[inline(always)]
fn widen_and_max<S: Simd, T: Elem>(s: S, x: &[T], row: &mut [f32]) -> f32 {
    let mut max = s.splat(f32::NEG_INFINITY);
    let mut rest = f32::NEG_INFINITY;
    for (i, len) in pieces(x.len(), S::LANES) {
        let v = T::load_part(s, &x[i..], len);
        f32::store_part(s, v, &mut row[i..], len);
        if len == S::LANES {
            max = s.max(v, max);
        } else {
            rest = row[i..i + len].iter().copied().fold(rest, f32::max);
        }
    }
    s.max_lane(max).max(rest)
}

/// Replaces each x by e^(x - max); returns the sum.
#[inline(always)]
fn exponentials<S: Simd>(s: S, row: &mut [f32], max: f32) -> f32 {
    let (max, mut sum, mut rest) = (s.splat(max), s.splat(0.0), 0.0);
    for (i, len) in pieces(row.len(), S::LANES) {
        let e = s.exp_or_zero(s.sub(f32::load_part(s, &row[i..], len), max));
        f32::store_part(s, e, &mut row[i..], len);
        if len == S::LANES {
            sum = s.add(sum, e);
        } else {
            rest = row[i..i + len].iter().sum();
        }
    }
    s.sum(sum) + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;
    use half::f16;

    fn check<T: Elem>(tolerance: f64) {
        let mut random = Random::new(9);
        for (rows, width) in [(1, 1), (3, 5), (4, 16), (2, 33), (3, 500)] {
            let mut x: Vec<T> = random
                .floats(rows * width)
                .iter()
                .map(|v| T::from_f32(v * 8.0))
                .collect();
            if width > 1 {
                x[0] = T::from_f32(f32::NEG_INFINITY);
            }
            for isa in Isa::available() {
                let mut y = vec![T::ZERO; x.len()];
                isa.run(Softmax {
                    x: &x,
                    width,
                    out: &mut y,
                });
                for (x, y) in x.chunks(width).zip(y.chunks(width)) {
                    let e: Vec<f64> = x.iter().map(|v| f64::from(v.to_f32()).exp()).collect();
                    let sum: f64 = e.iter().sum();
                    for (e, y) in e.iter().zip(y) {
                        let (want, got) = (e / sum, f64::from(y.to_f32()));
                        assert!(
                            (got - want).abs() <= tolerance * want + 6e-8,
                            "{}: {got} {want}",
                            isa.name()
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn rows_sum_to_one() {
        check::<f32>(1e-6);
        check::<f16>(5e-4);
    }
}
