//! `bitwise_xor`: bitwise exclusive or.

use super::family::{Align, binary_op};
use crate::tensor::Scalar;

/// Bitwise exclusive or of two integers or bools, in two's complement.
pub fn bitwise_xor(x: Scalar, y: Scalar) -> Scalar {
    Scalar::Int(x.int() ^ y.int())
}

binary_op! {
    /// Bitwise exclusive or, elementwise, of two tensors of one shape.
    BitwiseXor, "bitwise_xor", "bitwise exclusive or", Align::Same, bitwise_xor, |_, _| None, None, [I32, U8, I16, Bool]
}
