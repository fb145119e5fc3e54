//! `mul`: product.

use super::complex;
use super::family::{Align, binary_op, by_class};
use crate::tensor::Scalar;

/// Product, of two elements.
pub fn mul(x: Scalar, y: Scalar) -> Scalar {
    match (x, y) {
        (Scalar::Complex(a, b), Scalar::Complex(c, d)) => {
            let (re, im) = complex::mul((a, b), (c, d));
            Scalar::Complex(re, im)
        }
        _ => by_class(x, y, |x, y| x * y, i128::wrapping_mul),
    }
}

binary_op! {
    /// Product, elementwise, of two tensors of one shape.
    Mul, "mul", "product", Align::Same, mul, |a, b| Some(a.mul(b))
}
