//! `sort`: elements in order along an axis.

use std::sync::Arc;

use super::sorting::sorted;
use super::{Case, Fact, OpDef, Operands};
use crate::attr::Attr;
use crate::error::OpError;
use crate::tensor::{Tensor, TensorMut};

simple_op! {
    /// Operands: tensor, axis, descending, stable. NaN comes last in either direction.
    Sort
}

impl OpDef for Sort {
    const NAME: &'static str = "sort";
    const SUMMARY: &'static str = "elements in order along an axis";
    const ARITY: std::ops::RangeInclusive<usize> = 4..=4;

    fn from_attributes(_: &[(Arc<str>, Attr)]) -> Result<Self, OpError> {
        Ok(Self)
    }

    fn infer(&self, operands: Operands<'_>) -> Result<Vec<Fact>, OpError> {
        super::family::unary_infer(operands)
    }

    fn reference(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, OpError> {
        let mut out = TensorMut::zeros(inputs[0].dtype, &inputs[0].shape)?;
        sorted(inputs, |to, from, _| out.set(to, inputs[0].get(from)))?;
        Ok(vec![out.finish()])
    }

    fn cases() -> Vec<Case<Self>> {
        super::sorting::cases(Self)
    }
}
