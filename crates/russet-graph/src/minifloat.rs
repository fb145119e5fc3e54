//! Floats of eight and four bits (OCP Microscaling formats, version 1.0, and FP8 formats for deep learning).

use crate::types::DType;

struct Layout {
    exponent: u32,
    mantissa: u32,
    bias: i32,
}

fn layout(dtype: DType) -> Layout {
    match dtype {
        DType::F8E4M3 => Layout {
            exponent: 4,
            mantissa: 3,
            bias: 7,
        },
        DType::F8E5M2 => Layout {
            exponent: 5,
            mantissa: 2,
            bias: 15,
        },
        _ => Layout {
            exponent: 2,
            mantissa: 1,
            bias: 1,
        },
    }
}

/// The value of the bits of an `f8*` or `f4*` element.
pub(crate) fn decode(dtype: DType, bits: u8) -> f64 {
    if dtype == DType::F8E8M0 {
        return if bits == 0xff {
            f64::NAN
        } else {
            2f64.powi(i32::from(bits) - 127)
        };
    }
    let l = layout(dtype);
    let sign = if bits >> (l.exponent + l.mantissa) & 1 == 1 {
        -1.0
    } else {
        1.0
    };
    let exponent = i32::from(bits >> l.mantissa & ((1 << l.exponent) - 1));
    let mantissa = f64::from(bits & ((1 << l.mantissa) - 1)) / f64::from(1 << l.mantissa);
    let top = exponent == (1 << l.exponent) - 1;
    match dtype {
        DType::F8E5M2 if top && mantissa == 0.0 => sign * f64::INFINITY,
        DType::F8E5M2 if top => f64::NAN,
        DType::F8E4M3 if bits & 0x7f == 0x7f => f64::NAN,
        _ if exponent == 0 => sign * mantissa * 2f64.powi(1 - l.bias),
        _ => sign * (1.0 + mantissa) * 2f64.powi(exponent - l.bias),
    }
}

/// The bits of the nearest element, ties to even. Values beyond the range become NaN (`f8e4m3`), infinity (`f8e5m2`) or the
/// largest element (`f4e2m1`); `f8e8m0` rounds up to the next power of two at the geometric half.
pub(crate) fn encode(dtype: DType, value: f64) -> u8 {
    if dtype == DType::F8E8M0 {
        return if value.is_nan() {
            0xff
        } else {
            (value.abs().log2().round().clamp(-127.0, 127.0) + 127.0) as u8
        };
    }
    let l = layout(dtype);
    let sign = u8::from(value.is_sign_negative()) << (l.exponent + l.mantissa);
    let magnitudes = 1u8 << (l.exponent + l.mantissa);
    if value.is_nan() {
        return match dtype {
            DType::F8E4M3 => sign | 0x7f,
            DType::F8E5M2 => sign | 0x7e,
            _ => sign,
        };
    }
    let finite = (0..magnitudes)
        .take_while(|&m| decode(dtype, m).is_finite())
        .count() as u8;
    let largest = decode(dtype, finite - 1);
    let step = largest - decode(dtype, finite - 2);
    if value.abs() >= largest + step / 2.0 {
        return sign
            | match dtype {
                DType::F8E4M3 => 0x7f,
                DType::F8E5M2 => 0x7c,
                _ => finite - 1,
            };
    }
    sign | nearest(dtype, value.abs(), finite)
}

fn nearest(dtype: DType, value: f64, finite: u8) -> u8 {
    let above = (0..finite)
        .find(|&m| decode(dtype, m) >= value)
        .unwrap_or(finite - 1);
    if above == 0 {
        return 0;
    }
    let (low, high) = (
        value - decode(dtype, above - 1),
        decode(dtype, above) - value,
    );
    if low < high || (low == high && (above - 1) % 2 == 0) {
        above - 1
    } else {
        above
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_survives_a_round_trip() {
        for (dtype, patterns) in [
            (DType::F8E4M3, 256u16),
            (DType::F8E5M2, 256),
            (DType::F4E2M1, 16),
            (DType::F8E8M0, 255),
        ] {
            for bits in 0..patterns {
                let bits = bits as u8;
                let value = decode(dtype, bits);
                if !value.is_nan() {
                    assert_eq!(encode(dtype, value), bits, "{dtype} {bits:#x} {value}");
                }
            }
        }
    }

    #[test]
    fn known_values() {
        assert_eq!(decode(DType::F8E4M3, 0x7e), 448.0);
        assert_eq!(decode(DType::F8E5M2, 0x7b), 57344.0);
        assert_eq!(decode(DType::F4E2M1, 0x7), 6.0);
        assert_eq!(encode(DType::F4E2M1, 100.0), 0x7);
        assert_eq!(encode(DType::F4E2M1, 2.5), 0x4);
        assert!(decode(DType::F8E4M3, encode(DType::F8E4M3, 1e9)).is_nan());
    }
}
