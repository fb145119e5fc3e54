//! `broadcasting_bitwise_xor`: bitwise exclusive or, with broadcasting.

use super::family::{Align, binary_op};

binary_op! {
    /// Bitwise exclusive or, elementwise, after broadcasting (NumPy's rule).
    BroadcastingBitwiseXor, "broadcasting_bitwise_xor", "bitwise exclusive or, with broadcasting", Align::Broadcast, super::bitwise_xor::bitwise_xor, |_, _| None, None, [I32, U8, I16, Bool]
}
