//! `and`: whether both hold.

use super::family::{Align, binary_op};
use crate::tensor::Scalar;

/// Whether both hold, of two elements.
pub fn and(x: Scalar, y: Scalar) -> Scalar {
    Scalar::Bool(x.bool() && y.bool())
}

binary_op! {
    /// Whether both hold, elementwise, of two tensors of one shape.
    And, "and", "whether both hold", Align::Same, and, |_, _| None, None, [Bool]
}
