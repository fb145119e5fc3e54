//! `concat`: tensors one after another along an axis.

use std::sync::Arc;

use super::shape::{axis, dims_error};
use super::{Case, Fact, OpDef, Operands};
use crate::attr::Attr;
use crate::error::OpError;
use crate::tensor::{Tensor, TensorMut};
use crate::types::{DType, Dim, TensorType};

simple_op! {
    /// Operands: axis (one integer), then the tensors. Tensors of rank 0 count as rank 1.
    Concat
}

impl OpDef for Concat {
    const NAME: &'static str = "concat";
    const SUMMARY: &'static str = "tensors one after another along an axis";
    const ARITY: std::ops::RangeInclusive<usize> = 2..=usize::MAX;

    fn from_attributes(_: &[(Arc<str>, Attr)]) -> Result<Self, OpError> {
        Ok(Self)
    }

    fn infer(&self, operands: Operands<'_>) -> Result<Vec<Fact>, OpError> {
        let rank = operands.tensor(1)?.rank().max(1);
        let Some(at) = operands.int(0) else {
            return Ok(vec![
                TensorType::new(operands.tensor(1)?.dtype, vec![Dim::Unknown; rank]).into(),
            ]);
        };
        let at = axis(at, rank)?;
        let mut shape = vec![Dim::Unknown; rank];
        let mut total = Dim::Const(0);
        let mut known = Some(Vec::new());
        for i in 1..operands.len() {
            let t = operands.tensor(i)?;
            let part = if t.rank() == 0 {
                vec![Dim::Const(1)]
            } else {
                t.shape.clone()
            };
            if part.len() != rank {
                return Err(dims_error(
                    "parts of a concat have one rank",
                    &[&shape, &part],
                ));
            }
            total = total.add(&part[at]);
            for (have, new) in shape.iter_mut().zip(&part) {
                if have.as_const().is_none() && !new.is_unknown() {
                    *have = new.clone();
                }
            }
            known = known.and_then(|mut all| {
                all.extend(operands.known(i)?.iter().cloned());
                Some(all)
            });
        }
        shape[at] = total;
        let known = known.filter(|_| rank == 1);
        Ok(vec![Fact::with_known(
            TensorType::new(operands.tensor(1)?.dtype, shape),
            known,
        )])
    }

    fn reference(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, OpError> {
        let rank = inputs[1].shape.len().max(1);
        let at = axis(inputs[0].ints().first().copied().unwrap_or(0), rank)?;
        let parts: Vec<Vec<usize>> = inputs[1..]
            .iter()
            .map(|t| {
                if t.shape.is_empty() {
                    vec![1]
                } else {
                    t.shape.clone()
                }
            })
            .collect();
        let mut shape = parts[0].clone();
        let others = |s: &[usize]| {
            s.iter()
                .enumerate()
                .filter(|(i, _)| *i != at)
                .map(|(_, d)| *d)
                .collect::<Vec<_>>()
        };
        if let Some(p) = parts
            .iter()
            .find(|p| p.len() != rank || others(p) != others(&shape))
        {
            return Err(OpError::shapes(
                "parts of a concat differ only along its axis",
                &[&shape, p],
            ));
        }
        shape[at] = parts.iter().map(|p| p[at]).sum();
        let mut out = TensorMut::zeros(inputs[1].dtype, &shape)?;
        let inner: usize = shape[at + 1..].iter().product();
        let outer: usize = shape[..at].iter().product();
        let mut begin = 0;
        for (t, part) in inputs[1..].iter().zip(&parts) {
            let run = part[at] * inner;
            for o in 0..outer {
                for i in 0..run {
                    out.set(o * shape[at] * inner + begin + i, t.get(o * run + i));
                }
            }
            begin += run;
        }
        Ok(vec![out.finish()])
    }

    fn cases() -> Vec<Case<Self>> {
        let ints = |shape: &[usize], from: i64| {
            let n = shape.iter().product::<usize>() as i64;
            Tensor::from_ints(DType::I32, shape, &(from..from + n).collect::<Vec<_>>()).ok()
        };
        let case = |at: i64, parts: [Option<Tensor>; 2]| {
            let axis = Tensor::from_ints(DType::I32, &[], &[at]).ok()?;
            let [a, b] = parts;
            Some(Case {
                op: Self,
                inputs: vec![axis, a?, b?],
            })
        };
        [
            case(0, [ints(&[2, 3], 0), ints(&[1, 3], 50)]),
            case(-1, [ints(&[2, 3], 0), ints(&[2, 2], 50)]),
            case(0, [ints(&[3], 0), ints(&[0], 0)]),
            case(0, [ints(&[], 7), ints(&[2], 8)]),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}
