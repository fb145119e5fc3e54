//! `broadcasting_mul`: product, with broadcasting.

use super::family::{Align, binary_op};

binary_op! {
    /// Product, elementwise, after broadcasting (NumPy's rule).
    BroadcastingMul, "broadcasting_mul", "product, with broadcasting", Align::Broadcast, super::mul::mul, |a, b| Some(a.mul(b))
}
