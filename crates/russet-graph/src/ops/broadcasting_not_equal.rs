//! `broadcasting_not_equal`: whether both differ, with broadcasting.

use super::family::{Align, binary_op};
use crate::types::DType;

binary_op! {
    /// Whether both differ, elementwise, after broadcasting (NumPy's rule).
    BroadcastingNotEqual, "broadcasting_not_equal", "whether both differ, with broadcasting", Align::Broadcast, super::not_equal::not_equal, super::not_equal::fold, Some(DType::Bool), [F32, F16, I32, U8, Bool, C32]
}
