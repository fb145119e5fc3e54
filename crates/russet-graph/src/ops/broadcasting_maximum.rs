//! `broadcasting_maximum`: the larger of both, with broadcasting.

use super::family::{Align, binary_op};

binary_op! {
    /// The larger of both, elementwise, after broadcasting (NumPy's rule).
    BroadcastingMaximum, "broadcasting_maximum", "the larger of both, with broadcasting", Align::Broadcast, super::maximum::maximum, |a, b| Some(a.larger(b)), None, [F32, F16, BF16, I32, I8, U8]
}
