//! `broadcasting_sub`: difference, with broadcasting.

use super::family::{Align, binary_op};

binary_op! {
    /// Difference, elementwise, after broadcasting (NumPy's rule).
    BroadcastingSub, "broadcasting_sub", "difference, with broadcasting", Align::Broadcast, super::sub::sub, |a, b| Some(a.sub(b))
}
