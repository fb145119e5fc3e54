//! Rotary position embedding, with the roundings of the operation's decomposed form.
//!
//! A pair (a, b) at angle t becomes (a cos t - b sin t, a sin t + b cos t). Each product is rounded to the storage type, then the sum.

use crate::elem::Elem;
use crate::isa::Isa;
use crate::simd::{Kernel, Simd, pieces};

/// Which elements of a row are pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pairs {
    /// Element i with element i + half: the two halves of the rotated part.
    Halves,
    /// Element 2i with element 2i + 1.
    Interleaved,
}

/// Rotates one row: the first 2 * cos.len() elements of `x`; the others are copied.
///
/// # Panics
/// If the lengths do not fit.
pub fn rotate_row<T: Elem>(pairs: Pairs, x: &[T], cos: &[T], sin: &[T], out: &mut [T]) {
    assert!(
        x.len() == out.len() && cos.len() == sin.len() && 2 * cos.len() <= x.len(),
        "rope: lengths"
    );
    let rotated = 2 * cos.len();
    out[rotated..].copy_from_slice(&x[rotated..]);
    let (x, out) = (&x[..rotated], &mut out[..rotated]);
    match pairs {
        Pairs::Halves => {
            let half = cos.len();
            let (low, high) = out.split_at_mut(half);
            Isa::best().run(Halves {
                a: &x[..half],
                b: &x[half..],
                cos,
                sin,
                low,
                high,
            });
        }
        Pairs::Interleaved => interleaved(x, cos, sin, out),
    }
}

/// Rotates rows of `d` elements: row i by row i mod (rows of the tables), so that heads laid out [heads, m, d] share
/// tables [m, half].
///
/// # Panics
/// If the lengths do not fit.
pub fn rotate_rows<T: Elem>(
    pairs: Pairs,
    (x, d): (&[T], usize),
    (cos, sin, half): (&[T], &[T], usize),
    out: &mut [T],
) {
    assert!(
        x.len() == out.len() && d > 0 && x.len().is_multiple_of(d),
        "rope: rows"
    );
    if half == 0 || x.is_empty() {
        return out.copy_from_slice(x);
    }
    let tables = cos.chunks_exact(half).zip(sin.chunks_exact(half)).cycle();
    for ((x, out), (cos, sin)) in x.chunks_exact(d).zip(out.chunks_exact_mut(d)).zip(tables) {
        rotate_row(pairs, x, cos, sin, out);
    }
}

struct Halves<'a, T> {
    a: &'a [T],
    b: &'a [T],
    cos: &'a [T],
    sin: &'a [T],
    low: &'a mut [T],
    high: &'a mut [T],
}

impl<T: Elem> Kernel for Halves<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for (i, len) in pieces(self.a.len(), S::LANES) {
            let load = |x: &[T]| T::load_part(s, &x[i..], len);
            let (a, b, cos, sin) = (load(self.a), load(self.b), load(self.cos), load(self.sin));
            let low = s.sub(T::round(s, s.mul(cos, a)), T::round(s, s.mul(sin, b)));
            let high = s.add(T::round(s, s.mul(sin, a)), T::round(s, s.mul(cos, b)));
            T::store_part(s, low, &mut self.low[i..], len);
            T::store_part(s, high, &mut self.high[i..], len);
        }
    }
}

fn interleaved<T: Elem>(x: &[T], cos: &[T], sin: &[T], out: &mut [T]) {
    let product = |a: T, b: T| T::ROUNDING.scalar(a.to_f32() * b.to_f32());
    for (((x, out), cos), sin) in x
        .chunks_exact(2)
        .zip(out.chunks_exact_mut(2))
        .zip(cos)
        .zip(sin)
    {
        out[0] = T::from_f32(product(*cos, x[0]) - product(*sin, x[1]));
        out[1] = T::from_f32(product(*sin, x[0]) + product(*cos, x[1]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;
    use half::f16;

    #[test]
    fn halves_and_pairs_are_the_same_rotation() {
        let mut random = Random::new(10);
        let mut half =
            |n| -> Vec<f16> { random.floats(n).into_iter().map(f16::from_f32).collect() };
        for n in [1, 4, 15, 16, 17, 32, 50] {
            let (x, cos, sin) = (half(2 * n + 3), half(n), half(n));
            let mut halves = vec![f16::ZERO; 2 * n + 3];
            for isa in Isa::available() {
                let (low, high) = halves[..2 * n].split_at_mut(n);
                isa.run(Halves {
                    a: &x[..n],
                    b: &x[n..2 * n],
                    cos: &cos,
                    sin: &sin,
                    low,
                    high,
                });
                let paired: Vec<f16> = (0..2 * n).map(|i| x[i / 2 + n * (i % 2)]).collect();
                let mut pairs = vec![f16::ZERO; 2 * n];
                rotate_row(Pairs::Interleaved, &paired, &cos, &sin, &mut pairs);
                for i in 0..n {
                    assert_eq!(
                        (halves[i], halves[n + i]),
                        (pairs[2 * i], pairs[2 * i + 1]),
                        "{}",
                        isa.name()
                    );
                }
            }
            rotate_row(Pairs::Halves, &x, &cos, &sin, &mut halves);
            assert_eq!(halves[2 * n..], x[2 * n..]);
        }
    }

    #[test]
    fn products_are_rounded_before_the_sum() {
        let h = f16::from_f32;
        let (x, cos, sin) = ([h(1.001), h(0.333)], [h(0.877)], [h(0.4805)]);
        let mut out = [f16::ZERO; 2];
        rotate_row(Pairs::Halves, &x, &cos, &sin, &mut out);
        assert_eq!(out[0], cos[0] * x[0] - sin[0] * x[1]);
        assert_eq!(out[1], sin[0] * x[0] + cos[0] * x[1]);
    }

    #[test]
    fn rows_share_the_tables() {
        let x: Vec<f32> = (0..24).map(|i| i as f32).collect();
        let (cos, sin) = ([1.0, 0.0], [0.0, 1.0]);
        let mut out = vec![0.0; 24];
        rotate_rows(Pairs::Halves, (&x, 4), (&cos, &sin, 1), &mut out);
        assert_eq!(out[..8], [0.0, 1.0, 2.0, 3.0, -5.0, 4.0, 6.0, 7.0]);
        assert_eq!(out[20..], [-21.0, 20.0, 22.0, 23.0]);
    }
}
