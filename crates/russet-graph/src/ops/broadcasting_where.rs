//! `broadcasting_where`: one of two tensors by a condition, with broadcasting.

use std::sync::Arc;

use super::family::Align;
use super::{Case, Fact, OpDef, Operands, selection};
use crate::attr::Attr;
use crate::error::OpError;
use crate::tensor::Tensor;

simple_op! {
    /// Operands: condition (bool), value where it holds, value where it does not.
    BroadcastingWhere
}

impl OpDef for BroadcastingWhere {
    const NAME: &'static str = "broadcasting_where";
    const SUMMARY: &'static str = "one of two tensors by a condition, with broadcasting";
    const ARITY: std::ops::RangeInclusive<usize> = 3..=3;

    fn from_attributes(_: &[(Arc<str>, Attr)]) -> Result<Self, OpError> {
        Ok(Self)
    }

    fn infer(&self, operands: Operands<'_>) -> Result<Vec<Fact>, OpError> {
        selection::infer(operands, Align::Broadcast)
    }

    fn reference(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, OpError> {
        selection::select(inputs, Align::Broadcast)
    }

    fn cases() -> Vec<Case<Self>> {
        selection::cases(Self, Align::Broadcast)
    }
}
