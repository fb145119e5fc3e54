//! `pow`: power.

use super::family::{Align, binary_op, by_class};
use crate::tensor::Scalar;

/// `x` to the power `y`. Integers wrap; a negative exponent gives 0, of one as well.
pub fn pow(x: Scalar, y: Scalar) -> Scalar {
    by_class(x, y, f64::powf, power)
}

binary_op! {
    /// Power, elementwise, of two tensors of one shape.
    Pow, "pow", "power", Align::Same, pow, |_, _| None, None, [F32, F16, BF16, I32, I8, U8]
}

/// Modulo 2¹²⁸, so that the low bits are right in any kind.
fn power(base: i128, exponent: i128) -> i128 {
    u32::try_from(exponent).map_or(0, |e| base.wrapping_pow(e))
}
