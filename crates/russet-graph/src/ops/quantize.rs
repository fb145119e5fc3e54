//! `quantize`: floats as scaled integers.

use std::sync::Arc;

use super::quantization::{self, Channels};
use super::{Case, Fact, OpDef, Operands};
use crate::attr::Attr;
use crate::error::OpError;
use crate::tensor::{Scalar, Tensor, TensorMut};

simple_op! {
    /// `clip(round((x - offset2) / scale) + offset1)` in the kind of `offset1`; kinds of floats are clipped but not rounded to integers.
    /// NaN gives 0. Operands: tensor, scale, offset1, offset2, axis. Each parameter is a scalar, or one entry a channel along the axis;
    /// several axes mean one for all.
    Quantize
}

impl OpDef for Quantize {
    const NAME: &'static str = "quantize";
    const SUMMARY: &'static str = "floats as scaled integers";
    const ARITY: std::ops::RangeInclusive<usize> = 5..=5;

    fn from_attributes(_: &[(Arc<str>, Attr)]) -> Result<Self, OpError> {
        Ok(Self)
    }

    fn infer(&self, operands: Operands<'_>) -> Result<Vec<Fact>, OpError> {
        quantization::infer(operands, 2)
    }

    fn reference(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, OpError> {
        let [x, scale, offset1, offset2, axis] = inputs else {
            return Err(OpError::Arity {
                expected: "5".into(),
                got: inputs.len(),
            });
        };
        let channels = Channels::new(x, axis)?;
        let (low, high) = quantization::limits(offset1.dtype);
        let whole = !offset1.dtype.is_float();
        let mut out = TensorMut::zeros(offset1.dtype, &x.shape)?;
        for i in 0..x.len() {
            let at = |p: &Tensor| channels.pick(p, i);
            let steps = (x.get(i).float() - at(offset2)) / at(scale);
            let steps = if whole {
                steps.round_ties_even()
            } else {
                steps
            };
            out.set(i, Scalar::Float((steps + at(offset1)).clamp(low, high)));
        }
        Ok(vec![out.finish()])
    }

    fn cases() -> Vec<Case<Self>> {
        quantization::cases(Self, true)
    }
}
