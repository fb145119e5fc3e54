//! `blockwise_shift_scale`: quantised elements decoded block by block.

use std::sync::Arc;

use super::{Case, Fact, OpDef, Operands};
use crate::attr::Attr;
use crate::error::OpError;
use crate::tensor::{Scalar, Tensor, TensorMut, round_to};
use crate::types::{DType, TensorType};

simple_op! {
    /// Operands: data, scale, zero point, shift. `out = (data - zero) · scale + shift`, where the last three hold one element for a
    /// block of the data: along every axis the data's extent is a multiple of theirs. The result has the shift's kind. It is computed
    /// as written where data is smaller than a byte, else as `data · scale + (shift - zero · scale)`; every step is rounded.
    BlockwiseShiftScale
}

impl OpDef for BlockwiseShiftScale {
    const NAME: &'static str = "blockwise_shift_scale";
    const SUMMARY: &'static str = "quantised elements decoded block by block";
    const ARITY: std::ops::RangeInclusive<usize> = 4..=4;

    fn from_attributes(_: &[(Arc<str>, Attr)]) -> Result<Self, OpError> {
        Ok(Self)
    }

    fn infer(&self, operands: Operands<'_>) -> Result<Vec<Fact>, OpError> {
        let (data, shift) = (operands.tensor(0)?, operands.tensor(3)?);
        Ok(vec![
            TensorType::new(shift.dtype, data.shape.iter().cloned()).into(),
        ])
    }

    fn reference(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, OpError> {
        let (data, scale, zero, shift) = (&inputs[0], &inputs[1], &inputs[2], &inputs[3]);
        let fits = data.shape.len() == scale.shape.len()
            && scale.shape == zero.shape
            && scale.shape == shift.shape
            && data
                .shape
                .iter()
                .zip(&scale.shape)
                .all(|(d, s)| *s != 0 && d % s == 0);
        if !fits {
            return Err(OpError::shapes(
                "the data is whole blocks of the scale",
                &[&data.shape, &scale.shape],
            ));
        }
        let (kind, bytes) = (shift.dtype, data.dtype.size().is_some());
        let mut out = TensorMut::zeros(kind, &data.shape)?;
        for i in 0..out.len() {
            let (mut rest, mut at, mut stride) = (i, 0, 1);
            for k in (0..data.shape.len()).rev() {
                at += rest % data.shape[k] / (data.shape[k] / scale.shape[k]) * stride;
                rest /= data.shape[k];
                stride *= scale.shape[k];
            }
            let [q, scale, zero, shift] =
                [(data, i), (scale, at), (zero, at), (shift, at)].map(|(t, i)| t.get(i).float());
            let round = |v| round_to(kind, v);
            let value = if bytes {
                round(q * scale) + round(shift - round(zero * scale))
            } else {
                round((q - zero) * scale) + shift
            };
            out.set(i, Scalar::Float(value));
        }
        Ok(vec![out.finish()])
    }

    fn cases() -> Vec<Case<Self>> {
        let data = |dtype| Tensor::from_ints(dtype, &[2, 4], &[0, 1, 2, 3, -4, -5, 6, 7]);
        let floats = |v: [f64; 4]| Tensor::from_floats(DType::F16, &[2, 2], &v);
        let case = |dtype| {
            let zero = Tensor::from_ints(dtype, &[2, 2], &[0, 1, 2, 0]).ok()?;
            let (scale, shift) = (
                floats([0.5, 2.0, 0.25, -1.0]).ok()?,
                floats([0.0, 1.0, 0.0, -0.5]).ok()?,
            );
            Some(Case {
                op: Self,
                inputs: vec![data(dtype).ok()?, scale, zero, shift],
            })
        };
        [DType::I8, DType::I4]
            .into_iter()
            .filter_map(case)
            .collect()
    }
}
