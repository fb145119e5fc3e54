//! `argsort`: positions that sort along an axis.

use std::sync::Arc;

use super::sorting::sorted;
use super::{Case, Fact, OpDef, Operands};
use crate::attr::Attr;
use crate::error::OpError;
use crate::tensor::{Scalar, Tensor, TensorMut};
use crate::types::{DType, TensorType};

simple_op! {
    /// Operands: tensor, axis, descending, stable. The result is `i32`.
    Argsort
}

impl OpDef for Argsort {
    const NAME: &'static str = "argsort";
    const SUMMARY: &'static str = "positions that sort along an axis";
    const ARITY: std::ops::RangeInclusive<usize> = 4..=4;

    fn from_attributes(_: &[(Arc<str>, Attr)]) -> Result<Self, OpError> {
        Ok(Self)
    }

    fn infer(&self, operands: Operands<'_>) -> Result<Vec<Fact>, OpError> {
        let t = operands.tensor(0)?;
        Ok(vec![
            TensorType::new(DType::I32, t.shape.iter().cloned()).into(),
        ])
    }

    fn reference(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, OpError> {
        let mut out = TensorMut::zeros(DType::I32, &inputs[0].shape)?;
        sorted(inputs, |to, _, position| {
            out.set(to, Scalar::Int(position as i128));
        })?;
        Ok(vec![out.finish()])
    }

    fn cases() -> Vec<Case<Self>> {
        super::sorting::cases(Self)
    }
}
