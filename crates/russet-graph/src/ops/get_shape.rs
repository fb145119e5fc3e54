//! `get_shape`: the extents of a tensor as a tensor.

use std::sync::Arc;

use super::{Case, Fact, OpDef, Operands};
use crate::attr::Attr;
use crate::error::OpError;
use crate::tensor::Tensor;
use crate::types::{DType, TensorType};

simple_op! {
    /// A `u32` tensor `[rank]` that holds the operand's extents.
    GetShape
}

impl OpDef for GetShape {
    const NAME: &'static str = "get_shape";
    const SUMMARY: &'static str = "the extents of a tensor as a tensor";
    const ARITY: std::ops::RangeInclusive<usize> = 1..=1;

    fn from_attributes(_: &[(Arc<str>, Attr)]) -> Result<Self, OpError> {
        Ok(Self)
    }

    fn infer(&self, operands: Operands<'_>) -> Result<Vec<Fact>, OpError> {
        let shape = &operands.tensor(0)?.shape;
        Ok(vec![Fact::with_known(
            TensorType::fixed(DType::U32, &[shape.len()]),
            Some(shape.clone()),
        )])
    }

    fn reference(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, OpError> {
        let extents: Vec<i64> = inputs[0].shape.iter().map(|&d| d as i64).collect();
        Ok(vec![Tensor::from_ints(
            DType::U32,
            &[extents.len()],
            &extents,
        )?])
    }

    fn cases() -> Vec<Case<Self>> {
        let shapes: [&[usize]; 3] = [&[], &[3], &[2, 0, 4]];
        let zeros = |s: &&[usize]| {
            Some(Case {
                op: Self,
                inputs: vec![
                    crate::tensor::TensorMut::zeros(DType::F16, s)
                        .ok()?
                        .finish(),
                ],
            })
        };
        shapes.iter().filter_map(zeros).collect()
    }
}
