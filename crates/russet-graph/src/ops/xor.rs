//! `xor`: whether exactly one holds.

use super::family::{Align, binary_op};
use crate::tensor::Scalar;

/// Whether exactly one holds, of two elements.
pub fn xor(x: Scalar, y: Scalar) -> Scalar {
    Scalar::Bool(x.bool() != y.bool())
}

binary_op! {
    /// Whether exactly one holds, elementwise, of two tensors of one shape.
    Xor, "xor", "whether exactly one holds", Align::Same, xor, |_, _| None, None, [Bool]
}
