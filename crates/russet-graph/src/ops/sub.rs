//! `sub`: difference.

use super::family::{Align, binary_op, by_class};
use crate::tensor::Scalar;

/// Difference, of two elements.
pub fn sub(x: Scalar, y: Scalar) -> Scalar {
    match (x, y) {
        (Scalar::Complex(a, b), Scalar::Complex(c, d)) => Scalar::Complex(a - c, b - d),
        _ => by_class(x, y, |x, y| x - y, i128::wrapping_sub),
    }
}

binary_op! {
    /// Difference, elementwise, of two tensors of one shape.
    Sub, "sub", "difference", Align::Same, sub, |a, b| Some(a.sub(b))
}
