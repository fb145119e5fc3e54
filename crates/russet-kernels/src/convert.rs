//! Between storage types: widen, narrow, and round in place.

use crate::elem::{Elem, Rounding};
use crate::isa::Isa;
use crate::simd::{Kernel, Simd, pieces};

struct Convert<'a, A, B>(&'a [A], &'a mut [B]);

impl<A: Elem, B: Elem> Kernel for Convert<'_, A, B> {
    type Out = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self(x, out) = self;
        for (i, len) in pieces(x.len(), S::LANES) {
            B::store_part(s, A::load_part(s, &x[i..], len), &mut out[i..], len);
        }
    }
}

/// Converts `x` into `out`, rounding to nearest even (NaN stays NaN, overflow gives infinity).
///
/// # Panics
/// If the lengths differ.
pub fn convert<A: Elem, B: Elem>(x: &[A], out: &mut [B]) {
    convert_on(Isa::best(), x, out);
}

fn convert_on<A: Elem, B: Elem>(isa: Isa, x: &[A], out: &mut [B]) {
    assert_eq!(x.len(), out.len(), "convert: lengths");
    isa.run(Convert(x, out));
}

struct Round<'a>(&'a mut [f32], Rounding);

impl Kernel for Round<'_> {
    type Out = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self(x, rounding) = self;
        for (i, len) in pieces(x.len(), S::LANES) {
            let v = f32::load_part(s, &x[i..], len);
            f32::store_part(s, rounding.apply(s, v), &mut x[i..], len);
        }
    }
}

/// Rounds each value of `x` to the precision of another type, kept as f32.
pub fn round(x: &mut [f32], rounding: Rounding) {
    if rounding != Rounding::F32 {
        Isa::best().run(Round(x, rounding));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::{bf16, f16};

    /// Values around every boundary of both small types, all f16 bit patterns, and lengths with every tail.
    fn samples() -> Vec<f32> {
        let mut x: Vec<f32> = (0..=u16::MAX)
            .map(|b| f16::from_bits(b).to_f32_const())
            .collect();
        x.extend(
            (0..=u16::MAX)
                .step_by(7)
                .map(|b| bf16::from_bits(b).to_f32_const() * 1.003),
        );
        x.extend((0..2000).map(|i| f32::from_bits(0x3800_0000 + i * 0x0aa5)));
        x.extend([
            65_519.9,
            65_520.0,
            1e-8,
            5.96e-8,
            2.98e-8,
            2.980_232_4e-8,
            f32::MAX,
            f32::MIN_POSITIVE,
            1e-45,
        ]);
        x.extend([
            f32::from_bits(0x7f80_0001),
            f32::from_bits(0xffc0_1234),
            f32::INFINITY,
            -0.0,
        ]);
        x
    }

    fn same(a: f32, b: f32) -> bool {
        a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan()
    }

    fn check<T: Elem>(reference: impl Fn(f32) -> T) {
        let x = samples();
        for isa in Isa::available() {
            let mut narrow = vec![T::ZERO; x.len()];
            convert_on(*isa, &x, &mut narrow);
            let mut wide = vec![0.0; x.len()];
            convert_on(*isa, &narrow, &mut wide);
            let mut rounded = x.clone();
            isa.run(Round(&mut rounded, T::ROUNDING));
            for i in 0..x.len() {
                let want = reference(x[i]).to_f32();
                assert!(
                    same(wide[i], want),
                    "{}: {} -> {}, want {want}",
                    isa.name(),
                    x[i],
                    wide[i]
                );
                assert!(
                    same(rounded[i], want),
                    "{}: {} -> {}, want {want}",
                    isa.name(),
                    x[i],
                    rounded[i]
                );
            }
        }
    }

    #[test]
    fn f16_is_round_to_nearest_even() {
        check(f16::from_f32_const);
    }

    #[test]
    fn bf16_is_round_to_nearest_even() {
        check(bf16::from_f32_const);
    }

    #[test]
    fn tails_of_every_length() {
        for isa in Isa::available() {
            for n in 0..40 {
                let x: Vec<f32> = (0..n).map(|i| i as f32).collect();
                let mut out = vec![f16::NAN; n];
                convert_on(*isa, &x, &mut out);
                assert!(
                    out.iter().zip(&x).all(|(a, b)| a.to_f32() == *b),
                    "{} {n}",
                    isa.name()
                );
            }
        }
    }
}
