//! `rope_cached_cos_sin_gather`: rows of tables of cosines and sines, at positions.

use std::sync::Arc;

use super::shape::position;
use super::{Case, Fact, OpDef, Operands};
use crate::attr::{Attr, Attributes, just_roles, texts};
use crate::error::OpError;
use crate::tensor::{Tensor, TensorMut};
use crate::types::{DType, TensorType};

/// Operands: `pos_ids`, integers of any shape, `cos_cache` and `sin_cache` `[positions, …]`. Results: `cos_cache[pos_ids…]` and
/// `sin_cache[pos_ids…]`. Negative positions count from the end. Models for phones rotate with these, computed once for every
/// position, rather than by [`rope`](mod@super::rope).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RopeCachedCosSinGather;

const ROLES: [&str; 3] = ["pos_ids", "cos_cache", "sin_cache"];

/// The rows of a table at positions.
fn rows(ids: &Tensor, table: &Tensor) -> Result<Tensor, OpError> {
    let ty = rows_type(&ids.ty(), &table.ty())?;
    let shape = ty.fixed_shape().ok_or(OpError::Unknown("a shape"))?;
    let (n, cell) = (table.shape[0], table.shape[1..].iter().product::<usize>());
    let mut out = TensorMut::zeros(table.dtype, &shape)?;
    for i in 0..ids.len() {
        let row = position(ids.get(i).int() as i64, n)?;
        (0..cell).for_each(|k| out.set(i * cell + k, table.get(row * cell + k)));
    }
    Ok(out.finish())
}

/// The type of rows of a table at positions.
pub(super) fn rows_type(ids: &TensorType, table: &TensorType) -> Result<TensorType, OpError> {
    if !ids.dtype.is_int() {
        return Err(OpError::Kind {
            rule: "positions are integers",
            index: 0,
            got: ids.dtype,
        });
    }
    let Some((_, row)) = table.shape.split_first() else {
        return Err(OpError::Shape {
            rule: "a table has rows",
            shapes: table.to_string(),
        });
    };
    let shape = ids.shape.iter().chain(row).cloned();
    Ok(TensorType::new(table.dtype, shape))
}

impl OpDef for RopeCachedCosSinGather {
    const NAME: &'static str = "rope_cached_cos_sin_gather";
    const SUMMARY: &'static str = "rows of tables of cosines and sines, at positions";
    const ARITY: std::ops::RangeInclusive<usize> = 3..=3;

    fn attributes(&self) -> Attributes {
        vec![("inputs".into(), texts(&ROLES))]
    }

    fn from_attributes(attributes: &[(Arc<str>, Attr)]) -> Result<Self, OpError> {
        let expected = "pos_ids, cos_cache and sin_cache";
        just_roles(attributes, &ROLES, expected)?;
        Ok(Self)
    }

    fn infer(&self, operands: Operands<'_>) -> Result<Vec<Fact>, OpError> {
        let ids = operands.tensor(0)?;
        let rows = |i| Ok(rows_type(ids, operands.tensor(i)?)?.into());
        [1, 2].into_iter().map(rows).collect()
    }

    fn reference(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, OpError> {
        [1, 2].map(|i| rows(&inputs[0], &inputs[i])).into_iter().collect()
    }

    fn cases() -> Vec<Case<Self>> {
        let table = |dtype, width: usize, by: usize| {
            let values: Vec<f64> = (0..6 * width)
                .map(|i| (i * by % 11) as f64 * 0.125 - 0.5)
                .collect();
            Tensor::from_floats(dtype, &[6, width], &values).ok()
        };
        let case = |dtype, kind, shape: &[usize], ids: &[i64]| {
            let ids = Tensor::from_ints(kind, shape, ids).ok()?;
            Some(Case {
                op: Self,
                inputs: vec![ids, table(dtype, 4, 3)?, table(dtype, 4, 5)?],
            })
        };
        [
            case(DType::F16, DType::U16, &[1, 3], &[2, 0, 5]),
            case(DType::F32, DType::I32, &[2, 2], &[1, -1, 4, 3]),
            case(DType::BF16, DType::I32, &[1, 0], &[]),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}
