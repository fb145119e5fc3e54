//! `broadcasting_bitwise_or`: bitwise or, with broadcasting.

use super::family::{Align, binary_op};

binary_op! {
    /// Bitwise or, elementwise, after broadcasting (NumPy's rule).
    BroadcastingBitwiseOr, "broadcasting_bitwise_or", "bitwise or, with broadcasting", Align::Broadcast, super::bitwise_or::bitwise_or, |_, _| None, None, [I32, U8, I16, Bool]
}
