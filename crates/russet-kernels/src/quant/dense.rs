//! Rows stored as plain f32, f16 or bf16.

use super::RowFormat;
use crate::elem::{Elem, Rounding};
use crate::isa::Isa;
use crate::simd::{Kernel, Simd};

use half::{bf16, f16};

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
    fn no_finer_than_half(&self) -> bool {
        T::ROUNDING != Rounding::F32 || self.rounding != Rounding::F32
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
        let mut i = 0;
        while i < self.x.len() {
            let len = S::LANES.min(self.x.len() - i);
            let v = self.rounding.apply(s, T::load_part(s, &self.x[i..], len));
            f32::store_part(s, v, &mut self.out[i..], len);
            i += S::LANES;
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
        match self.rounding {
            Rounding::F32 => self.rows::<S, f32>(s),
            Rounding::F16 => self.rows::<S, f16>(s),
            Rounding::Bf16 => self.rows::<S, bf16>(s),
        }
    }
}

impl<T: Elem> DotRows<'_, T> {
    /// Four rows at a time, then the rest; weights are rounded to `R`.
    #[inline(always)]
    fn rows<S: Simd, R: Elem>(self, s: S) {
        let (k, n) = (self.x.len(), self.out.len());
        let mut row = 0;
        while row < n {
            let rows = &self.rows[row * k..];
            if n - row >= 4 {
                let sums = dots::<S, T, R, 4>(s, rows, self.x);
                self.out[row..row + 4].copy_from_slice(&s.sum4(sums));
                row += 4;
            } else {
                self.out[row] = s.sum(dots::<S, T, R, 1>(s, rows, self.x)[0]);
                row += 1;
            }
        }
    }
}

/// The sums, lane by lane, of `N` rows of weights times x; each on two accumulators, as sums of one wait for each other.
#[inline(always)]
pub(crate) fn dots<S: Simd, T: Elem, R: Elem, const N: usize>(
    s: S,
    w: &[T],
    x: &[f32],
) -> [S::V; N] {
    let k = x.len();
    let mut sums = [[s.splat(0.0); 2]; N];
    let mut i = 0;
    while i + 2 * S::LANES <= k {
        let mut half = 0;
        while half < 2 {
            let at = i + half * S::LANES;
            let x = s.load(&x[at..]);
            for r in 0..N {
                let v = R::round(s, T::load(s, &w[r * k + at..]));
                sums[r][half] = s.fma(v, x, sums[r][half]);
            }
            half += 1;
        }
        i += 2 * S::LANES;
    }
    while i < k {
        let len = S::LANES.min(k - i);
        let x = f32::load_part(s, &x[i..], len);
        for r in 0..N {
            let v = R::round(s, T::load_part(s, &w[r * k + i..], len));
            sums[r][0] = s.fma(v, x, sums[r][0]);
        }
        i += S::LANES;
    }
    let mut total = [s.splat(0.0); N];
    for r in 0..N {
        total[r] = s.add(sums[r][0], sums[r][1]);
    }
    total
}

struct Dot<'a>(&'a [f32], &'a [f32]);

impl Kernel for Dot<'_> {
    type Out = f32;
    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> f32 {
        s.sum(dots::<S, f32, f32, 1>(s, self.0, self.1)[0])
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
