//! Small stored numbers as they are: floats of 32 and 16 bits, integers and floats of 1 to 8 bits. Tables, scales, zero points and
//! shifts come in any of them.

use half::f16;

use super::Floats;
use crate::elem::Elem;
use crate::simd::codes::code;
use crate::simd::{Simd, pieces};

/// What a code of up to 8 bits stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// A number from zero up.
    Unsigned,
    /// A number in two's complement.
    Signed,
    /// A float of 1 sign, 2 exponent and 1 mantissa bits (OCP E2M1), of 4 bits.
    E2M1,
    /// A float of 1 sign, 4 exponent and 3 mantissa bits without infinities (OCP E4M3FN), of 8 bits.
    E4M3,
    /// A float of 1 sign, 5 exponent and 2 mantissa bits, of 8 bits.
    E5M2,
    /// A power of two with a bias of 127 (OCP E8M0), of 8 bits.
    E8M0,
}

impl Meaning {
    /// The number that a code of `bits` bits stands for.
    pub fn value(self, code: u8, bits: usize) -> f32 {
        match self {
            Meaning::Unsigned => code.into(),
            Meaning::Signed => ((code << (8 - bits)).cast_signed() >> (8 - bits)).into(),
            Meaning::E2M1 => {
                let magnitude = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0][usize::from(code & 7)];
                if code & 8 == 0 { magnitude } else { -magnitude }
            }
            Meaning::E4M3 => half_of_e4m3(code).to_f32() * E4M3_REBIAS,
            Meaning::E5M2 => half_of_e5m2(code).to_f32(),
            Meaning::E8M0 if code == 255 => f32::NAN,
            Meaning::E8M0 if code == 0 => f32::from_bits(1 << 22),
            Meaning::E8M0 => f32::from_bits(u32::from(code) << 23),
        }
    }
}

/// An E4M3 has seven less as the bias of its exponent than half precision, and one bit less: as half precision it is too small by this.
const E4M3_REBIAS: f32 = 256.0;

#[inline(always)]
fn half_of_e4m3(code: u8) -> f16 {
    let (sign, rest) = (u16::from(code & 128) << 8, u16::from(code & 127) << 7);
    f16::from_bits(sign | if code & 127 == 127 { 0x7e00 } else { rest })
}

#[inline(always)]
fn half_of_e5m2(code: u8) -> f16 {
    f16::from_bits(u16::from(code) << 8)
}

/// Codes `first..first + LANES` of sixteen of 8 bits as numbers.
#[inline(always)]
pub(super) fn bytes_as<S: Simd>(s: S, meaning: Meaning, bytes: &[u8; 16], first: usize) -> S::V {
    let lanes = &bytes[first..first + S::LANES];
    let mut halves = [f16::ZERO; 16];
    match meaning {
        Meaning::Signed => return s.load_i8(lanes),
        Meaning::E4M3 | Meaning::E5M2 => {}
        _ => return s.load_u8(lanes),
    }
    // A loop and no closure: that would be compiled for the baseline.
    let mut i = 0;
    while i < S::LANES {
        halves[i] = if meaning == Meaning::E4M3 {
            half_of_e4m3(lanes[i])
        } else {
            half_of_e5m2(lanes[i])
        };
        i += 1;
    }
    let v = s.load_f16(&halves);
    if meaning == Meaning::E4M3 {
        s.mul(v, s.splat(E4M3_REBIAS))
    } else {
        v
    }
}

/// A borrowed vector of stored numbers.
#[derive(Clone, Copy, Debug)]
pub enum Elements<'a> {
    /// Floats of 16 or 32 bits.
    Floats(Floats<'a>),
    /// Codes of some bits, from the lowest bit of every byte up, without gaps.
    Codes(Meaning, usize, &'a [u8]),
}

impl Elements<'_> {
    /// Elements, at least: codes fill their last byte.
    pub fn len(&self) -> usize {
        match self {
            Elements::Floats(x) => x.len(),
            Elements::Codes(_, bits, data) => data.len().saturating_mul(8) / (*bits).max(1),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Element `i`.
    pub(super) fn get(&self, i: usize) -> f32 {
        match self {
            Elements::Floats(x) => x.get(i),
            Elements::Codes(meaning, bits, data) => meaning.value(code(data, *bits, i), *bits),
        }
    }

    /// Every `step`th element from `first` on.
    #[inline(always)]
    pub(super) fn read<S: Simd>(&self, s: S, first: usize, step: usize, out: &mut [f32]) {
        match self {
            Elements::Floats(Floats::F32(x)) if step == 1 => widen(s, &x[first..], out),
            Elements::Floats(Floats::F16(x)) if step == 1 => widen(s, &x[first..], out),
            Elements::Floats(Floats::Bf16(x)) if step == 1 => widen(s, &x[first..], out),
            _ => {
                for (i, out) in out.iter_mut().enumerate() {
                    *out = self.get(first + i * step);
                }
            }
        }
    }
}

#[inline(always)]
fn widen<S: Simd, T: Elem>(s: S, x: &[T], out: &mut [f32]) {
    for (i, len) in pieces(out.len(), S::LANES) {
        f32::store_part(s, T::load_part(s, &x[i..], len), &mut out[i..], len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::Isa;
    use crate::simd::Kernel;

    /// OCP's definition: sign, exponent and mantissa, without a hidden bit where the exponent is zero.
    fn small_float(code: u8, mantissa: u32, bias: i32) -> f32 {
        let sign = if code & 128 == 0 { 1.0 } else { -1.0 };
        let (exponent, fraction) = (
            i32::from((code & 127) >> mantissa),
            code & ((1 << mantissa) - 1),
        );
        let unit = f32::from(fraction) / 2_f32.powi(mantissa as i32);
        sign * if exponent == 0 {
            unit * 2_f32.powi(1 - bias)
        } else {
            (1.0 + unit) * 2_f32.powi(exponent - bias)
        }
    }

    struct All(Meaning, [u8; 16]);

    impl Kernel for All {
        type Out = Vec<f32>;
        #[inline(always)]
        fn run<S: Simd>(self, s: S) -> Vec<f32> {
            let mut out = vec![0.0; 16];
            let mut first = 0;
            while first < 16 {
                s.store(bytes_as(s, self.0, &self.1, first), &mut out[first..]);
                first += S::LANES;
            }
            out
        }
    }

    #[test]
    fn floats_of_eight_bits_are_those_of_the_specification() {
        for code in 0..=255_u8 {
            let e4m3 = if code & 127 == 127 {
                f32::NAN
            } else {
                small_float(code, 3, 7)
            };
            let e5m2 = match code & 127 {
                124 => f32::INFINITY.copysign(if code > 127 { -1.0 } else { 1.0 }),
                125.. => f32::NAN,
                _ => small_float(code, 2, 15),
            };
            for (meaning, want) in [(Meaning::E4M3, e4m3), (Meaning::E5M2, e5m2)] {
                for isa in Isa::available() {
                    let got = isa.run(All(meaning, [code; 16]));
                    let same = |v: f32| v == want || v.is_nan() && want.is_nan();
                    assert!(
                        got.into_iter().all(same),
                        "{} {meaning:?} {code}",
                        isa.name()
                    );
                }
                let got = meaning.value(code, 8);
                assert!(
                    got == want || got.is_nan() && want.is_nan(),
                    "{meaning:?} {code}"
                );
            }
        }
    }

    #[test]
    fn codes_have_their_meaning() {
        assert_eq!(Meaning::Signed.value(3, 2), -1.0);
        assert_eq!(Meaning::Signed.value(31, 6), 31.0);
        assert_eq!(Meaning::Unsigned.value(7, 3), 7.0);
        assert_eq!(Meaning::E2M1.value(15, 4), -6.0);
        assert_eq!(Meaning::E8M0.value(128, 8), 2.0);
        assert_eq!(Meaning::E8M0.value(0, 8), 2_f32.powi(-127));
        assert!(Meaning::E8M0.value(255, 8).is_nan());
        let three = Elements::Codes(Meaning::Unsigned, 3, &[0b1000_1000, 0b1100_0110, 0b1]);
        let got: Vec<f32> = (0..6).map(|i| three.get(i)).collect();
        assert_eq!(got, [0.0, 1.0, 2.0, 3.0, 4.0, 3.0]);
    }
}
