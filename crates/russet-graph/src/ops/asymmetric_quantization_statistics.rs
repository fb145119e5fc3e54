//! `asymmetric_quantization_statistics`: scale and zero point of every channel for affine quantisation.

use std::sync::Arc;

use super::quantization::{self, Channels};
use super::{Case, Fact, OpDef, Operands};
use crate::attr::Attr;
use crate::error::OpError;
use crate::tensor::Tensor;
use crate::types::DType;

simple_op! {
    /// The range of a channel, widened to hold 0, is spread over `range`: `scale = (max - min) / (range[1] - range[0])` in the kind of the
    /// tensor, `zero = clip(range[0] - round(min / scale))` in the kind of the range (not rounded where that is a float;
    /// a channel of zeros gives NaN there, and 0 in integers).
    /// Operands: tensor, range (two elements), axis.
    AsymmetricQuantizationStatistics
}

impl OpDef for AsymmetricQuantizationStatistics {
    const NAME: &'static str = "asymmetric_quantization_statistics";
    const SUMMARY: &'static str = "scale and zero point of every channel for affine quantisation";
    const ARITY: std::ops::RangeInclusive<usize> = 3..=3;

    fn from_attributes(_: &[(Arc<str>, Attr)]) -> Result<Self, OpError> {
        Ok(Self)
    }

    fn infer(&self, operands: Operands<'_>) -> Result<Vec<Fact>, OpError> {
        let (scale, zero) = (operands.tensor(0)?.dtype, operands.tensor(1)?.dtype);
        Ok(vec![
            quantization::per_channel(operands, scale)?.into(),
            quantization::per_channel(operands, zero)?.into(),
        ])
    }

    fn reference(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, OpError> {
        let channels = Channels::new(&inputs[0], &inputs[2])?;
        let (low, high) = quantization::ends(&inputs[1])?;
        let whole = !inputs[1].dtype.is_float();
        let (mut scales, mut zeros) = (Vec::new(), Vec::new());
        for (min, max) in quantization::extremes(&inputs[0], channels) {
            let min = if min > 0.0 { 0.0 } else { min };
            let max = if max < 0.0 { 0.0 } else { max };
            let scale = (max - min) / (high - low);
            let steps = min / scale;
            let steps = if whole {
                steps.round_ties_even()
            } else {
                steps
            };
            scales.push(scale);
            zeros.push((low - steps).clamp(low, high));
        }
        let row = |dtype, v: &[f64]| Tensor::from_floats(dtype, &[v.len()], v);
        Ok(vec![
            row(inputs[0].dtype, &scales)?,
            row(inputs[1].dtype, &zeros)?,
        ])
    }

    fn cases() -> Vec<Case<Self>> {
        quantization::statistics_cases(
            Self,
            &[
                (DType::F32, DType::I8),
                (DType::F16, DType::I8),
                (DType::F32, DType::F32),
            ],
        )
    }
}
