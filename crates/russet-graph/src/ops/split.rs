//! `split`: a tensor in parts along an axis.

use std::sync::Arc;

use super::shape::axis;
use super::{Case, Fact, OpDef, Operands};
use crate::attr::Attr;
use crate::error::OpError;
use crate::tensor::{Tensor, TensorMut};
use crate::types::{DType, Dim, TensorType};

simple_op! {
    /// Operands: tensor, sizes (one integer: parts of that size, the last may be smaller; or a vector: the size of each part), axis.
    Split
}

impl OpDef for Split {
    const NAME: &'static str = "split";
    const SUMMARY: &'static str = "a tensor in parts along an axis";
    const ARITY: std::ops::RangeInclusive<usize> = 3..=3;

    fn from_attributes(_: &[(Arc<str>, Attr)]) -> Result<Self, OpError> {
        Ok(Self)
    }

    fn infer(&self, operands: Operands<'_>) -> Result<Vec<Fact>, OpError> {
        let t = operands.tensor(0)?;
        let (Some(sizes), Some(at)) = (operands.known(1), operands.int(2)) else {
            return Err(OpError::Unknown("the sizes of a split"));
        };
        let at = axis(at, t.rank())?;
        let sizes = if operands.tensor(1)?.rank() == 0 {
            even(&t.shape[at], &sizes[0])?
        } else {
            sizes.to_vec()
        };
        let part = |size: Dim| {
            let mut shape = t.shape.clone();
            shape[at] = size;
            TensorType::new(t.dtype, shape).into()
        };
        Ok(sizes.into_iter().map(part).collect())
    }

    fn reference(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, OpError> {
        let x = &inputs[0];
        let at = axis(
            inputs[2].ints().first().copied().unwrap_or(0),
            x.shape.len(),
        )?;
        let sizes: Vec<Dim> = inputs[1].ints().into_iter().map(Dim::Const).collect();
        let sizes = if inputs[1].shape.is_empty() {
            even(&Dim::from(x.shape[at]), &sizes[0])?
        } else {
            sizes
        };
        let sizes: Vec<usize> = sizes
            .iter()
            .filter_map(|d| usize::try_from(d.as_const()?).ok())
            .collect();
        if sizes.iter().sum::<usize>() != x.shape[at] {
            return Err(OpError::shapes(
                "the parts of a split add up to the extent",
                &[&sizes, &x.shape],
            ));
        }
        let inner: usize = x.shape[at + 1..].iter().product();
        let outer: usize = x.shape[..at].iter().product();
        let mut begin = 0;
        let mut parts = Vec::new();
        for size in sizes {
            let mut shape = x.shape.clone();
            shape[at] = size;
            let mut out = TensorMut::zeros(x.dtype, &shape)?;
            for i in 0..outer * size * inner {
                let (o, rest) = (i / (size * inner), i % (size * inner));
                out.set(i, x.get((o * x.shape[at] + begin) * inner + rest));
            }
            begin += size;
            parts.push(out.finish());
        }
        Ok(parts)
    }

    fn cases() -> Vec<Case<Self>> {
        let x = Tensor::from_ints(DType::I32, &[2, 5], &(0..10).collect::<Vec<_>>());
        let case = |sizes: Result<Tensor, OpError>, at: i64| {
            Some(Case {
                op: Self,
                inputs: vec![
                    x.clone().ok()?,
                    sizes.ok()?,
                    Tensor::from_ints(DType::I32, &[], &[at]).ok()?,
                ],
            })
        };
        [
            case(Tensor::from_ints(DType::U32, &[2], &[2, 3]), 1),
            case(Tensor::from_ints(DType::U32, &[], &[2]), -1),
            case(Tensor::from_ints(DType::U32, &[], &[1]), 0),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

/// Sizes of parts of `size`, the last one what is left.
fn even(extent: &Dim, size: &Dim) -> Result<Vec<Dim>, OpError> {
    let (Some(n), Some(size)) = (extent.as_const(), size.as_const()) else {
        return Err(OpError::Unknown("the sizes of a split"));
    };
    if size < 1 || n / size > 1 << 20 {
        return Err(OpError::Range {
            what: "the size of a part",
            value: size,
            allowed: "1 or more".into(),
        });
    }
    Ok((0..n)
        .step_by(size as usize)
        .map(|at| Dim::Const(size.min(n - at)))
        .collect())
}
