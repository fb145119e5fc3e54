//! Root-mean-square normalisation of rows, with the two roundings of the operation's decomposed form.

use crate::elem::Elem;
use crate::isa::Isa;
use crate::simd::{Kernel, Simd, pieces};
use crate::threads::Pool;

/// Elements per task below which sharing out costs more than it saves.
const SHARE: usize = 16 << 10;

/// y = round(round(x / sqrt(mean(x^2) + eps)) * scale), row by row, in f32 between the roundings.
///
/// Rows are as long as `scale`; x and out hold whole rows. The mean and the root are in f32; `in_order` sums the squares one
/// after the other, as the reference runtime does.
///
/// # Panics
/// If the lengths do not fit.
pub fn rms_norm<T: Elem>(
    pool: &Pool,
    x: &[T],
    (scale, eps): (&[T], f32),
    in_order: bool,
    out: &mut [T],
) {
    let width = scale.len();
    assert!(
        x.len() == out.len() && (x.is_empty() || width > 0 && x.len().is_multiple_of(width)),
        "rms_norm: lengths"
    );
    if x.is_empty() {
        return;
    }
    let chunk = width * (SHARE / width).max(1);
    pool.for_chunks_mut(out, chunk, &|i, out| {
        Isa::best().run(RmsNorm {
            x: &x[i * chunk..i * chunk + out.len()],
            scale,
            eps,
            in_order,
            out,
        });
    });
}

struct RmsNorm<'a, T> {
    x: &'a [T],
    scale: &'a [T],
    eps: f32,
    in_order: bool,
    out: &'a mut [T],
}

impl<T: Elem> Kernel for RmsNorm<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let width = self.scale.len();
        for (x, out) in self
            .x
            .chunks_exact(width)
            .zip(self.out.chunks_exact_mut(width))
        {
            let sum = if self.in_order {
                x.iter()
                    .map(|v| v.to_f32() * v.to_f32())
                    .fold(0.0, |sum, square| sum + square)
            } else {
                sum_of_squares(s, x)
            };
            let mean = sum / width as f32;
            let factor = s.splat(1.0 / (mean + self.eps).sqrt());
            for (i, len) in pieces(width, S::LANES) {
                let v = T::round(s, s.mul(T::load_part(s, &x[i..], len), factor));
                let y = s.mul(v, T::load_part(s, &self.scale[i..], len));
                T::store_part(s, y, &mut out[i..], len);
            }
        }
    }
}

#[inline(always)]
fn sum_of_squares<S: Simd, T: Elem>(s: S, x: &[T]) -> f32 {
    let mut sums = [s.splat(0.0); 2];
    let mut turn = 0;
    for (i, len) in pieces(x.len(), S::LANES) {
        let v = T::load_part(s, &x[i..], len);
        sums[turn] = s.fma(v, v, sums[turn]);
        turn ^= 1;
    }
    s.sum(s.add(sums[0], sums[1]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;
    use half::{bf16, f16};

    fn check<T: Elem>(ulp: f32) {
        let mut random = Random::new(8);
        for (rows, width) in [(1, 1), (3, 7), (5, 16), (2, 64), (3, 576), (1, 1000)] {
            let x: Vec<T> = random
                .floats(rows * width)
                .into_iter()
                .map(T::from_f32)
                .collect();
            let scale: Vec<T> = random.floats(width).into_iter().map(T::from_f32).collect();
            for (isa, in_order) in Isa::available()
                .iter()
                .flat_map(|i| [(i, false), (i, true)])
            {
                let mut y = vec![T::ZERO; x.len()];
                isa.run(RmsNorm {
                    x: &x,
                    scale: &scale,
                    eps: 1e-6,
                    in_order,
                    out: &mut y,
                });
                for (x, y) in x.chunks(width).zip(y.chunks(width)) {
                    let mean =
                        x.iter().map(|v| f64::from(v.to_f32()).powi(2)).sum::<f64>() / width as f64;
                    for i in 0..width {
                        let v = f64::from(x[i].to_f32()) / (mean + 1e-6).sqrt();
                        let want = (T::from_f32(v as f32).to_f32() * scale[i].to_f32()).abs();
                        assert!(
                            (y[i].to_f32().abs() - want).abs() <= 2.0 * ulp * want + 1e-7,
                            "{}",
                            isa.name()
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn rows_are_normalised() {
        check::<f32>(3e-7);
        check::<f16>(1e-3);
        check::<bf16>(8e-3);
    }

    #[test]
    fn both_roundings_are_done() {
        let x = [f16::from_f32(0.3), f16::from_f32(0.7)];
        let scale = [f16::from_f32(1.1), f16::from_f32(1.3)];
        let mut y = [f16::ZERO; 2];
        rms_norm(&Pool::new(1), &x, (&scale, 1e-6), true, &mut y);
        let (a, b) = (x[0].to_f32(), x[1].to_f32());
        let factor = 1.0 / ((a * a + b * b) / 2.0 + 1e-6).sqrt();
        let want = f16::from_f32(f16::from_f32(a * factor).to_f32() * scale[0].to_f32());
        assert_eq!(y[0], want);
    }
}
