//! `all`: whether every element holds, over axes.

use std::sync::Arc;

use super::reduction::{self, reduce};
use super::{Case, Fact, OpDef, Operands};
use crate::attr::Attr;
use crate::error::OpError;
use crate::tensor::{Scalar, Tensor};
use crate::types::DType;

simple_op! {
    /// Operands: bool tensor, axes (integers). Reduced axes keep extent 1.
    All
}

impl OpDef for All {
    const NAME: &'static str = "all";
    const SUMMARY: &'static str = "whether every element holds, over axes";
    const ARITY: std::ops::RangeInclusive<usize> = 2..=2;

    fn from_attributes(_: &[(Arc<str>, Attr)]) -> Result<Self, OpError> {
        Ok(Self)
    }

    fn infer(&self, operands: Operands<'_>) -> Result<Vec<Fact>, OpError> {
        reduction::infer(operands)
    }

    fn reference(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, OpError> {
        reduce(inputs, |g| Scalar::Bool(g.iter().all(|v| v.bool())))
    }

    fn cases() -> Vec<Case<Self>> {
        reduction::cases(Self, &[DType::Bool])
    }
}
