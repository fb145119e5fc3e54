//! `broadcasting_divide`: quotient; integers truncate towards zero, with broadcasting.

use super::family::{Align, binary_op};

binary_op! {
    /// Quotient; integers truncate towards zero, elementwise, after broadcasting (NumPy's rule).
    BroadcastingDivide, "broadcasting_divide", "quotient; integers truncate towards zero, with broadcasting", Align::Broadcast, super::divide::divide, super::divide::fold, None, [F32, F16, BF16, I32, U8, C32]
}
