//! `where`: one of two tensors by a condition.

use std::sync::Arc;

use super::family::samples;
use super::shape::{broadcast, broadcast_fixed, broadcast_index};
use super::{Case, Fact, OpDef, Operands};
use crate::attr::Attr;
use crate::error::OpError;
use crate::tensor::{Tensor, TensorMut};
use crate::types::{DType, TensorType};

simple_op! {
    /// Operands: condition (bool), value where it holds, value where it does not.
    Where
}

impl OpDef for Where {
    const NAME: &'static str = "where";
    const SUMMARY: &'static str = "one of two tensors by a condition";
    const ARITY: std::ops::RangeInclusive<usize> = 3..=3;

    fn from_attributes(_: &[(Arc<str>, Attr)]) -> Result<Self, OpError> {
        Ok(Self)
    }

    fn infer(&self, operands: Operands<'_>) -> Result<Vec<Fact>, OpError> {
        let (c, a, b) = (operands.tensor(0)?, operands.tensor(1)?, operands.tensor(2)?);
        if a.dtype != b.dtype {
            return Err(OpError::Kind { rule: "both values have one element kind", index: 2, got: b.dtype });
        }
        let shape = broadcast(&broadcast(&c.shape, &a.shape)?, &b.shape)?;
        Ok(vec![TensorType::new(a.dtype, shape).into()])
    }

    fn reference(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, OpError> {
        let (c, a, b) = (&inputs[0], &inputs[1], &inputs[2]);
        let shape = broadcast_fixed(&broadcast_fixed(&c.shape, &a.shape)?, &b.shape)?;
        let mut out = TensorMut::zeros(a.dtype, &shape)?;
        for i in 0..out.len() {
            let at = |t: &Tensor| t.get(broadcast_index(i, &shape, &t.shape));
            out.set(i, if at(c).bool() { at(a) } else { at(b) });
        }
        Ok(vec![out.finish()])
    }

    fn cases() -> Vec<Case<Self>> {
        let condition = Tensor::from_ints(DType::Bool, &[3, 4], &[1, 0, 1, 0, 0, 0, 1, 1, 0, 1, 0, 1]);
        let values = samples(&[DType::F32, DType::F16, DType::I32]);
        let case = |t: Tensor| Some(Case { op: Self, inputs: vec![condition.clone().ok()?, t.clone(), t] });
        values.into_iter().filter_map(case).collect()
    }
}
