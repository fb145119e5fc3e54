//! `broadcasting_modulo`: remainder of the truncated division, with broadcasting.

use super::family::{Align, binary_op};

binary_op! {
    /// Remainder of the truncated division, elementwise, after broadcasting (NumPy's rule).
    BroadcastingModulo, "broadcasting_modulo", "remainder of the truncated division, with broadcasting", Align::Broadcast, super::modulo::modulo, super::modulo::fold, None, [F32, F16, BF16, I32, I8, U8]
}
