//! `argmax`: where the largest element is, along an axis.

use std::sync::Arc;

use super::reduction::along;
use super::shape::axis;
use super::{Case, Fact, OpDef, Operands};
use crate::attr::Attr;
use crate::error::OpError;
use crate::tensor::{Scalar, Tensor, TensorMut};
use crate::types::{DType, Dim, TensorType};

simple_op! {
    /// Operands: tensor, axis (one integer). The axis keeps extent 1; the result is `u32`. The first of equals wins; NaN never
    /// does, and a line without a number gives 0.
    Argmax
}

fn argmax(line: &[Scalar]) -> usize {
    let beats = |a: Scalar, b: Scalar| match (a, b) {
        (Scalar::Float(a), Scalar::Float(b)) => a > b || b.is_nan() && !a.is_nan(),
        _ => a.int() > b.int(),
    };
    let later = |best: usize, k: usize| if beats(line[k], line[best]) { k } else { best };
    (1..line.len()).fold(0, later)
}

impl OpDef for Argmax {
    const NAME: &'static str = "argmax";
    const SUMMARY: &'static str = "where the largest element is, along an axis";
    const ARITY: std::ops::RangeInclusive<usize> = 2..=2;

    fn from_attributes(_: &[(Arc<str>, Attr)]) -> Result<Self, OpError> {
        Ok(Self)
    }

    fn infer(&self, operands: Operands<'_>) -> Result<Vec<Fact>, OpError> {
        let t = operands.tensor(0)?;
        let mut shape = t.shape.clone();
        match operands.int(1) {
            Some(a) => shape[axis(a, t.rank())?] = Dim::Const(1),
            None => shape.fill(Dim::Unknown),
        }
        Ok(vec![TensorType::new(DType::U32, shape).into()])
    }

    fn reference(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, OpError> {
        let x = &inputs[0];
        let mut shape = x.shape.clone();
        let at = axis(inputs[1].ints().first().copied().unwrap_or(0), shape.len())?;
        shape[at] = 1;
        let mut out = TensorMut::zeros(DType::U32, &shape)?;
        along(x, at, |index, line, _| {
            out.set(index, Scalar::Int(argmax(line) as i128));
        });
        Ok(vec![out.finish()])
    }

    fn cases() -> Vec<Case<Self>> {
        let values = [1.0, 3.0, 3.0, f64::NAN, 2.0, f64::NEG_INFINITY];
        let case = |dtype, at| {
            let x = Tensor::from_floats(dtype, &[2, 3], &values).ok()?;
            Some(Case {
                op: Self,
                inputs: vec![x, Tensor::from_ints(DType::I32, &[], &[at]).ok()?],
            })
        };
        [
            case(DType::F32, 0),
            case(DType::F32, -1),
            case(DType::F16, 1),
            case(DType::I32, 0),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}
