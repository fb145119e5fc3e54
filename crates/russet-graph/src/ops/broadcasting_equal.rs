//! `broadcasting_equal`: whether both are equal, with broadcasting.

use super::family::{Align, binary_op};
use crate::types::DType;

binary_op! {
    /// Whether both are equal, elementwise, after broadcasting (NumPy's rule).
    BroadcastingEqual, "broadcasting_equal", "whether both are equal, with broadcasting", Align::Broadcast, super::equal::equal, super::equal::fold, Some(DType::Bool), [F32, F16, I32, U8, Bool, C32]
}
