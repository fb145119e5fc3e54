//! Inverses of unit lower triangular matrices, by forward substitution, in f32.
//!
//! The chunked delta rule solves `(I + L) e = v` for all positions of a chunk. Programs that have nothing but products multiply with
//! the inverse, which costs n³/6 multiply-adds here, and twelve times n³ by block doubling where n is 64. Row i of the inverse X is
//! `e_i - Σ_{j < i} L_ij X_j`: columns are taken a few registers at a time, so that the rows above stay near and nothing but the row
//! that is done is written.

use crate::elem::Elem;
use crate::isa::Isa;
use crate::simd::{Kernel, Simd};

/// `out = (I + L)⁻¹`, L what lies below the diagonal of `matrix` `[n, n]`; the rest of it is not read.
///
/// # Panics
/// If the lengths do not fit.
pub fn unit_lower_inverse(matrix: &[f32], n: usize, out: &mut [f32]) {
    let len = n.checked_mul(n);
    assert!(
        Some(matrix.len()) == len && Some(out.len()) == len,
        "unit_lower_inverse: lengths"
    );
    Isa::best().run(UnitLowerInverse { matrix, n, out });
}

struct UnitLowerInverse<'a> {
    matrix: &'a [f32],
    n: usize,
    out: &'a mut [f32],
}

impl Kernel for UnitLowerInverse<'_> {
    type Out = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { matrix, n, out } = self;
        let mut first = 0;
        while first < n {
            let left = n - first;
            first += if left >= 4 * S::LANES {
                columns::<S, 4>(s, (matrix, n), (first, S::LANES), out);
                4 * S::LANES
            } else {
                let len = left.min(S::LANES);
                columns::<S, 1>(s, (matrix, n), (first, len), out);
                len
            };
        }
    }
}

/// `N` registers of columns from column `first` on, `len` lanes of each.
#[inline(always)]
fn columns<S: Simd, const N: usize>(
    s: S,
    (matrix, n): (&[f32], usize),
    (first, len): (usize, usize),
    out: &mut [f32],
) {
    let mut row = 0;
    while row < first {
        out[row * n + first..][..N * len].fill(0.0);
        row += 1;
    }
    while row < n {
        let factors = &matrix[row * n..][..row];
        let mut sums = [s.splat(0.0); N];
        let mut above = first;
        while above < row {
            let (factor, x) = (s.splat(-factors[above]), &out[above * n + first..]);
            for i in 0..N {
                let x = f32::load_part(s, &x[i * S::LANES..], len);
                sums[i] = s.fma(factor, x, sums[i]);
            }
            above += 1;
        }
        let place = &mut out[row * n + first..];
        for i in 0..N {
            f32::store_part(s, sums[i], &mut place[i * S::LANES..], len);
        }
        if row < first + N * len {
            // What is right of the diagonal is zero, however large the factors are.
            place[row - first] = 1.0;
            place[row - first + 1..N * len].fill(0.0);
        }
        row += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Random, close};

    /// Row by row in f64.
    fn reference(matrix: &[f32], n: usize) -> Vec<f64> {
        let mut x = vec![0.0; n * n];
        for (i, c) in (0..n).flat_map(|i| (0..=i).map(move |c| (i, c))) {
            let terms = (c..i).map(|j| f64::from(matrix[i * n + j]) * x[j * n + c]);
            x[i * n + c] = f64::from(u8::from(i == c)) - terms.sum::<f64>();
        }
        x
    }

    #[test]
    fn inverses_match_the_formula() {
        let mut random = Random::new(8);
        for n in [0, 1, 2, 3, 8, 16, 20, 33, 64, 65, 100, 128] {
            let scale = 1.0 / (n as f32).sqrt().max(1.0);
            let mut matrix = random.floats(n * n);
            matrix.iter_mut().for_each(|x| *x *= scale);
            // What is not below the diagonal does not count.
            (0..n).for_each(|i| matrix[i * n + i..(i + 1) * n].fill(f32::NAN));
            let want = reference(&matrix, n);
            for isa in Isa::available() {
                let mut out = vec![f32::NAN; n * n];
                let (matrix, out) = (&matrix[..], &mut out[..]);
                isa.run(UnitLowerInverse { matrix, n, out });
                let near = out.iter().zip(&want).all(|(x, w)| close(*x, *w, n));
                assert!(near, "{} {n}", isa.name());
            }
        }
    }

    #[test]
    fn zeros_stay_above_the_diagonal() {
        let mut out = [f32::NAN; 9];
        let large = [0.0, 0.0, 0.0, f32::INFINITY, 0.0, 0.0, 2.0, 3.0, 0.0];
        unit_lower_inverse(&large, 3, &mut out);
        assert_eq!(
            [out[0], out[1], out[2], out[4], out[5]],
            [1.0, 0.0, 0.0, 1.0, 0.0]
        );
        assert_eq!([out[3], out[7], out[8]], [f32::NEG_INFINITY, -3.0, 1.0]);
    }
}
