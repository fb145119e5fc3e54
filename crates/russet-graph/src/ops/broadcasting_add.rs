//! `broadcasting_add`: elementwise sum with broadcasting.

use super::family::{Align, binary_op};

binary_op! {
    /// `a + b` after broadcasting (NumPy's rule). Integers wrap.
    BroadcastingAdd, "broadcasting_add", "elementwise sum with broadcasting", Align::Broadcast,
    super::add::add, |a, b| Some(a.add(b))
}
