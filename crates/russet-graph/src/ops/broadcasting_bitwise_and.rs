//! `broadcasting_bitwise_and`: bitwise and, with broadcasting.

use super::family::{Align, binary_op};

binary_op! {
    /// Bitwise and, elementwise, after broadcasting (NumPy's rule).
    BroadcastingBitwiseAnd, "broadcasting_bitwise_and", "bitwise and, with broadcasting", Align::Broadcast, super::bitwise_and::bitwise_and, |_, _| None, None, [I32, U8, I16, Bool]
}
