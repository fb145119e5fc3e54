//! `floor_divide`: quotient rounded towards minus infinity.

use super::family::{Align, binary_op, by_class};
use crate::tensor::Scalar;
use crate::types::Dim;

/// The quotient of two elements, rounded towards minus infinity. An infinite dividend gives NaN unless the
/// divisor is 0. Integers wrap, and give 0 where the divisor is 0.
pub fn floor_divide(x: Scalar, y: Scalar) -> Scalar {
    by_class(x, y, floor, |x, y| match x.checked_rem(y) {
        None => 0,
        Some(rest) => x / y - i128::from(rest != 0 && (rest < 0) != (y < 0)),
    })
}

binary_op! {
    /// Quotient rounded towards minus infinity, elementwise, of two tensors of one shape.
    FloorDivide, "floor_divide", "quotient rounded towards minus infinity", Align::Same, floor_divide, fold, None, [F32, F16, BF16, I32, I8, U8]
}

/// As the reference runtime has it: `(x - x mod y) / y`, which is NaN for an infinite `x`.
fn floor(x: f64, y: f64) -> f64 {
    if x.is_infinite() && y.is_finite() && y != 0.0 {
        f64::NAN
    } else {
        (x / y).floor()
    }
}

/// The quotient of two followed contents.
pub fn fold(a: &Dim, b: &Dim) -> Option<Dim> {
    (b.as_const() != Some(0)).then(|| a.div(b))
}
