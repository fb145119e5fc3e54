//! `bitwise_and`: bitwise and.

use super::family::{Align, binary_op};
use crate::tensor::Scalar;

/// Bitwise and of two integers or bools, in two's complement.
pub fn bitwise_and(x: Scalar, y: Scalar) -> Scalar {
    Scalar::Int(x.int() & y.int())
}

binary_op! {
    /// Bitwise and, elementwise, of two tensors of one shape.
    BitwiseAnd, "bitwise_and", "bitwise and", Align::Same, bitwise_and, |_, _| None, None, [I32, U8, I16, Bool]
}
