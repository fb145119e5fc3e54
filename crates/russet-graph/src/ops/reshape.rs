//! `reshape`: the same elements under another shape.

use std::sync::Arc;

use super::shape::product;
use super::{Case, Fact, OpDef, Operands};
use crate::attr::Attr;
use crate::error::OpError;
use crate::tensor::Tensor;
use crate::types::{DType, Dim, TensorType};

simple_op! {
    /// Operands: tensor, shape (integers `[rank]`). One entry may be -1: it takes what the others leave.
    Reshape
}

impl OpDef for Reshape {
    const NAME: &'static str = "reshape";
    const SUMMARY: &'static str = "the same elements under another shape";
    const ARITY: std::ops::RangeInclusive<usize> = 2..=2;

    fn from_attributes(_: &[(Arc<str>, Attr)]) -> Result<Self, OpError> {
        Ok(Self)
    }

    fn infer(&self, operands: Operands<'_>) -> Result<Vec<Fact>, OpError> {
        let t = operands.tensor(0)?;
        let rank = operands
            .tensor(1)?
            .fixed_len()
            .ok_or(OpError::Unknown("the rank of a reshape"))?;
        let shape = match operands.known(1) {
            Some(wanted) => target(&wanted, &product(&t.shape)),
            None => vec![Dim::Unknown; rank],
        };
        let known = operands.known(0).map(|k| k.to_vec());
        Ok(vec![Fact::with_known(
            TensorType::new(t.dtype, shape),
            known,
        )])
    }

    fn reference(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, OpError> {
        let wanted: Vec<Dim> = inputs[1].ints().into_iter().map(Dim::Const).collect();
        let shape = target(&wanted, &Dim::from(inputs[0].len()));
        let shape: Option<Vec<usize>> = shape
            .iter()
            .map(|d| d.as_const().and_then(|c| usize::try_from(c).ok()))
            .collect();
        Ok(vec![inputs[0].reshaped(
            &shape.ok_or(OpError::Unknown("the shape of a reshape"))?,
        )?])
    }

    fn cases() -> Vec<Case<Self>> {
        let x = Tensor::from_ints(DType::I32, &[2, 6], &(0..12).collect::<Vec<_>>());
        let shapes: [&[i64]; 4] = [&[3, 4], &[-1, 2], &[12], &[1, 12, 1]];
        let case = |s: &&[i64]| {
            let shape = Tensor::from_ints(DType::I32, &[s.len()], s).ok()?;
            Some(Case {
                op: Self,
                inputs: vec![x.clone().ok()?, shape],
            })
        };
        shapes.iter().filter_map(case).collect()
    }
}

/// The target shape with -1 resolved against the number of elements.
fn target(wanted: &[Dim], elements: &Dim) -> Vec<Dim> {
    let open = Dim::Const(-1);
    let rest = product(
        &wanted
            .iter()
            .filter(|d| **d != open)
            .cloned()
            .collect::<Vec<_>>(),
    );
    wanted
        .iter()
        .map(|d| {
            if *d == open {
                elements.div(&rest)
            } else {
                d.clone()
            }
        })
        .collect()
}
