//! `divide`: quotient; integers truncate towards zero.

use super::family::{Align, binary_op, by_class};
use crate::tensor::Scalar;

/// Quotient; integers truncate towards zero, of two elements.
pub fn divide(x: Scalar, y: Scalar) -> Scalar {
    by_class(x, y, |x, y| x / y, |x, y| x.checked_div(y).unwrap_or(0))
}

binary_op! {
    /// Quotient; integers truncate towards zero, elementwise, of two tensors of one shape.
    Divide, "divide", "quotient; integers truncate towards zero", Align::Same, divide, |_, _| None, None, [F32, F16, BF16]
}
