//! `create_complex`: complex numbers from their parts.

use std::sync::Arc;

use super::complex::KINDS;
use super::family::{Align, binary_cases, binary_checked, binary_type};
use super::{Case, Fact, OpDef, Operands};
use crate::attr::Attr;
use crate::error::OpError;
use crate::tensor::{Scalar, Tensor};
use crate::types::DType;

simple_op! {
    /// `re + i im`, elementwise, of two tensors of one shape and kind. Operands: real part, imaginary part.
    CreateComplex
}

fn complex_of(part: DType) -> Result<DType, OpError> {
    let found = KINDS.iter().find(|(_, p)| *p == part).map(|(c, _)| *c);
    found.ok_or(OpError::Kind {
        rule: "parts of a complex number are f16 or f32",
        index: 0,
        got: part,
    })
}

impl OpDef for CreateComplex {
    const NAME: &'static str = "create_complex";
    const SUMMARY: &'static str = "complex numbers from their parts";
    const ARITY: std::ops::RangeInclusive<usize> = 2..=2;

    fn from_attributes(_: &[(Arc<str>, Attr)]) -> Result<Self, OpError> {
        Ok(Self)
    }

    fn infer(&self, operands: Operands<'_>) -> Result<Vec<Fact>, OpError> {
        let ty = binary_type(operands, Align::Same, None)?;
        Ok(vec![
            binary_type(operands, Align::Same, Some(complex_of(ty.dtype)?))?.into(),
        ])
    }

    fn reference(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, OpError> {
        let dtype = complex_of(inputs[0].dtype)?;
        let pair = |re: Scalar, im: Scalar| Scalar::Complex(re.float(), im.float());
        binary_checked(&inputs[0], &inputs[1], Align::Same, Some(dtype), pair)
    }

    fn cases() -> Vec<Case<Self>> {
        binary_cases(Self, Align::Same, &[DType::F32, DType::F16])
    }
}
