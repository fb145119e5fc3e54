//! `broadcast_in_dims`: repeated along named axes.

use std::sync::Arc;

use super::broadcast_to::repeat;
use super::shape::axis;
use super::{Case, Fact, OpDef, Operands};
use crate::attr::Attr;
use crate::error::OpError;
use crate::tensor::Tensor;
use crate::types::{DType, Dim, TensorType};

simple_op! {
    /// Operands: tensor, extents, axes (integers of one length): each named axis has extent 1 and gets the extent beside it.
    BroadcastInDims
}

impl OpDef for BroadcastInDims {
    const NAME: &'static str = "broadcast_in_dims";
    const SUMMARY: &'static str = "repeated along named axes";
    const ARITY: std::ops::RangeInclusive<usize> = 3..=3;

    fn from_attributes(_: &[(Arc<str>, Attr)]) -> Result<Self, OpError> {
        Ok(Self)
    }

    fn infer(&self, operands: Operands<'_>) -> Result<Vec<Fact>, OpError> {
        let t = operands.tensor(0)?;
        let mut shape = t.shape.clone();
        match (operands.known(1), operands.ints(2)) {
            (Some(extents), Some(axes)) => {
                for (extent, &a) in extents.iter().zip(&axes) {
                    shape[axis(a, t.rank())?] = extent.clone();
                }
            }
            _ => shape
                .iter_mut()
                .filter(|d| d.as_const().is_none_or(|c| c == 1))
                .for_each(|d| *d = Dim::Unknown),
        }
        Ok(vec![TensorType::new(t.dtype, shape).into()])
    }

    fn reference(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, OpError> {
        let mut shape = inputs[0].shape.clone();
        for (extent, a) in inputs[1].ints().into_iter().zip(inputs[2].ints()) {
            shape[axis(a, inputs[0].shape.len())?] = usize::try_from(extent).unwrap_or(0);
        }
        repeat(&inputs[0], &shape)
    }

    fn cases() -> Vec<Case<Self>> {
        let ints = |shape: &[usize], v: &[i64]| Tensor::from_ints(DType::I32, shape, v);
        let case = |x: Result<Tensor, OpError>, extents: &[i64], axes: &[i64]| {
            let n = [axes.len()];
            Some(Case {
                op: Self,
                inputs: vec![x.ok()?, ints(&n, extents).ok()?, ints(&n, axes).ok()?],
            })
        };
        [
            case(ints(&[3, 1], &[1, 2, 3]), &[4], &[1]),
            case(ints(&[1, 1], &[9]), &[2, 3], &[0, -1]),
            case(ints(&[2], &[1, 2]), &[], &[]),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}
