//! Products of two plain matrices, for what is not a weight: the executor's general batched product.

use crate::elem::{Elem, Rounding};
use crate::linear::linear;
use crate::quant::DenseRows;
use crate::scratch;
use crate::threads::Pool;

/// How the right operand lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// [k, n].
    Plain,
    /// [n, k]: already transposed.
    Transposed,
}

/// out [m, n] = a [m, k] times b, all row-major; sums in f32, rounded once.
///
/// # Panics
/// If the lengths do not fit.
pub fn matmul<T: Elem>(
    pool: &Pool,
    a: &[T],
    (b, right): (&[T], Right),
    (m, k, n): (usize, usize, usize),
    out: &mut [T],
) {
    let size = |x: usize, y: usize| x.checked_mul(y);
    let fits =
        Some(a.len()) == size(m, k) && Some(b.len()) == size(k, n) && Some(out.len()) == size(m, n);
    assert!(fits, "matmul: lengths");
    if k == 0 {
        return out.fill(T::ZERO);
    }
    match right {
        Right::Transposed => product(pool, a, b, (m, k), out),
        Right::Plain => {
            let rows = &mut *scratch::floats(n * k);
            transpose(b, n, rows);
            product(pool, a, rows, (m, k), out);
        }
    }
}

fn product<T: Elem, B: Elem>(
    pool: &Pool,
    a: &[T],
    rows: &[B],
    (m, k): (usize, usize),
    out: &mut [T],
) {
    if let Some(rows) = DenseRows::new(rows, k, Rounding::F32) {
        linear(pool, a, &rows, out, m);
    }
}

/// Widens b [k, n] into rows [n, k], a strip of rows of b at a time so that both sides stay in the cache.
fn transpose<T: Elem>(b: &[T], n: usize, rows: &mut [f32]) {
    const STRIP: usize = 16;
    let k = rows.len().checked_div(n).unwrap_or(0);
    for (strip, b) in b.chunks(STRIP * n.max(1)).enumerate() {
        for (column, row) in rows.chunks_exact_mut(k).enumerate() {
            for (i, value) in row[strip * STRIP..]
                .iter_mut()
                .take(b.len() / n)
                .enumerate()
            {
                *value = b[i * n + column].to_f32();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Random, close};
    use half::f16;

    #[test]
    fn both_layouts_match_f64() {
        let (pool, mut random) = (Pool::new(2), Random::new(13));
        for (m, k, n) in [
            (1, 1, 1),
            (1, 40, 7),
            (5, 17, 33),
            (20, 100, 50),
            (3, 0, 4),
            (0, 3, 4),
            (2, 3, 0),
        ] {
            let (a, b) = (random.floats(m * k), random.floats(k * n));
            let turned: Vec<f32> = (0..n * k).map(|i| b[i % k * n + i / k]).collect();
            for (b, right) in [(&b, Right::Plain), (&turned, Right::Transposed)] {
                let mut out = vec![f32::NAN; m * n];
                matmul(&pool, &a, (b, right), (m, k, n), &mut out);
                for (i, got) in out.iter().enumerate() {
                    let at = |c: usize| {
                        if right == Right::Plain {
                            b[c * n + i % n]
                        } else {
                            b[i % n * k + c]
                        }
                    };
                    let want = (0..k)
                        .map(|c| f64::from(a[i / n * k + c]) * f64::from(at(c)))
                        .sum();
                    assert!(close(*got, want, 10 * k), "{m} {k} {n}: {got} {want}");
                }
            }
        }
    }

    #[test]
    fn results_are_rounded_once() {
        let h = f16::from_f32;
        let mut out = [f16::ZERO];
        let (a, b) = ([h(2048.0), h(1.0), h(1.0)], [h(1.0); 3]);
        matmul(&Pool::new(1), &a, (&b, Right::Plain), (1, 3, 1), &mut out);
        assert_eq!(out[0], h(2050.0), "2048 + 1 alone would round away");
    }
}
