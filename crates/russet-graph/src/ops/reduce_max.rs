//! `reduce_max`: largest over axes.

use std::sync::Arc;

use super::reduction::{self, by_class, reduce};
use super::{Case, Fact, OpDef, Operands};
use crate::attr::Attr;
use crate::error::OpError;
use crate::tensor::Tensor;
use crate::types::DType;

simple_op! {
    /// Operands: tensor, axes (integers). Reduced axes keep extent 1.
    ReduceMax
}

impl OpDef for ReduceMax {
    const NAME: &'static str = "reduce_max";
    const SUMMARY: &'static str = "largest over axes";
    const ARITY: std::ops::RangeInclusive<usize> = 2..=2;

    fn from_attributes(_: &[(Arc<str>, Attr)]) -> Result<Self, OpError> {
        Ok(Self)
    }

    fn infer(&self, operands: Operands<'_>) -> Result<Vec<Fact>, OpError> {
        reduction::infer(operands)
    }

    fn reference(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, OpError> {
        let float = inputs[0].dtype.is_float();
        reduce(inputs, |g| {
            by_class(
                g,
                float,
                |a, v| if v > a || v.is_nan() { v } else { a },
                i128::max,
                (f64::NEG_INFINITY, i128::MIN),
            )
        })
    }

    fn cases() -> Vec<Case<Self>> {
        reduction::cases(Self, &[DType::F32, DType::I32])
    }
}
