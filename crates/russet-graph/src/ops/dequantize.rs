//! `dequantize`: scaled integers as floats.

use std::sync::Arc;

use super::quantization::{self, Channels};
use super::{Case, Fact, OpDef, Operands};
use crate::attr::Attr;
use crate::error::OpError;
use crate::tensor::{Scalar, Tensor, TensorMut, round_to};

simple_op! {
    /// `(x - offset1) * scale + offset2`, both steps rounded to the kind of `offset2`. Operands: tensor, scale, offset1, offset2, axis. Each parameter is a
    /// scalar, or one entry a channel along the axis; several axes mean one for all.
    Dequantize
}

impl OpDef for Dequantize {
    const NAME: &'static str = "dequantize";
    const SUMMARY: &'static str = "scaled integers as floats";
    const ARITY: std::ops::RangeInclusive<usize> = 5..=5;

    fn from_attributes(_: &[(Arc<str>, Attr)]) -> Result<Self, OpError> {
        Ok(Self)
    }

    fn infer(&self, operands: Operands<'_>) -> Result<Vec<Fact>, OpError> {
        quantization::infer(operands, 3)
    }

    fn reference(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, OpError> {
        let [x, scale, offset1, offset2, axis] = inputs else {
            return Err(OpError::Arity {
                expected: "5".into(),
                got: inputs.len(),
            });
        };
        let channels = Channels::new(x, axis)?;
        let mut out = TensorMut::zeros(offset2.dtype, &x.shape)?;
        for i in 0..x.len() {
            let at = |p: &Tensor| channels.pick(p, i);
            let scaled = round_to(offset2.dtype, (x.get(i).float() - at(offset1)) * at(scale));
            out.set(i, Scalar::Float(scaled + at(offset2)));
        }
        Ok(vec![out.finish()])
    }

    fn cases() -> Vec<Case<Self>> {
        quantization::cases(Self, false)
    }
}
