//! `broadcast_to`: repeated to a larger shape.

use std::sync::Arc;

use super::shape::{broadcast_fixed, broadcast_index};
use super::{Case, Fact, OpDef, Operands};
use crate::attr::Attr;
use crate::error::OpError;
use crate::tensor::{Tensor, TensorMut};
use crate::types::{DType, Dim, TensorType};

simple_op! {
    /// Operands: tensor, shape (integers). NumPy rule: aligned at the last axis, extents 1 repeat.
    BroadcastTo
}

impl OpDef for BroadcastTo {
    const NAME: &'static str = "broadcast_to";
    const SUMMARY: &'static str = "repeated to a larger shape";
    const ARITY: std::ops::RangeInclusive<usize> = 2..=2;

    fn from_attributes(_: &[(Arc<str>, Attr)]) -> Result<Self, OpError> {
        Ok(Self)
    }

    fn infer(&self, operands: Operands<'_>) -> Result<Vec<Fact>, OpError> {
        let t = operands.tensor(0)?;
        let rank = operands
            .tensor(1)?
            .fixed_len()
            .ok_or(OpError::Unknown("the rank of a broadcast"))?;
        let shape = operands
            .known(1)
            .map_or_else(|| vec![Dim::Unknown; rank], |k| k.to_vec());
        let ty = TensorType::new(t.dtype, shape);
        let known = spread(operands, &ty);
        Ok(vec![Fact::with_known(ty, known)])
    }

    fn reference(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, OpError> {
        let shape: Vec<usize> = inputs[1]
            .ints()
            .iter()
            .map(|&d| usize::try_from(d).unwrap_or(0))
            .collect();
        repeat(&inputs[0], &shape)
    }

    fn cases() -> Vec<Case<Self>> {
        let shapes: [(&[usize], &[i64]); 3] = [(&[3], &[2, 3]), (&[2, 1], &[2, 4]), (&[], &[2, 2])];
        let case = |(from, to): &(&[usize], &[i64])| {
            let n = from.iter().product::<usize>() as i64;
            let x = Tensor::from_ints(DType::I32, from, &(0..n).collect::<Vec<_>>()).ok()?;
            Some(Case {
                op: Self,
                inputs: vec![x, Tensor::from_ints(DType::U32, &[to.len()], to).ok()?],
            })
        };
        shapes.iter().filter_map(case).collect()
    }
}

/// Follows the contents of a repeated small tensor.
fn spread(operands: Operands<'_>, ty: &TensorType) -> Option<Vec<Dim>> {
    let (known, from, to) = (
        operands.known(0)?,
        operands.tensor(0).ok()?.fixed_shape()?,
        ty.fixed_shape()?,
    );
    let count = ty.fixed_len().filter(|&n| n <= super::KNOWN_LIMIT)?;
    (0..count)
        .map(|i| known.get(broadcast_index(i, &to, &from)).cloned())
        .collect()
}

/// Repeats `x` to `shape`.
pub fn repeat(x: &Tensor, shape: &[usize]) -> Result<Vec<Tensor>, OpError> {
    if broadcast_fixed(&x.shape, shape)? != shape {
        return Err(OpError::shapes(
            "a tensor broadcasts to the target shape",
            &[&x.shape, shape],
        ));
    }
    let mut out = TensorMut::zeros(x.dtype, shape)?;
    (0..out.len()).for_each(|i| out.set(i, x.get(broadcast_index(i, shape, &x.shape))));
    Ok(vec![out.finish()])
}
