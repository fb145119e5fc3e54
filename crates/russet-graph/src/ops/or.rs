//! `or`: whether one holds.

use super::family::{Align, binary_op};
use crate::tensor::Scalar;

/// Whether one holds, of two elements.
pub fn or(x: Scalar, y: Scalar) -> Scalar {
    Scalar::Bool(x.bool() || y.bool())
}

binary_op! {
    /// Whether one holds, elementwise, of two tensors of one shape.
    Or, "or", "whether one holds", Align::Same, or, |_, _| None, None, [Bool]
}
