//! `broadcasting_floor_divide`: quotient rounded towards minus infinity, with broadcasting.

use super::family::{Align, binary_op};

binary_op! {
    /// Quotient rounded towards minus infinity, elementwise, after broadcasting (NumPy's rule).
    BroadcastingFloorDivide, "broadcasting_floor_divide", "quotient rounded towards minus infinity, with broadcasting", Align::Broadcast, super::floor_divide::floor_divide, super::floor_divide::fold, None, [F32, F16, BF16, I32, I8, U8]
}
