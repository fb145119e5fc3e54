//! `fused_interleaved_embedding_gather_dequant_reshape`: rows of a quantised embedding table, decoded.

use std::sync::Arc;

use super::rope_cached_cos_sin_gather::rows_type;
use super::shape::position;
use super::{Case, Fact, OpDef, Operands};
use crate::attr::{Attr, Attributes, just_roles, texts};
use crate::error::OpError;
use crate::tensor::{Scalar, Tensor, TensorMut};
use crate::types::{DType, TensorType};

/// `embedding_table[input_ids…] · scale`, of the scale's kind.
///
/// Operands: `embedding_table` `[vocabulary, …]` of integers, `input_ids`, integers of any shape (negative ones count from the
/// end), `scale`, whose first element is that of the whole table, and `final_shape`, which repeats the shape of the result and
/// counts for nothing. How the table interleaves its rows in memory is a hint to other hardware and does not show here. Models
/// for phones begin with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FusedInterleavedEmbeddingGatherDequantReshape;

const ROLES: [&str; 4] = ["embedding_table", "input_ids", "scale", "final_shape"];

/// The type of the result for a table, ids and a scale.
fn result(
    table: &TensorType,
    ids: &TensorType,
    scale: &TensorType,
) -> Result<TensorType, OpError> {
    for (index, t, fits) in [
        (0, table, table.dtype.is_int()),
        (2, scale, scale.dtype.is_float()),
    ] {
        if !fits {
            return Err(OpError::Kind {
                rule: "a table of integers has a scale that is a float",
                index,
                got: t.dtype,
            });
        }
    }
    let rows = rows_type(ids, table)?;
    Ok(TensorType::new(scale.dtype, rows.shape.iter().cloned()))
}

impl OpDef for FusedInterleavedEmbeddingGatherDequantReshape {
    const NAME: &'static str = "fused_interleaved_embedding_gather_dequant_reshape";
    const SUMMARY: &'static str = "rows of a quantised embedding table, decoded";
    const ARITY: std::ops::RangeInclusive<usize> = 4..=4;

    fn attributes(&self) -> Attributes {
        vec![("inputs".into(), texts(&ROLES))]
    }

    fn from_attributes(attributes: &[(Arc<str>, Attr)]) -> Result<Self, OpError> {
        let expected = "embedding_table, input_ids, scale and final_shape";
        just_roles(attributes, &ROLES, expected)?;
        Ok(Self)
    }

    fn infer(&self, operands: Operands<'_>) -> Result<Vec<Fact>, OpError> {
        let [table, ids, scale] = [0, 1, 2].map(|i| operands.tensor(i));
        Ok(vec![result(table?, ids?, scale?)?.into()])
    }

    fn reference(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, OpError> {
        let [table, ids, scale] = [0, 1, 2].map(|i| &inputs[i]);
        let ty = result(&table.ty(), &ids.ty(), &scale.ty())?;
        let shape = ty.fixed_shape().ok_or(OpError::Unknown("a shape"))?;
        let (n, cell) = (table.shape[0], table.shape[1..].iter().product::<usize>());
        let first = scale.scalars().next().map(Scalar::float);
        let mut out = TensorMut::zeros(ty.dtype, &shape)?;
        for i in 0..ids.len() {
            let row = position(ids.get(i).int() as i64, n)?;
            let by = first.ok_or(OpError::Unknown("the scale of a table"))?;
            for k in 0..cell {
                let value = table.get(row * cell + k).float() * by;
                out.set(i * cell + k, Scalar::Float(value));
            }
        }
        Ok(vec![out.finish()])
    }

    fn cases() -> Vec<Case<Self>> {
        let codes: Vec<i64> = (0..6 * 8).map(|i| i * 37 % 255 - 127).collect();
        let case = |dtype, kind, ids: &[i64]| {
            let q = ids.len();
            let scale = vec![0.0234; q.max(1) * 8];
            Some(Case {
                op: Self,
                inputs: vec![
                    Tensor::from_ints(DType::I8, &[6, 1, 8], &codes).ok()?,
                    Tensor::from_ints(kind, &[1, q], ids).ok()?,
                    Tensor::from_floats(dtype, &[q.max(1), 1, 8], &scale).ok()?,
                    Tensor::from_ints(DType::U32, &[4], &[1, q as i64, 1, 8]).ok()?,
                ],
            })
        };
        [
            case(DType::F16, DType::I32, &[2, 0, 5]),
            case(DType::F32, DType::I32, &[-1]),
            case(DType::BF16, DType::U16, &[3, 3]),
            case(DType::F16, DType::I32, &[]),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}
