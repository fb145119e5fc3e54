//! `broadcasting_or`: whether one holds, with broadcasting.

use super::family::{Align, binary_op};

binary_op! {
    /// Whether one holds, elementwise, after broadcasting (NumPy's rule).
    BroadcastingOr, "broadcasting_or", "whether one holds, with broadcasting", Align::Broadcast, super::or::or, |_, _| None, None, [Bool]
}
