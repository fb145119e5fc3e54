//! `scatter_along_axis`: elements replaced at positions along an axis.

use std::sync::Arc;

use super::shape::{axis, position};
use super::{Case, Fact, OpDef, Operands};
use crate::attr::Attr;
use crate::error::OpError;
use crate::tensor::{Tensor, TensorMut, strides};
use crate::types::{DType, TensorType};

simple_op! {
    /// Operands: tensor, indices, updates, axis. `out[.., indices[.., i, ..], ..] = updates[.., i, ..]`, later ones win.
    ScatterAlongAxis
}

impl OpDef for ScatterAlongAxis {
    const NAME: &'static str = "scatter_along_axis";
    const SUMMARY: &'static str = "elements replaced at positions along an axis";
    const ARITY: std::ops::RangeInclusive<usize> = 4..=4;

    fn from_attributes(_: &[(Arc<str>, Attr)]) -> Result<Self, OpError> {
        Ok(Self)
    }

    fn infer(&self, operands: Operands<'_>) -> Result<Vec<Fact>, OpError> {
        let t = operands.tensor(0)?;
        Ok(vec![
            TensorType::new(t.dtype, t.shape.iter().cloned()).into(),
        ])
    }

    fn reference(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, OpError> {
        let (x, ids, updates) = (&inputs[0], &inputs[1], &inputs[2]);
        let at = axis(
            inputs[3].ints().first().copied().unwrap_or(0),
            x.shape.len(),
        )?;
        if ids.shape.len() != x.shape.len() || ids.shape != updates.shape {
            return Err(OpError::shapes(
                "indices and updates have one shape of the tensor's rank",
                &[&ids.shape, &updates.shape],
            ));
        }
        let to = strides(&x.shape);
        let mut out = TensorMut::zeros(x.dtype, &x.shape)?;
        (0..x.len()).for_each(|i| out.set(i, x.get(i)));
        for i in 0..ids.len() {
            let (mut rest, mut offset) = (i, 0);
            for k in (0..ids.shape.len()).rev() {
                let coordinate = (rest % ids.shape[k]) as i64;
                rest /= ids.shape[k];
                let coordinate = if k == at {
                    ids.get(i).int() as i64
                } else {
                    coordinate
                };
                offset += position(coordinate, x.shape[k])? * to[k];
            }
            out.set(offset, updates.get(i));
        }
        Ok(vec![out.finish()])
    }

    fn cases() -> Vec<Case<Self>> {
        let ints = |shape: &[usize], v: &[i64]| Tensor::from_ints(DType::I32, shape, v).ok();
        let x = ints(&[3, 4], &(0..12).collect::<Vec<_>>());
        let case = |ids: Option<Tensor>, u: Option<Tensor>, at: i64| {
            Some(Case {
                op: Self,
                inputs: vec![x.clone()?, ids?, u?, ints(&[], &[at])?],
            })
        };
        [
            case(
                ints(&[1, 4], &[2, 0, 1, 2]),
                ints(&[1, 4], &[91, 92, 93, 94]),
                0,
            ),
            case(ints(&[3, 1], &[3, 0, -1]), ints(&[3, 1], &[91, 92, 93]), 1),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}
