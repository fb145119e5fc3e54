//! `range`: evenly spaced numbers.

use std::sync::Arc;

use super::{Case, Fact, OpDef, Operands};
use crate::attr::Attr;
use crate::error::OpError;
use crate::tensor::{Scalar, Tensor, TensorMut};
use crate::types::{DType, Dim, TensorType};

simple_op! {
    /// Operands: start, stop, step, of one element each and one kind. `start, start + step, …` up to but without `stop`.
    Range
}

impl OpDef for Range {
    const NAME: &'static str = "range";
    const SUMMARY: &'static str = "evenly spaced numbers";
    const ARITY: std::ops::RangeInclusive<usize> = 3..=3;

    fn from_attributes(_: &[(Arc<str>, Attr)]) -> Result<Self, OpError> {
        Ok(Self)
    }

    fn infer(&self, operands: Operands<'_>) -> Result<Vec<Fact>, OpError> {
        let dtype = operands.tensor(0)?.dtype;
        let first = |i: usize| operands.known(i).and_then(|k| k.first().cloned());
        let (Some(start), Some(stop), Some(step)) = (first(0), first(1), first(2)) else {
            return Ok(vec![TensorType::new(dtype, [Dim::Unknown]).into()]);
        };
        let span = stop.sub(&start);
        let count = match step.as_const() {
            Some(1) => span,
            Some(0) | None => Dim::Unknown,
            Some(s) => span.add(&Dim::Const(s - s.signum())).div(&step),
        };
        let count = count.as_const().map_or(count, |c| Dim::Const(c.max(0)));
        let known = count.as_const().filter(|&c| c <= super::KNOWN_LIMIT as i64);
        let known = known.map(|c| {
            (0..c)
                .map(|i| start.add(&step.mul(&Dim::Const(i))))
                .collect()
        });
        Ok(vec![Fact::with_known(
            TensorType::new(dtype, [count]),
            known,
        )])
    }

    fn reference(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, OpError> {
        let at = |i: usize| inputs[i].get(0);
        if inputs[..3].iter().any(Tensor::is_empty) {
            return Err(OpError::Unknown("a bound of a range"));
        }
        let (start, stop, step) = (at(0), at(1), at(2));
        if step.float() == 0.0 {
            return Err(OpError::Range {
                what: "the step of a range",
                value: 0,
                allowed: "not 0".into(),
            });
        }
        let floats = inputs[0].dtype.is_float();
        let count = if floats {
            ((stop.float() - start.float()) / step.float())
                .ceil()
                .max(0.0) as usize
        } else {
            let (span, step) = (stop.int() - start.int(), step.int());
            usize::try_from((span + step - step.signum()).div_euclid(step).max(0)).unwrap_or(0)
        };
        let mut out = TensorMut::zeros(inputs[0].dtype, &[count])?;
        for i in 0..count {
            out.set(
                i,
                if floats {
                    Scalar::Float(start.float() + i as f64 * step.float())
                } else {
                    Scalar::Int(start.int() + i as i128 * step.int())
                },
            );
        }
        Ok(vec![out.finish()])
    }

    fn cases() -> Vec<Case<Self>> {
        let case = |dtype, v: [f64; 3]| {
            let one = |x: f64| {
                Tensor::from_scalars(
                    dtype,
                    &[],
                    &[if dtype == DType::I32 {
                        Scalar::Int(x as i128)
                    } else {
                        Scalar::Float(x)
                    }],
                )
                .ok()
            };
            Some(Case {
                op: Self,
                inputs: vec![one(v[0])?, one(v[1])?, one(v[2])?],
            })
        };
        [
            case(DType::I32, [0.0, 10.0, 1.0]),
            case(DType::I32, [10.0, 0.0, -3.0]),
            case(DType::I32, [3.0, 3.0, 1.0]),
            case(DType::F32, [0.0, 1.0, 0.25]),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}
