//! `broadcasting_xor`: whether exactly one holds, with broadcasting.

use super::family::{Align, binary_op};

binary_op! {
    /// Whether exactly one holds, elementwise, after broadcasting (NumPy's rule).
    BroadcastingXor, "broadcasting_xor", "whether exactly one holds, with broadcasting", Align::Broadcast, super::xor::xor, |_, _| None, None, [Bool]
}
