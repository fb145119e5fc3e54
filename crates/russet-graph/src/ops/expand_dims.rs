//! `expand_dims`: new axes of extent 1.

use std::sync::Arc;

use super::shape::axis;
use super::{Case, Fact, OpDef, Operands};
use crate::attr::Attr;
use crate::error::OpError;
use crate::tensor::Tensor;
use crate::types::{DType, Dim, TensorType};

simple_op! {
    /// Operands: tensor, axes (integers, counted in the result) that get extent 1.
    ExpandDims
}

impl OpDef for ExpandDims {
    const NAME: &'static str = "expand_dims";
    const SUMMARY: &'static str = "new axes of extent 1";
    const ARITY: std::ops::RangeInclusive<usize> = 2..=2;

    fn from_attributes(_: &[(Arc<str>, Attr)]) -> Result<Self, OpError> {
        Ok(Self)
    }

    fn infer(&self, operands: Operands<'_>) -> Result<Vec<Fact>, OpError> {
        let t = operands.tensor(0)?;
        let count = operands
            .tensor(1)?
            .fixed_len()
            .ok_or(OpError::Unknown("how many axes are new"))?;
        let shape = match operands.ints(1) {
            Some(axes) => grown(&t.shape, &axes, &Dim::Const(1))?,
            None => vec![Dim::Unknown; t.rank() + count],
        };
        let known = operands.known(0).map(|k| k.to_vec());
        Ok(vec![Fact::with_known(
            TensorType::new(t.dtype, shape),
            known,
        )])
    }

    fn reference(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, OpError> {
        let shape = grown(&inputs[0].shape, &inputs[1].ints(), &1)?;
        Ok(vec![inputs[0].reshaped(&shape)?])
    }

    fn cases() -> Vec<Case<Self>> {
        let shapes: [(&[usize], &[i64]); 4] = [
            (&[2, 3], &[0]),
            (&[2, 3], &[-1]),
            (&[2, 3], &[1, 3]),
            (&[], &[0]),
        ];
        let case = |(shape, axes): &(&[usize], &[i64])| {
            let n = shape.iter().product::<usize>() as i64;
            let x = Tensor::from_ints(DType::I32, shape, &(0..n).collect::<Vec<_>>()).ok()?;
            Some(Case {
                op: Self,
                inputs: vec![x, Tensor::from_ints(DType::I32, &[axes.len()], axes).ok()?],
            })
        };
        shapes.iter().filter_map(case).collect()
    }
}

/// `shape` with `one` at the places that `axes` name in the result.
fn grown<T: Clone>(shape: &[T], axes: &[i64], one: &T) -> Result<Vec<T>, OpError> {
    let rank = shape.len() + axes.len();
    let axes = axes
        .iter()
        .map(|&a| axis(a, rank))
        .collect::<Result<Vec<_>, _>>()?;
    let mut rest = shape.iter();
    let at = |i| {
        if axes.contains(&i) {
            Some(one.clone())
        } else {
            rest.next().cloned()
        }
    };
    let shape: Option<Vec<T>> = (0..rank).map(at).collect();
    shape
        .filter(|_| rest.next().is_none())
        .ok_or(OpError::Shape {
            rule: "new axes are named once",
            shapes: format!("{axes:?}"),
        })
}
