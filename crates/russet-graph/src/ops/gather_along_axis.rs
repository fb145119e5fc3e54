//! `gather_along_axis`: elements at positions along an axis.

use std::sync::Arc;

use super::shape::{axis, position};
use super::{Case, Fact, OpDef, Operands};
use crate::attr::Attr;
use crate::error::OpError;
use crate::tensor::{Tensor, TensorMut, strides};
use crate::types::{DType, TensorType};

simple_op! {
    /// Operands: tensor, indices, axis. `out[.., i, ..] = x[.., indices[.., i, ..], ..]`; the result has the shape of the indices.
    GatherAlongAxis
}

impl OpDef for GatherAlongAxis {
    const NAME: &'static str = "gather_along_axis";
    const SUMMARY: &'static str = "elements at positions along an axis";
    const ARITY: std::ops::RangeInclusive<usize> = 3..=3;

    fn from_attributes(_: &[(Arc<str>, Attr)]) -> Result<Self, OpError> {
        Ok(Self)
    }

    fn infer(&self, operands: Operands<'_>) -> Result<Vec<Fact>, OpError> {
        let (x, ids) = (operands.tensor(0)?, operands.tensor(1)?);
        Ok(vec![
            TensorType::new(x.dtype, ids.shape.iter().cloned()).into(),
        ])
    }

    fn reference(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, OpError> {
        let (x, ids) = (&inputs[0], &inputs[1]);
        let at = axis(
            inputs[2].ints().first().copied().unwrap_or(0),
            x.shape.len(),
        )?;
        if ids.shape.len() != x.shape.len() {
            return Err(OpError::shapes(
                "tensor and indices have one rank",
                &[&x.shape, &ids.shape],
            ));
        }
        let from = strides(&x.shape);
        let mut out = TensorMut::zeros(x.dtype, &ids.shape)?;
        for i in 0..out.len() {
            let (mut rest, mut offset) = (i, 0);
            for k in (0..ids.shape.len()).rev() {
                let coordinate = rest % ids.shape[k];
                rest /= ids.shape[k];
                let coordinate = if k == at {
                    position(ids.get(i).int() as i64, x.shape[k])?
                } else {
                    position(coordinate as i64, x.shape[k])?
                };
                offset += coordinate * from[k];
            }
            out.set(i, x.get(offset));
        }
        Ok(vec![out.finish()])
    }

    fn cases() -> Vec<Case<Self>> {
        let ints = |shape: &[usize], v: &[i64]| Tensor::from_ints(DType::I32, shape, v).ok();
        let x = ints(&[3, 4], &(0..12).collect::<Vec<_>>());
        let case = |ids: Option<Tensor>, at: i64| {
            Some(Case {
                op: Self,
                inputs: vec![x.clone()?, ids?, ints(&[], &[at])?],
            })
        };
        [
            case(ints(&[1, 4], &[2, 0, 1, 2]), 0),
            case(ints(&[3, 2], &[3, 0, 1, 1, -1, 2]), 1),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}
