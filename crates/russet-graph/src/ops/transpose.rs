//! `transpose`: axes in another order.

use std::sync::Arc;

use super::shape::axis;
use super::{Case, Fact, OpDef, Operands};
use crate::attr::Attr;
use crate::error::OpError;
use crate::tensor::{Tensor, TensorMut, strides};
use crate::types::{DType, Dim, TensorType};

simple_op! {
    /// Operands: tensor, permutation (integers `[rank]`): axis `i` of the result is axis `permutation[i]` of the operand.
    Transpose
}

impl OpDef for Transpose {
    const NAME: &'static str = "transpose";
    const SUMMARY: &'static str = "axes in another order";
    const ARITY: std::ops::RangeInclusive<usize> = 2..=2;

    fn from_attributes(_: &[(Arc<str>, Attr)]) -> Result<Self, OpError> {
        Ok(Self)
    }

    fn infer(&self, operands: Operands<'_>) -> Result<Vec<Fact>, OpError> {
        let t = operands.tensor(0)?;
        let shape = match operands.ints(1) {
            Some(p) => order(&p, t.rank())?
                .into_iter()
                .map(|i| t.shape[i].clone())
                .collect(),
            None => vec![Dim::Unknown; t.rank()],
        };
        Ok(vec![TensorType::new(t.dtype, shape).into()])
    }

    fn reference(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, OpError> {
        let x = &inputs[0];
        let order = order(&inputs[1].ints(), x.shape.len())?;
        let shape: Vec<usize> = order.iter().map(|&i| x.shape[i]).collect();
        let from = strides(&x.shape);
        let mut out = TensorMut::zeros(x.dtype, &shape)?;
        for i in 0..out.len() {
            let (mut rest, mut at) = (i, 0);
            for k in (0..shape.len()).rev() {
                at += rest % shape[k] * from[order[k]];
                rest /= shape[k];
            }
            out.set(i, x.get(at));
        }
        Ok(vec![out.finish()])
    }

    fn cases() -> Vec<Case<Self>> {
        let x = Tensor::from_ints(DType::I32, &[2, 3, 4], &(0..24).collect::<Vec<_>>());
        let orders: [&[i64]; 3] = [&[2, 0, 1], &[0, 1, 2], &[-1, 1, 0]];
        let case = |o: &[i64]| {
            Some(Case {
                op: Self,
                inputs: vec![
                    x.clone().ok()?,
                    Tensor::from_ints(DType::I32, &[3], o).ok()?,
                ],
            })
        };
        orders.into_iter().filter_map(case).collect()
    }
}

/// The permutation, checked.
fn order(permutation: &[i64], rank: usize) -> Result<Vec<usize>, OpError> {
    let order = permutation
        .iter()
        .map(|&a| axis(a, rank))
        .collect::<Result<Vec<_>, _>>()?;
    let mut sorted = order.clone();
    sorted.sort_unstable();
    if sorted.iter().copied().eq(0..rank) {
        return Ok(order);
    }
    Err(OpError::Shape {
        rule: "a permutation names every axis once",
        shapes: format!("{permutation:?} of {rank} axes"),
    })
}
