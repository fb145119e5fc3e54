//! `where`: one of two tensors by a condition.

use std::sync::Arc;

use super::family::Align;
use super::{Case, Fact, OpDef, Operands, selection};
use crate::attr::Attr;
use crate::error::OpError;
use crate::tensor::Tensor;

simple_op! {
    /// Operands: condition (bool), value where it holds, value where it does not.
    Where
}

impl OpDef for Where {
    const NAME: &'static str = "where";
    const SUMMARY: &'static str = "one of two tensors by a condition";
    const ARITY: std::ops::RangeInclusive<usize> = 3..=3;

    fn from_attributes(_: &[(Arc<str>, Attr)]) -> Result<Self, OpError> {
        Ok(Self)
    }

    fn infer(&self, operands: Operands<'_>) -> Result<Vec<Fact>, OpError> {
        selection::infer(operands, Align::Same)
    }

    fn reference(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, OpError> {
        selection::select(inputs, Align::Same)
    }

    fn cases() -> Vec<Case<Self>> {
        selection::cases(Self, Align::Same)
    }
}
