//! `broadcasting_and`: whether both hold, with broadcasting.

use super::family::{Align, binary_op};

binary_op! {
    /// Whether both hold, elementwise, after broadcasting (NumPy's rule).
    BroadcastingAnd, "broadcasting_and", "whether both hold, with broadcasting", Align::Broadcast, super::and::and, |_, _| None, None, [Bool]
}
