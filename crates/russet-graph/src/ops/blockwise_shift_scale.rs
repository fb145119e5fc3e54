//! `blockwise_shift_scale`: quantised elements decoded block by block.

use std::sync::Arc;

use super::{Case, Fact, OpDef, Operands};
use crate::attr::Attr;
use crate::error::OpError;
use crate::tensor::{Scalar, Tensor, TensorMut, round_to};
use crate::types::{DType, TensorType};

simple_op! {
    /// Operands: data, scale, zero point, shift. `out = (data - zero) · scale + shift`, where the last three hold one element for a
    /// block of the data: along every axis the data's extent is a multiple of theirs. One without axes counts for all of the data.
    /// The result has the shift's kind. It is computed as written where data is smaller than a byte, else as
    /// `data · scale + (shift - zero · scale)`; every step is rounded.
    BlockwiseShiftScale
}

/// The parameter, of `blocks`, that element `i` of `shape` belongs to.
fn block(i: usize, shape: &[usize], blocks: &[usize]) -> usize {
    let (mut rest, mut at, mut stride) = (i, 0, 1);
    for (d, n) in shape.iter().zip(blocks).rev() {
        at += rest % d / (d / n) * stride;
        rest /= d;
        stride *= n;
    }
    at
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
        let whole = |p: &Tensor| {
            let blocks = data.shape.iter().zip(&p.shape);
            let rank = p.shape.len() == data.shape.len();
            p.shape.is_empty() || (rank && blocks.into_iter().all(|(d, s)| *s != 0 && d % s == 0))
        };
        if ![scale, zero, shift].into_iter().all(whole) {
            return Err(OpError::shapes(
                "the data is whole blocks of the scale, the zero point and the shift",
                &[&data.shape, &scale.shape, &zero.shape, &shift.shape],
            ));
        }
        let (kind, bytes) = (shift.dtype, data.dtype.size().is_some());
        let mut out = TensorMut::zeros(kind, &data.shape)?;
        for i in 0..out.len() {
            let of = |p: &Tensor| p.get(block(i, &data.shape, &p.shape)).float();
            let (q, scale, zero, shift) = (data.get(i).float(), of(scale), of(zero), of(shift));
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
        let one = |dtype, v: f64| Tensor::from_floats(dtype, &[], &[v]).ok();
        let whole = || {
            let parameters = [
                one(DType::F32, 0.5)?,
                Tensor::from_ints(DType::I8, &[], &[1]).ok()?,
                one(DType::F32, 0.25)?,
            ];
            let inputs = std::iter::once(data(DType::I8).ok()?).chain(parameters);
            Some(Case {
                op: Self,
                inputs: inputs.collect(),
            })
        };
        [case(DType::I8), case(DType::I4), whole()]
            .into_iter()
            .flatten()
            .collect()
    }
}
