//! `add`: elementwise sum of two tensors of one shape.

use super::family::{Align, binary_op, by_class};
use crate::tensor::Scalar;

/// The sum of two elements. Integers wrap, complex numbers add by part.
pub fn add(x: Scalar, y: Scalar) -> Scalar {
    match (x, y) {
        (Scalar::Complex(a, b), Scalar::Complex(c, d)) => Scalar::Complex(a + c, b + d),
        _ => by_class(x, y, |x, y| x + y, i128::wrapping_add),
    }
}

binary_op! {
    /// `a + b`. Integers wrap.
    Add, "add", "elementwise sum of two tensors of one shape", Align::Same, add, |a, b| Some(a.add(b))
}
