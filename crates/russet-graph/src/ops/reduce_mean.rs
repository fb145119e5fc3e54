//! `reduce_mean`: mean over axes.

use std::sync::Arc;

use super::reduction::{self, reduce};
use super::{Case, Fact, OpDef, Operands};
use crate::attr::Attr;
use crate::error::OpError;
use crate::tensor::{Scalar, Tensor};
use crate::types::DType;

simple_op! {
    /// Operands: tensor, axes (integers). Reduced axes keep extent 1.
    ReduceMean
}

impl OpDef for ReduceMean {
    const NAME: &'static str = "reduce_mean";
    const SUMMARY: &'static str = "mean over axes";
    const ARITY: std::ops::RangeInclusive<usize> = 2..=2;

    fn from_attributes(_: &[(Arc<str>, Attr)]) -> Result<Self, OpError> {
        Ok(Self)
    }

    fn infer(&self, operands: Operands<'_>) -> Result<Vec<Fact>, OpError> {
        reduction::infer(operands)
    }

    fn reference(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, OpError> {
        reduce(inputs, |g| {
            Scalar::Float(g.iter().map(|v| v.float()).sum::<f64>() / g.len() as f64)
        })
    }

    fn cases() -> Vec<Case<Self>> {
        reduction::cases(Self, &[DType::F32, DType::F16])
    }
}
