//! `symmetric_quantization_statistics`: scale of every channel for symmetric quantisation.

use std::sync::Arc;

use super::quantization::{self, Channels};
use super::{Case, Fact, OpDef, Operands};
use crate::attr::Attr;
use crate::error::OpError;
use crate::tensor::Tensor;
use crate::types::DType;

simple_op! {
    /// `2 max|x| / (range[1] - range[0])` of every channel, in the kind of the tensor. Operands: tensor, range (two elements), axis.
    SymmetricQuantizationStatistics
}

impl OpDef for SymmetricQuantizationStatistics {
    const NAME: &'static str = "symmetric_quantization_statistics";
    const SUMMARY: &'static str = "scale of every channel for symmetric quantisation";
    const ARITY: std::ops::RangeInclusive<usize> = 3..=3;

    fn from_attributes(_: &[(Arc<str>, Attr)]) -> Result<Self, OpError> {
        Ok(Self)
    }

    fn infer(&self, operands: Operands<'_>) -> Result<Vec<Fact>, OpError> {
        let dtype = operands.tensor(0)?.dtype;
        Ok(vec![quantization::per_channel(operands, dtype)?.into()])
    }

    fn reference(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, OpError> {
        let channels = Channels::new(&inputs[0], &inputs[2])?;
        let (low, high) = quantization::ends(&inputs[1])?;
        let scale = |(min, max): (f64, f64)| 2.0 * min.abs().max(max.abs()) / (high - low);
        let scales: Vec<f64> = quantization::extremes(&inputs[0], channels)
            .into_iter()
            .map(scale)
            .collect();
        Ok(vec![Tensor::from_floats(
            inputs[0].dtype,
            &[scales.len()],
            &scales,
        )?])
    }

    fn cases() -> Vec<Case<Self>> {
        quantization::statistics_cases(Self, &[(DType::F32, DType::F32), (DType::F16, DType::F16)])
    }
}
