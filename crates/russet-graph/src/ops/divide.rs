//! `divide`: quotient; integers truncate towards zero.

use super::complex;
use super::family::{Align, binary_op, by_class};
use crate::tensor::Scalar;
use crate::types::Dim;

/// The quotient of two elements. Integers truncate towards zero, and give 0 where the divisor is 0.
pub fn divide(x: Scalar, y: Scalar) -> Scalar {
    match (x, y) {
        (Scalar::Complex(a, b), Scalar::Complex(c, d)) => {
            let (re, im) = complex::divide((a, b), (c, d));
            Scalar::Complex(re, im)
        }
        _ => by_class(x, y, |x, y| x / y, |x, y| x.checked_div(y).unwrap_or(0)),
    }
}

binary_op! {
    /// Quotient; integers truncate towards zero, elementwise, of two tensors of one shape.
    Divide, "divide", "quotient; integers truncate towards zero", Align::Same, divide, fold, None, [F32, F16, BF16, I32, U8, C32]
}

/// The quotient of two followed contents. Those with a symbol are lengths, which are not negative.
pub fn fold(a: &Dim, b: &Dim) -> Option<Dim> {
    match (a.as_const(), b.as_const()) {
        (Some(a), Some(b)) => a.checked_div(b).map(Dim::Const),
        (_, Some(0)) => None,
        _ => Some(a.div(b)),
    }
}
