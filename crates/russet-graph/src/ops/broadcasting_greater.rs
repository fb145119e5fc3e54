//! `broadcasting_greater`: whether the left is greater, with broadcasting.

use super::family::{Align, binary_op};
use crate::types::DType;

binary_op! {
    /// Whether the left is greater, elementwise, after broadcasting (NumPy's rule).
    BroadcastingGreater, "broadcasting_greater", "whether the left is greater, with broadcasting", Align::Broadcast, super::greater::greater, super::greater::fold, Some(DType::Bool), [F32, F16, I32, U8, Bool]
}
