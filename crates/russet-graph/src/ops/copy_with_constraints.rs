//! `copy_with_constraints`: the same elements; gives a storage hint to a tensor.

use std::sync::Arc;

use super::family::{samples, unary_infer};
use super::{Case, Fact, OpDef, Operands};
use crate::attr::Attr;
use crate::error::OpError;
use crate::tensor::Tensor;
use crate::types::DType;

simple_op! {
    /// A copy that gives a storage hint to a tensor. Layout is a hint: the values are the operand's.
    CopyWithConstraints
}

impl OpDef for CopyWithConstraints {
    const NAME: &'static str = "copy_with_constraints";
    const SUMMARY: &'static str = "the same elements with another storage hint";
    const ARITY: std::ops::RangeInclusive<usize> = 1..=1;

    fn from_attributes(_: &[(Arc<str>, Attr)]) -> Result<Self, OpError> {
        Ok(Self)
    }

    fn infer(&self, operands: Operands<'_>) -> Result<Vec<Fact>, OpError> {
        unary_infer(operands)
    }

    fn reference(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, OpError> {
        Ok(vec![inputs[0].clone()])
    }

    fn cases() -> Vec<Case<Self>> {
        samples(&[DType::F16])
            .into_iter()
            .map(|t| Case {
                op: Self,
                inputs: vec![t],
            })
            .collect()
    }
}
