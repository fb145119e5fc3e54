//! Rows stored as plain f32, f16 or bf16.

use super::RowFormat;
use crate::elem::{Elem, Rounding};
use crate::isa::Isa;
use crate::simd::{Kernel, Simd, pieces};

/// A matrix of plain numbers.
#[derive(Clone, Copy, Debug)]
pub struct DenseRows<'a, T> {
    data: &'a [T],
    k: usize,
    rounding: Rounding,
}

impl<'a, T: Elem> DenseRows<'a, T> {
    /// Rows of `k` numbers each, rounded to `rounding` before use ([`Rounding::F32`] for as they are).
    /// `None` if `data` is not whole rows.
    pub fn new(data: &'a [T], k: usize, rounding: Rounding) -> Option<Self> {
        let whole = if k == 0 {
            data.is_empty()
        } else {
            data.len().is_multiple_of(k)
        };
        let rounding = if rounding == T::ROUNDING {
            Rounding::F32
        } else {
            rounding
        };
        whole.then_some(Self { data, k, rounding })
    }

    fn row(&self, row: usize) -> &'a [T] {
        &self.data[row * self.k..(row + 1) * self.k]
    }
}

impl<T: Elem> RowFormat for DenseRows<'_, T> {
    fn rows(&self) -> usize {
        self.data.len().checked_div(self.k).unwrap_or(0)
    }
    fn k(&self) -> usize {
        self.k
    }
    fn dequantize(&self, isa: Isa, row: usize, start: usize, out: &mut [f32]) {
        isa.run(Widen {
            x: &self.row(row)[start..start + out.len()],
            out,
            rounding: self.rounding,
        });
    }
    fn dot_rows(&self, isa: Isa, first: usize, x: &[f32], out: &mut [f32]) {
        let rows = &self.data[first * self.k..(first + out.len()) * self.k];
        isa.run(DotRows {
            rows,
            x,
            out,
            rounding: self.rounding,
        });
    }
}

struct Widen<'a, T> {
    x: &'a [T],
    out: &'a mut [f32],
    rounding: Rounding,
}

impl<T: Elem> Kernel for Widen<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for (i, len) in pieces(self.x.len(), S::LANES) {
            let v = self.rounding.apply(s, T::load_part(s, &self.x[i..], len));
            f32::store_part(s, v, &mut self.out[i..], len);
        }
    }
}

struct DotRows<'a, T> {
    rows: &'a [T],
    x: &'a [f32],
    out: &'a mut [f32],
    rounding: Rounding,
}

impl<T: Elem> Kernel for DotRows<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for (row, y) in self.rows.chunks_exact(self.x.len().max(1)).zip(self.out) {
            *y = dot_body(s, row, self.x, self.rounding);
        }
    }
}

/// The sum of w * x, on four accumulators.
#[inline(always)]
pub(crate) fn dot_body<S: Simd, T: Elem>(s: S, w: &[T], x: &[f32], rounding: Rounding) -> f32 {
    let zero = s.splat(0.0);
    let mut sums = [zero; 4];
    let (w4, w1) = w.split_at(w.len() - w.len() % (4 * S::LANES));
    let (x4, x1) = x.split_at(w4.len());
    for (w, x) in w4
        .chunks_exact(4 * S::LANES)
        .zip(x4.chunks_exact(4 * S::LANES))
    {
        for (i, sum) in sums.iter_mut().enumerate() {
            let v = rounding.apply(s, T::load(s, &w[i * S::LANES..]));
            *sum = s.fma(v, s.load(&x[i * S::LANES..]), *sum);
        }
    }
    for (i, len) in pieces(w1.len(), S::LANES) {
        let v = rounding.apply(s, T::load_part(s, &w1[i..], len));
        sums[0] = s.fma(v, f32::load_part(s, &x1[i..], len), sums[0]);
    }
    s.sum(s.add(s.add(sums[0], sums[1]), s.add(sums[2], sums[3])))
}

struct Dot<'a>(&'a [f32], &'a [f32]);

impl Kernel for Dot<'_> {
    type Out = f32;
    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> f32 {
        dot_body(s, self.0, self.1, Rounding::F32)
    }
}

/// The inner product of two f32 vectors of one length.
pub(super) fn dot(isa: Isa, a: &[f32], b: &[f32]) -> f32 {
    isa.run(Dot(a, b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Random, close};
    use half::{bf16, f16};

    fn check<T: Elem>(rounding: Rounding) {
        let mut random = Random::new(1);
        for k in [1, 3, 4, 15, 16, 17, 63, 64, 65, 200, 576] {
            let (n, x) = (5, random.floats(k));
            let data: Vec<T> = random.floats(n * k).into_iter().map(T::from_f32).collect();
            let w = DenseRows::new(&data, k, rounding).unwrap();
            assert_eq!(w.rows(), n);
            for isa in Isa::available() {
                let (mut y, mut row) = (vec![0.0; 3], vec![0.0; k]);
                w.dot_rows(*isa, 1, &x, &mut y);
                for (i, y) in y.iter().enumerate() {
                    let values: Vec<f32> = w
                        .row(1 + i)
                        .iter()
                        .map(|v| rounding.scalar(v.to_f32()))
                        .collect();
                    w.dequantize(*isa, 1 + i, 0, &mut row);
                    assert_eq!(row, values, "{}", isa.name());
                    let want: f64 = values
                        .iter()
                        .zip(&x)
                        .map(|(a, b)| f64::from(*a) * f64::from(*b))
                        .sum();
                    assert!(close(*y, want, k), "{} k={k}: {} {want}", isa.name(), y);
                }
            }
        }
    }

    #[test]
    fn dense_rows_match_f64() {
        check::<f32>(Rounding::F32);
        check::<f32>(Rounding::Bf16);
        check::<f16>(Rounding::F16);
        check::<bf16>(Rounding::F32);
    }

    #[test]
    fn ragged_data_is_refused() {
        assert!(DenseRows::new(&[1.0_f32; 7], 2, Rounding::F32).is_none());
        assert!(DenseRows::new(&[1.0_f32; 7], 0, Rounding::F32).is_none());
    }
}
