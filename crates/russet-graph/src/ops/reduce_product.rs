//! `reduce_product`: product over axes.

use std::sync::Arc;

use super::reduction::{self, by_class, reduce};
use super::shape::product;
use super::{Case, Fact, OpDef, Operands};
use crate::attr::Attr;
use crate::error::OpError;
use crate::tensor::Tensor;
use crate::types::DType;

simple_op! {
    /// Operands: tensor, axes (integers). Reduced axes keep extent 1.
    ReduceProduct
}

impl OpDef for ReduceProduct {
    const NAME: &'static str = "reduce_product";
    const SUMMARY: &'static str = "product over axes";
    const ARITY: std::ops::RangeInclusive<usize> = 2..=2;

    fn from_attributes(_: &[(Arc<str>, Attr)]) -> Result<Self, OpError> {
        Ok(Self)
    }

    fn infer(&self, operands: Operands<'_>) -> Result<Vec<Fact>, OpError> {
        reduction::infer_folded(operands, product)
    }

    fn reference(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, OpError> {
        let float = inputs[0].dtype.is_float();
        reduce(inputs, |g| {
            by_class(g, float, |a, v| a * v, i128::wrapping_mul, (1.0, 1))
        })
    }

    fn cases() -> Vec<Case<Self>> {
        reduction::cases(Self, &[DType::F32, DType::I32])
    }
}
