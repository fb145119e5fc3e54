//! `softmax`: exp(x) over its sum along an axis.

use std::sync::Arc;

use super::shape::axis;
use super::{Case, Fact, OpDef, Operands};
use crate::attr::Attr;
use crate::error::OpError;
use crate::tensor::{Scalar, Tensor, TensorMut};
use crate::types::DType;

simple_op! {
    /// Operands: tensor, axis. `exp(x - max) / Σ exp(x - max)`.
    Softmax
}

impl OpDef for Softmax {
    const NAME: &'static str = "softmax";
    const SUMMARY: &'static str = "exp(x) over its sum along an axis";
    const ARITY: std::ops::RangeInclusive<usize> = 2..=2;

    fn from_attributes(_: &[(Arc<str>, Attr)]) -> Result<Self, OpError> {
        Ok(Self)
    }

    fn infer(&self, operands: Operands<'_>) -> Result<Vec<Fact>, OpError> {
        super::family::unary_infer(operands)
    }

    fn reference(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, OpError> {
        let x = &inputs[0];
        let at = axis(
            inputs[1].ints().first().copied().unwrap_or(0),
            x.shape.len(),
        )?;
        let inner: usize = x.shape[at + 1..].iter().product();
        let n = x.shape[at];
        let mut out = TensorMut::zeros(x.dtype, &x.shape)?;
        for line in 0..x.len().checked_div(n).unwrap_or(0) {
            let first = line / inner * n * inner + line % inner;
            let values: Vec<f64> = (0..n).map(|k| x.get(first + k * inner).float()).collect();
            let max = values.iter().fold(f64::NEG_INFINITY, |a, &v| a.max(v));
            let sum: f64 = values.iter().map(|v| (v - max).exp()).sum();
            values.iter().enumerate().for_each(|(k, v)| {
                out.set(first + k * inner, Scalar::Float((v - max).exp() / sum));
            });
        }
        Ok(vec![out.finish()])
    }

    fn cases() -> Vec<Case<Self>> {
        let x = |dtype| Tensor::from_floats(dtype, &[2, 3], &[0.0, 1.0, -2.0, 100.0, 100.0, -1e4]);
        let case = |dtype, at: i64| {
            Some(Case {
                op: Self,
                inputs: vec![
                    x(dtype).ok()?,
                    Tensor::from_ints(DType::I32, &[], &[at]).ok()?,
                ],
            })
        };
        [
            case(DType::F32, 1),
            case(DType::F16, -1),
            case(DType::F32, 0),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}
