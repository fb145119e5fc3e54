//! `imaginary_part`: imaginary part of complex numbers.

use super::complex;
use super::family::plain_op;
use crate::tensor::Tensor;

plain_op! {
    /// The imaginary part of every element.
    ImaginaryPart, "imaginary_part", "imaginary part of complex numbers", 1..=1, complex::infer_part,
    |inputs: &[Tensor]| complex::part(&inputs[0], |(_, im)| im), complex::cases(Self)
}
