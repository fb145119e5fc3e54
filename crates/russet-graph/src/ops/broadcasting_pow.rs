//! `broadcasting_pow`: power, with broadcasting.

use super::family::{Align, binary_op};

binary_op! {
    /// Power, elementwise, after broadcasting (NumPy's rule).
    BroadcastingPow, "broadcasting_pow", "power, with broadcasting", Align::Broadcast, super::pow::pow, |_, _| None, None, [F32, F16, BF16, I32, I8, U8]
}
