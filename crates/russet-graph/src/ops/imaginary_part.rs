//! `imaginary_part`: imaginary part of complex numbers.

use std::sync::Arc;

use super::complex;
use super::{Case, Fact, OpDef, Operands};
use crate::attr::Attr;
use crate::error::OpError;
use crate::tensor::{Scalar, Tensor};

simple_op! {
    /// The imaginary part of every element.
    ImaginaryPart
}

impl OpDef for ImaginaryPart {
    const NAME: &'static str = "imaginary_part";
    const SUMMARY: &'static str = "imaginary part of complex numbers";
    const ARITY: std::ops::RangeInclusive<usize> = 1..=1;

    fn from_attributes(_: &[(Arc<str>, Attr)]) -> Result<Self, OpError> {
        Ok(Self)
    }

    fn infer(&self, operands: Operands<'_>) -> Result<Vec<Fact>, OpError> {
        complex::infer_part(operands)
    }

    fn reference(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, OpError> {
        complex::part(&inputs[0], |x| {
            if let Scalar::Complex(_, v) = x {
                v
            } else {
                0.0
            }
        })
    }

    fn cases() -> Vec<Case<Self>> {
        complex::cases(Self)
    }
}
