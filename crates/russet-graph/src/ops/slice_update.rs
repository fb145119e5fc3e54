//! `slice_update`: a tensor with a box replaced.

use std::sync::Arc;

use super::shape::{broadcast_fixed, broadcast_index};
use super::slice::{axes, place};
use super::{Case, Fact, OpDef, Operands};
use crate::attr::Attr;
use crate::error::OpError;
use crate::tensor::{Tensor, TensorMut};
use crate::types::{DType, TensorType};

simple_op! {
    /// Operands: tensor, begin, end, stride, update. `out[begin:end:stride] = update`, bounds as for `slice`.
    SliceUpdate
}

impl OpDef for SliceUpdate {
    const NAME: &'static str = "slice_update";
    const SUMMARY: &'static str = "a tensor with a box replaced";
    const ARITY: std::ops::RangeInclusive<usize> = 5..=5;

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
        let (x, update) = (&inputs[0], &inputs[4]);
        let axes = axes(&x.shape, &inputs[1..4])?;
        let shape: Vec<usize> = axes.iter().map(|a| a.1).collect();
        if broadcast_fixed(&update.shape, &shape)? != shape {
            return Err(OpError::shapes(
                "an update fills its box",
                &[&update.shape, &shape],
            ));
        }
        let mut out = TensorMut::zeros(x.dtype, &x.shape)?;
        (0..x.len()).for_each(|i| out.set(i, x.get(i)));
        for i in 0..shape.iter().product() {
            let at = place(i, &x.shape, &axes);
            out.set(at, update.get(broadcast_index(i, &shape, &update.shape)));
        }
        Ok(vec![out.finish()])
    }

    fn cases() -> Vec<Case<Self>> {
        let ints = |shape: &[usize], v: &[i64]| Tensor::from_ints(DType::I32, shape, v).ok();
        let x = ints(&[3, 4], &(0..12).collect::<Vec<_>>());
        let max = i64::from(i32::MAX);
        let case = |u: Option<Tensor>, b: [i64; 2], e: [i64; 2], s: [i64; 2]| {
            Some(Case {
                op: Self,
                inputs: vec![x.clone()?, ints(&[2], &b)?, ints(&[2], &e)?, ints(&[2], &s)?, u?],
            })
        };
        [
            case(ints(&[1, 4], &[9, 8, 7, 6]), [1, 0], [2, max], [1, 1]),
            case(
                ints(&[3, 2], &[1, 2, 3, 4, 5, 6]),
                [0, 0],
                [max, max],
                [1, 2],
            ),
            case(ints(&[0, 4], &[]), [3, 0], [3, 4], [1, 1]),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}
