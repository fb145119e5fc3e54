//! `broadcasting_minimum`: the smaller of both, with broadcasting.

use super::family::{Align, binary_op};

binary_op! {
    /// The smaller of both, elementwise, after broadcasting (NumPy's rule).
    BroadcastingMinimum, "broadcasting_minimum", "the smaller of both, with broadcasting", Align::Broadcast, super::minimum::minimum, |a, b| Some(a.smaller(b)), None, [F32, F16, BF16, I32, I8, U8]
}
