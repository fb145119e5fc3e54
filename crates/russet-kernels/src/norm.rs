//! Root-mean-square normalisation of rows, with the two roundings of the operation's decomposed form.

use crate::elem::Elem;
use crate::isa::Isa;
use crate::rope::RowsOf;
use crate::simd::{Kernel, Simd, pieces};
use crate::threads::Pool;

/// Elements per task below which sharing out costs more than it saves.
const SHARE: usize = 16 << 10;

/// A norm of rows.
#[derive(Clone, Copy, Debug)]
pub struct Norm<'a, T> {
    /// The rows.
    pub x: RowsOf<'a, T>,
    /// What every row is multiplied with; as long as a row.
    pub scale: &'a [T],
    /// Added to the mean of the squares.
    pub eps: f32,
    /// Whether squares are summed one after the other, as the reference runtime does.
    pub in_order: bool,
    /// What is added to the result, as large as that; then nothing is rounded before.
    pub add: Option<&'a [T]>,
}

/// y = round(round(x / sqrt(mean(x^2) + eps)) * scale), row by row, in f32 between the roundings; or
/// y = round(x / sqrt(mean(x^2) + eps) * scale + add).
///
/// # Panics
/// If the lengths do not fit.
pub fn rms_norm<T: Elem>(pool: &Pool, norm: &Norm<'_, T>, out: &mut [T]) {
    let (x, width) = (norm.x, norm.scale.len());
    if out.is_empty() {
        return;
    }
    let rows = out.len() / width.max(1);
    assert!(
        width > 0 && x.width == width && rows * width == out.len(),
        "rms_norm: lengths"
    );
    assert!(
        (rows - 1) * x.stride + width <= x.data.len()
            && norm.add.is_none_or(|a| a.len() == out.len()),
        "rms_norm: rows"
    );
    let per = (SHARE / width).max(1);
    pool.for_chunks_mut(out, per * width, &|i, out| {
        Isa::best().run(Rows {
            norm,
            first: i * per,
            out,
        });
    });
}

/// Rows from `first` on.
struct Rows<'a, T> {
    norm: &'a Norm<'a, T>,
    first: usize,
    out: &'a mut [T],
}

impl<T: Elem> Kernel for Rows<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { norm, first, out } = self;
        let width = norm.scale.len();
        let (mut row, mut at) = (first, 0);
        while at < out.len() {
            let x = &norm.x.data[row * norm.x.stride..][..width];
            let add = norm.add.map(|add| &add[row * width..][..width]);
            let factor = s.splat(factor(s, x, norm.eps, norm.in_order));
            let out = &mut out[at..at + width];
            let mut i = 0;
            while i < width {
                let len = S::LANES.min(width - i);
                let v = s.mul(T::load_part(s, &x[i..], len), factor);
                let scale = T::load_part(s, &norm.scale[i..], len);
                let y = match add {
                    Some(add) => s.fma(v, scale, T::load_part(s, &add[i..], len)),
                    None => s.mul(T::round(s, v), scale),
                };
                T::store_part(s, y, &mut out[i..], len);
                i += S::LANES;
            }
            (row, at) = (row + 1, at + width);
        }
    }
}

/// 1 / sqrt(mean(x^2) + eps).
#[inline(always)]
pub(crate) fn factor<S: Simd, T: Elem>(s: S, x: &[T], eps: f32, in_order: bool) -> f32 {
    let sum = if in_order {
        let squares = x.iter().map(|v| v.to_f32() * v.to_f32());
        squares.fold(0.0, |sum, square| sum + square)
    } else {
        sum_of_squares(s, x)
    };
    1.0 / (sum / x.len() as f32 + eps).sqrt()
}

#[inline(always)]
pub(crate) fn sum_of_squares<S: Simd, T: Elem>(s: S, x: &[T]) -> f32 {
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

    /// The rows of `x`, which are `gap` apart.
    fn rows<T>(x: &[T], width: usize, gap: usize) -> RowsOf<'_, T> {
        RowsOf {
            data: x,
            stride: width + gap,
            width,
        }
    }

    fn check<T: Elem>(ulp: f32) {
        let mut random = Random::new(8);
        let mut some = |n| -> Vec<T> { random.floats(n).into_iter().map(T::from_f32).collect() };
        for (n, width, gap) in [
            (1, 1, 0),
            (3, 7, 2),
            (5, 16, 0),
            (2, 64, 64),
            (3, 576, 0),
            (1, 1000, 0),
        ] {
            let (data, scale, add) = (some(n * (width + gap)), some(width), some(n * width));
            let ways = Isa::available()
                .iter()
                .flat_map(|i| [(i, false, false), (i, true, false), (i, false, true)]);
            for (isa, in_order, adds) in ways {
                let x = rows(&data, width, gap);
                let mut y = vec![T::ZERO; n * width];
                let norm = Norm {
                    x,
                    scale: &scale,
                    eps: 1e-6,
                    in_order,
                    add: adds.then_some(&add[..]),
                };
                isa.run(Rows {
                    norm: &norm,
                    first: 0,
                    out: &mut y,
                });
                for (i, y) in y.iter().enumerate() {
                    let row = &data[i / width * x.stride..][..width];
                    let squares = row.iter().map(|v| f64::from(v.to_f32()).powi(2));
                    let mean = squares.sum::<f64>() / width as f64;
                    let v = f64::from(row[i % width].to_f32()) / (mean + 1e-6).sqrt();
                    let more = if adds {
                        f64::from(add[i].to_f32())
                    } else {
                        0.0
                    };
                    let want = v * f64::from(scale[i % width].to_f32()) + more;
                    let near = 2.0 * f64::from(ulp) * (want.abs() + more.abs()) + 1e-7;
                    let error = (f64::from(y.to_f32()) - want).abs();
                    assert!(error <= near, "{}: {error}", isa.name());
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
        let norm = Norm {
            x: rows(&x, 2, 0),
            scale: &scale,
            eps: 1e-6,
            in_order: true,
            add: None,
        };
        rms_norm(&Pool::new(1), &norm, &mut y);
        let (a, b) = (x[0].to_f32(), x[1].to_f32());
        let factor = 1.0 / ((a * a + b * b) / 2.0 + 1e-6).sqrt();
        let want = f16::from_f32(f16::from_f32(a * factor).to_f32() * scale[0].to_f32());
        assert_eq!(y[0], want);
    }
}
