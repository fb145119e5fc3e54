//! `gather_nd`: slices at positions.

use std::sync::Arc;

use super::shape::position;
use super::{Case, Fact, OpDef, Operands};
use crate::attr::Attr;
use crate::error::OpError;
use crate::tensor::{Tensor, TensorMut, strides};
use crate::types::{DType, Dim, TensorType};

simple_op! {
    /// Operands: tensor, indices `[…, depth]`. `out[i…] = x[indices[i…, 0], …, indices[i…, depth - 1]]`. Negative indices count from the
    /// end.
    GatherNd
}

impl OpDef for GatherNd {
    const NAME: &'static str = "gather_nd";
    const SUMMARY: &'static str = "slices at positions";
    const ARITY: std::ops::RangeInclusive<usize> = 2..=2;

    fn from_attributes(_: &[(Arc<str>, Attr)]) -> Result<Self, OpError> {
        Ok(Self)
    }

    fn infer(&self, operands: Operands<'_>) -> Result<Vec<Fact>, OpError> {
        let (x, ids) = (operands.tensor(0)?, operands.tensor(1)?);
        let depth = ids
            .shape
            .last()
            .and_then(Dim::as_const)
            .and_then(|d| usize::try_from(d).ok());
        let depth = depth
            .filter(|&d| d <= x.rank())
            .ok_or(OpError::Unknown("the depth of the indices"))?;
        let shape = ids.shape[..ids.rank() - 1]
            .iter()
            .chain(&x.shape[depth..])
            .cloned();
        let ty = TensorType::new(x.dtype, shape);
        let known = picked(operands, depth);
        Ok(vec![Fact::with_known(ty, known)])
    }

    fn reference(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, OpError> {
        let (x, ids) = (&inputs[0], &inputs[1]);
        let depth = ids
            .shape
            .last()
            .copied()
            .filter(|&d| d <= x.shape.len())
            .ok_or(OpError::Unknown("the depth of the indices"))?;
        let cell: usize = x.shape[depth..].iter().product();
        let shape: Vec<usize> = ids.shape[..ids.shape.len() - 1]
            .iter()
            .chain(&x.shape[depth..])
            .copied()
            .collect();
        let mut out = TensorMut::zeros(x.dtype, &shape)?;
        let strides = strides(&x.shape);
        let count: usize = ids.shape[..ids.shape.len() - 1].iter().product();
        for i in 0..count {
            let mut at = 0;
            for d in 0..depth {
                at += position(ids.get(i * depth + d).int() as i64, x.shape[d])? * strides[d];
            }
            (0..cell).for_each(|k| out.set(i * cell + k, x.get(at + k)));
        }
        Ok(vec![out.finish()])
    }

    fn cases() -> Vec<Case<Self>> {
        let ints = |shape: &[usize], v: &[i64]| Tensor::from_ints(DType::I32, shape, v).ok();
        let x = ints(&[3, 4], &(0..12).collect::<Vec<_>>());
        let case = |ids: Option<Tensor>| {
            Some(Case {
                op: Self,
                inputs: vec![x.clone()?, ids?],
            })
        };
        [
            case(ints(&[2, 1], &[2, -3])),
            case(ints(&[2, 2], &[0, 1, 2, 3])),
            case(ints(&[1, 0, 1], &[])),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

/// Follows the contents picked out of a followed vector by constant indices.
fn picked(operands: Operands<'_>, depth: usize) -> Option<Vec<Dim>> {
    let (known, ids) = (operands.known(0)?, operands.ints(1)?);
    if depth != 1 || operands.tensor(0).ok()?.rank() != 1 {
        return None;
    }
    ids.into_iter()
        .map(|i| known.get(position(i, known.len()).ok()?).cloned())
        .collect()
}
