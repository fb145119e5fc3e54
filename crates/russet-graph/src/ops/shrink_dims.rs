//! `shrink_dims`: without some axes of extent 1.

use std::sync::Arc;

use super::shape::axis;
use super::{Case, Fact, OpDef, Operands};
use crate::attr::Attr;
use crate::error::OpError;
use crate::tensor::Tensor;
use crate::types::{DType, Dim, TensorType};

simple_op! {
    /// Operands: tensor, axes (integers) of extent 1 that go.
    ShrinkDims
}

impl OpDef for ShrinkDims {
    const NAME: &'static str = "shrink_dims";
    const SUMMARY: &'static str = "without some axes of extent 1";
    const ARITY: std::ops::RangeInclusive<usize> = 2..=2;

    fn from_attributes(_: &[(Arc<str>, Attr)]) -> Result<Self, OpError> {
        Ok(Self)
    }

    fn infer(&self, operands: Operands<'_>) -> Result<Vec<Fact>, OpError> {
        let t = operands.tensor(0)?;
        let count = operands
            .tensor(1)?
            .fixed_len()
            .ok_or(OpError::Unknown("how many axes go"))?;
        let shape = match operands.ints(1) {
            Some(axes) => shrunk(&t.shape, &axes, |d| d.as_const().is_none_or(|c| c == 1))?,
            None => vec![Dim::Unknown; t.rank().saturating_sub(count)],
        };
        let known = operands.known(0).map(|k| k.to_vec());
        Ok(vec![Fact::with_known(
            TensorType::new(t.dtype, shape),
            known,
        )])
    }

    fn reference(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, OpError> {
        let shape = shrunk(&inputs[0].shape, &inputs[1].ints(), |&d| d == 1)?;
        Ok(vec![inputs[0].reshaped(&shape)?])
    }

    fn cases() -> Vec<Case<Self>> {
        let shapes: [(&[usize], &[i64]); 4] = [
            (&[1, 3], &[0]),
            (&[2, 1, 3, 1], &[1, -1]),
            (&[1], &[0]),
            (&[2], &[]),
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

/// `shape` without the axes, each of which must be `one`.
fn shrunk<T: Clone>(
    shape: &[T],
    axes: &[i64],
    one: impl Fn(&T) -> bool,
) -> Result<Vec<T>, OpError> {
    let axes = axes
        .iter()
        .map(|&a| axis(a, shape.len()))
        .collect::<Result<Vec<_>, _>>()?;
    if axes.iter().any(|&a| !one(&shape[a])) {
        return Err(OpError::Shape {
            rule: "axes that go have extent 1",
            shapes: format!("{axes:?}"),
        });
    }
    Ok(shape
        .iter()
        .enumerate()
        .filter(|(i, _)| !axes.contains(i))
        .map(|(_, d)| d.clone())
        .collect())
}
