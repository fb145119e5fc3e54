//! Rotary position embedding, with the roundings of the operation's decomposed form.
//!
//! A pair (a, b) at angle t becomes (a cos t - b sin t, a sin t + b cos t). Each product is rounded to the storage type, then the sum.

use crate::elem::Elem;
use crate::isa::Isa;
use crate::norm;
use crate::scratch;
use crate::simd::{Kernel, Simd};

/// Which elements of a row are pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pairs {
    /// Element i with element i + half: the two halves of the rotated part.
    Halves,
    /// Element 2i with element 2i + 1.
    Interleaved,
}

/// Rows to rotate: row i is `data[i * stride..][..width]`.
#[derive(Clone, Copy, Debug)]
pub struct RowsOf<'a, T> {
    /// The elements.
    pub data: &'a [T],
    /// Elements from a row to the next.
    pub stride: usize,
    /// Elements of a row.
    pub width: usize,
}

/// Cosines and sines of the pairs of a row, row by row.
#[derive(Clone, Copy, Debug)]
pub struct Tables<'a, T> {
    /// Cosines.
    pub cos: &'a [T],
    /// Sines.
    pub sin: &'a [T],
    /// Pairs of a row.
    pub pairs: usize,
}

/// Rotates rows into `out`, which has no gaps: row i by row i mod (rows of the tables), so that heads laid out [heads, m, d] share
/// tables [m, pairs]. What a row has beyond its pairs is copied.
///
/// # Panics
/// If the lengths do not fit.
pub fn rotate_rows<T: Elem>(
    pairing: Pairs,
    x: RowsOf<'_, T>,
    tables: Tables<'_, T>,
    out: &mut [T],
) {
    if out.is_empty() {
        return;
    }
    let rows = out.len() / x.width.max(1);
    let period = tables.cos.len() / tables.pairs.max(1);
    assert!(
        rows * x.width == out.len() && (rows - 1) * x.stride + x.width <= x.data.len(),
        "rope: rows"
    );
    assert!(
        tables.cos.len() == tables.sin.len() && 2 * tables.pairs <= x.width,
        "rope: tables"
    );
    if tables.pairs == 0 {
        let rows = (0..rows).zip(out.chunks_exact_mut(x.width));
        return rows.for_each(|(i, out)| {
            out.copy_from_slice(&x.data[i * x.stride..][..x.width]);
        });
    }
    assert!(period > 0, "rope: tables");
    Isa::best().run(Rotation {
        pairing,
        x,
        tables,
        period,
        out,
    });
}

/// As [`rotate_rows`], of rows that are normalised first ([`crate::norm`]) and multiplied with `scale`; in f32 until the result.
///
/// # Panics
/// If the lengths do not fit.
pub fn rotate_normalised<T: Elem>(
    pairing: Pairs,
    x: RowsOf<'_, T>,
    (scale, eps): (&[T], f32),
    tables: Tables<'_, T>,
    out: &mut [T],
) {
    if out.is_empty() {
        return;
    }
    let (width, pairs) = (x.width, tables.pairs);
    let rows = out.len() / width.max(1);
    let period = tables.cos.len().checked_div(pairs).unwrap_or(1);
    let fits = rows * width == out.len() && (rows - 1) * x.stride + width <= x.data.len();
    assert!(fits && scale.len() == width, "rope: rows");
    let alike = tables.cos.len() == tables.sin.len() && period > 0;
    assert!(alike && 2 * pairs <= width, "rope: tables");
    Isa::best().run(Normalised {
        rotation: Rotation {
            pairing,
            x,
            tables,
            period,
            out,
        },
        scale,
        eps,
    });
}

struct Rotation<'a, T> {
    pairing: Pairs,
    x: RowsOf<'a, T>,
    tables: Tables<'a, T>,
    period: usize,
    out: &'a mut [T],
}

impl<T: Elem> Kernel for Rotation<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let width = self.x.width;
        let mut row = 0;
        while row * width < self.out.len() {
            let x = &self.x.data[row * self.x.stride..][..width];
            let left = 2 * self.tables.pairs;
            self.turn::<S, T, T>(s, row, x);
            self.out[row * width + left..(row + 1) * width].copy_from_slice(&x[left..]);
            row += 1;
        }
    }
}

impl<T: Elem> Rotation<'_, T> {
    /// The pairs of row `row`, which is `x`; products are rounded to `R`.
    #[inline(always)]
    fn turn<S: Simd, X: Elem, R: Elem>(&mut self, s: S, row: usize, x: &[X]) {
        let (width, pairs) = (x.len(), self.tables.pairs);
        let table = row % self.period * pairs;
        let cos = &self.tables.cos[table..table + pairs];
        let sin = &self.tables.sin[table..table + pairs];
        let out = &mut self.out[row * width..(row + 1) * width];
        match self.pairing {
            Pairs::Halves => halves::<S, X, T, R>(s, x, cos, sin, out),
            Pairs::Interleaved => interleaved::<X, T, R>(x, cos, sin, out),
        }
    }
}

struct Normalised<'a, T> {
    rotation: Rotation<'a, T>,
    scale: &'a [T],
    eps: f32,
}

impl<T: Elem> Kernel for Normalised<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (mut rotation, width) = (self.rotation, self.scale.len());
        let normal = &mut *scratch::floats(width);
        let mut row = 0;
        while row * width < rotation.out.len() {
            let x = &rotation.x.data[row * rotation.x.stride..][..width];
            let factor = s.splat(norm::factor(s, x, self.eps, false));
            let mut i = 0;
            while i < width {
                let len = S::LANES.min(width - i);
                let v = s.mul(T::load_part(s, &x[i..], len), factor);
                let v = s.mul(v, T::load_part(s, &self.scale[i..], len));
                f32::store_part(s, v, &mut normal[i..], len);
                i += S::LANES;
            }
            rotation.turn::<S, f32, f32>(s, row, normal);
            let mut i = 2 * rotation.tables.pairs;
            while i < width {
                let len = S::LANES.min(width - i);
                let v = f32::load_part(s, &normal[i..], len);
                T::store_part(s, v, &mut rotation.out[row * width + i..], len);
                i += S::LANES;
            }
            row += 1;
        }
    }
}

#[inline(always)]
fn halves<S: Simd, X: Elem, T: Elem, R: Elem>(s: S, x: &[X], cos: &[T], sin: &[T], out: &mut [T]) {
    let pairs = cos.len();
    let mut i = 0;
    while i < pairs {
        let len = S::LANES.min(pairs - i);
        let a = X::load_part(s, &x[i..], len);
        let b = X::load_part(s, &x[pairs + i..], len);
        let (cos, sin) = (
            T::load_part(s, &cos[i..], len),
            T::load_part(s, &sin[i..], len),
        );
        let low = s.sub(R::round(s, s.mul(cos, a)), R::round(s, s.mul(sin, b)));
        let high = s.add(R::round(s, s.mul(sin, a)), R::round(s, s.mul(cos, b)));
        T::store_part(s, low, &mut out[i..], len);
        T::store_part(s, high, &mut out[pairs + i..], len);
        i += S::LANES;
    }
}

#[inline(always)]
fn interleaved<X: Elem, T: Elem, R: Elem>(x: &[X], cos: &[T], sin: &[T], out: &mut [T]) {
    let mut i = 0;
    while i < cos.len() {
        let product = |a: T, b: X| R::ROUNDING.scalar(a.to_f32() * b.to_f32());
        let (a, b) = (x[2 * i], x[2 * i + 1]);
        out[2 * i] = T::from_f32(product(cos[i], a) - product(sin[i], b));
        out[2 * i + 1] = T::from_f32(product(sin[i], a) + product(cos[i], b));
        i += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;
    use half::f16;

    /// Rotates one row on one instruction set.
    fn rotate(isa: Isa, pairing: Pairs, x: &[f16], cos: &[f16], sin: &[f16]) -> Vec<f16> {
        let mut out = vec![f16::ZERO; x.len()];
        isa.run(Rotation {
            pairing,
            x: RowsOf {
                data: x,
                stride: x.len(),
                width: x.len(),
            },
            tables: Tables {
                cos,
                sin,
                pairs: cos.len(),
            },
            period: 1,
            out: &mut out,
        });
        out
    }

    #[test]
    fn halves_and_pairs_are_the_same_rotation() {
        let mut random = Random::new(10);
        let mut half =
            |n| -> Vec<f16> { random.floats(n).into_iter().map(f16::from_f32).collect() };
        for n in [1, 4, 15, 16, 17, 32, 50] {
            let (x, cos, sin) = (half(2 * n + 3), half(n), half(n));
            let mut paired: Vec<f16> = (0..2 * n).map(|i| x[i / 2 + n * (i % 2)]).collect();
            paired.extend(&x[2 * n..]);
            for isa in Isa::available() {
                let halves = rotate(*isa, Pairs::Halves, &x, &cos, &sin);
                let pairs = rotate(*isa, Pairs::Interleaved, &paired, &cos, &sin);
                for i in 0..n {
                    let want = (pairs[2 * i], pairs[2 * i + 1]);
                    assert_eq!((halves[i], halves[n + i]), want, "{}", isa.name());
                }
                assert_eq!(halves[2 * n..], x[2 * n..]);
            }
        }
    }

    #[test]
    fn products_are_rounded_before_the_sum() {
        let h = f16::from_f32;
        let (x, cos, sin) = ([h(1.001), h(0.333)], [h(0.877)], [h(0.4805)]);
        let out = rotate(Isa::best(), Pairs::Halves, &x, &cos, &sin);
        assert_eq!(out[0], cos[0] * x[0] - sin[0] * x[1]);
        assert_eq!(out[1], sin[0] * x[0] + cos[0] * x[1]);
    }

    #[test]
    fn rows_share_the_tables() {
        // Rows of four with a gap of two.
        let data: Vec<f32> = (0..36).map(|i| (i % 6 + i / 6 * 4) as f32).collect();
        let x = RowsOf {
            data: &data,
            stride: 6,
            width: 4,
        };
        let (cos, sin) = (&[1.0, 0.0], &[0.0, 1.0]);
        let tables = Tables { cos, sin, pairs: 1 };
        let mut out = vec![0.0; 24];
        rotate_rows(Pairs::Halves, x, tables, &mut out);
        assert_eq!(out[..8], [0.0, 1.0, 2.0, 3.0, -5.0, 4.0, 6.0, 7.0]);
        assert_eq!(out[20..], [-21.0, 20.0, 22.0, 23.0]);
    }
    #[test]
    fn normalised_rows_are_turned_without_roundings_between() {
        let mut random = Random::new(31);
        let (width, pairs, rows, stride) = (20, 8, 3, 27);
        let (data, scale) = (random.floats(rows * stride), random.floats(width));
        let (cos, sin) = (random.floats(rows * pairs), random.floats(rows * pairs));
        for (isa, pairing) in Isa::available()
            .iter()
            .flat_map(|isa| [(isa, Pairs::Halves), (isa, Pairs::Interleaved)])
        {
            let mut out = vec![0.0; rows * width];
            isa.run(Normalised {
                rotation: Rotation {
                    pairing,
                    x: RowsOf {
                        data: &data,
                        stride,
                        width,
                    },
                    tables: Tables {
                        cos: &cos,
                        sin: &sin,
                        pairs,
                    },
                    period: rows,
                    out: &mut out,
                },
                scale: &scale,
                eps: 1e-6,
            });
            for (row, out) in out.chunks(width).enumerate() {
                let x = &data[row * stride..][..width];
                let mean = x.iter().map(|v| v * v).sum::<f32>() / width as f32;
                let v = |i: usize| x[i] / (mean + 1e-6).sqrt() * scale[i];
                for i in 0..width {
                    let (p, a, b) = match pairing {
                        _ if i >= 2 * pairs => (0, i, i),
                        Pairs::Halves => (i % pairs, i % pairs, i % pairs + pairs),
                        Pairs::Interleaved => (i / 2, i / 2 * 2, i / 2 * 2 + 1),
                    };
                    let (cos, sin) = (cos[row * pairs + p], sin[row * pairs + p]);
                    let want = match i {
                        _ if a == b => v(i),
                        _ if i == a => v(a) * cos - v(b) * sin,
                        _ => v(a) * sin + v(b) * cos,
                    };
                    let error = (out[i] - want).abs();
                    assert!(error <= 1e-5, "{} {pairing:?} {row} {i}", isa.name());
                }
            }
        }
    }
}
