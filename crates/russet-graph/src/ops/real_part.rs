//! `real_part`: real part of complex numbers.

use super::complex;
use super::family::plain_op;
use crate::tensor::Tensor;

plain_op! {
    /// The real part of every element.
    RealPart, "real_part", "real part of complex numbers", 1..=1, complex::infer_part,
    |inputs: &[Tensor]| complex::part(&inputs[0], |(re, _)| re), complex::cases(Self)
}
