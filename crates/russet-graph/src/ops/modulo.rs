//! `modulo`: remainder of the truncated division.

use super::family::{Align, binary_op, by_class};
use crate::tensor::Scalar;
use crate::types::Dim;

/// `x - trunc(x / y) * y`: the remainder of two elements, with the sign of the dividend. Integers give 0 where the divisor is 0.
pub fn modulo(x: Scalar, y: Scalar) -> Scalar {
    by_class(x, y, |x, y| x % y, |x, y| x.checked_rem(y).unwrap_or(0))
}

binary_op! {
    /// Remainder of the truncated division, elementwise, of two tensors of one shape.
    Modulo, "modulo", "remainder of the truncated division", Align::Same, modulo, fold, None, [F32, F16, BF16, I32, I8, U8]
}

/// The remainder of two followed contents: what the truncated quotient leaves.
pub fn fold(a: &Dim, b: &Dim) -> Option<Dim> {
    match (a.as_const(), b.as_const()) {
        (Some(a), Some(b)) => a.checked_rem(b).map(Dim::Const),
        (_, Some(0)) => None,
        _ if a.is_never_negative() && b.is_never_negative() => Some(a.rem(b)),
        _ => super::divide::fold(a, b).map(|quotient| a.sub(&quotient.mul(b))),
    }
}
