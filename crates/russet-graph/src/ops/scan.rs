//! `scan`: running sum, product, minimum or maximum along an axis.

use std::sync::Arc;

use super::family::{by_class, unary_infer};
use super::reduction::along;
use super::shape::axis;
use super::{Case, Fact, OpDef, Operands};
use crate::attr::{Attr, Attributes, find};
use crate::error::OpError;
use crate::tensor::{Scalar, Tensor, TensorMut};
use crate::types::DType;

/// What the elements so far are combined with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Combiner {
    /// Sum; integers wrap.
    #[default]
    Sum,
    /// Product; integers wrap.
    Product,
    /// Smallest; NaN is passed over.
    Min,
    /// Largest; NaN is passed over.
    Max,
}

impl Combiner {
    const NAMES: [(Self, &'static str); 4] = [
        (Self::Sum, "sum"),
        (Self::Product, "product"),
        (Self::Min, "min"),
        (Self::Max, "max"),
    ];

    /// The value before the first element.
    fn start(self, float: bool) -> Scalar {
        let (f, i) = match self {
            Self::Sum => (0.0, 0),
            Self::Product => (1.0, 1),
            Self::Min => (f64::INFINITY, i128::MAX),
            Self::Max => (f64::NEG_INFINITY, i128::MIN),
        };
        if float {
            Scalar::Float(f)
        } else {
            Scalar::Int(i)
        }
    }

    fn apply(self, a: Scalar, x: Scalar) -> Scalar {
        match self {
            Self::Sum => by_class(a, x, |a, x| a + x, i128::wrapping_add),
            Self::Product => by_class(a, x, |a, x| a * x, i128::wrapping_mul),
            Self::Min => by_class(a, x, |a, x| if x < a { x } else { a }, i128::min),
            Self::Max => by_class(a, x, |a, x| if x > a { x } else { a }, i128::max),
        }
    }
}

/// Operands: tensor, axis, reverse (bool). Every element is combined with those before it (after it, in reverse), itself
/// included; each step rounds to the element kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scan {
    /// How elements are combined.
    pub combiner: Combiner,
}

impl OpDef for Scan {
    const NAME: &'static str = "scan";
    const SUMMARY: &'static str = "running sum, product, minimum or maximum along an axis";
    const ARITY: std::ops::RangeInclusive<usize> = 3..=3;

    fn attributes(&self) -> Attributes {
        let name = Combiner::NAMES
            .iter()
            .find(|(c, _)| *c == self.combiner)
            .map_or("sum", |(_, n)| n);
        vec![("combiner".into(), Attr::str(name))]
    }

    fn from_attributes(attributes: &[(Arc<str>, Attr)]) -> Result<Self, OpError> {
        let name = find(attributes, "combiner").and_then(Attr::as_str);
        let found = Combiner::NAMES.iter().find(|(_, n)| name == Some(*n));
        found
            .map(|(combiner, _)| Self {
                combiner: *combiner,
            })
            .ok_or(OpError::Attribute {
                name: "combiner",
                expected: "sum, product, min or max",
            })
    }

    fn infer(&self, operands: Operands<'_>) -> Result<Vec<Fact>, OpError> {
        if let Some(a) = operands.int(1) {
            axis(a, operands.tensor(0)?.rank())?;
        }
        unary_infer(operands)
    }

    fn reference(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, OpError> {
        let x = &inputs[0];
        let at = axis(
            inputs[1].ints().first().copied().unwrap_or(0),
            x.shape.len(),
        )?;
        let reverse = inputs[2].scalars().next().is_some_and(Scalar::bool);
        let mut out = TensorMut::zeros(x.dtype, &x.shape)?;
        along(x, at, |_, line, places| {
            let mut sum = self.combiner.start(x.dtype.is_float());
            for k in 0..line.len() {
                let k = if reverse { line.len() - 1 - k } else { k };
                out.set(places[k], self.combiner.apply(sum, line[k]));
                sum = out.get(places[k]);
            }
        });
        Ok(vec![out.finish()])
    }

    fn cases() -> Vec<Case<Self>> {
        let values = [1.0, -3.0, 3.0, 2.5, f64::NAN, 1e3];
        let case = |combiner, dtype, at, reverse| {
            let inputs = vec![
                Tensor::from_floats(dtype, &[2, 3], &values).ok()?,
                Tensor::from_ints(DType::U32, &[], &[at]).ok()?,
                Tensor::from_ints(DType::Bool, &[], &[reverse]).ok()?,
            ];
            Some(Case {
                op: Self { combiner },
                inputs,
            })
        };
        let all = |(combiner, _)| {
            [
                case(combiner, DType::F32, 1, 0),
                case(combiner, DType::F16, 0, 1),
                case(combiner, DType::I32, 1, 1),
            ]
        };
        Combiner::NAMES
            .into_iter()
            .flat_map(all)
            .flatten()
            .collect()
    }
}
