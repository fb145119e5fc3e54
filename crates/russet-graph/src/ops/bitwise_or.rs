//! `bitwise_or`: bitwise or.

use super::family::{Align, binary_op};
use crate::tensor::Scalar;

/// Bitwise or of two integers or bools, in two's complement.
pub fn bitwise_or(x: Scalar, y: Scalar) -> Scalar {
    Scalar::Int(x.int() | y.int())
}

binary_op! {
    /// Bitwise or, elementwise, of two tensors of one shape.
    BitwiseOr, "bitwise_or", "bitwise or", Align::Same, bitwise_or, |_, _| None, None, [I32, U8, I16, Bool]
}
