//! `scatter_along_axis`: elements replaced at positions along an axis.

use std::sync::Arc;

use super::shape::{axis, position};
use super::{Case, Fact, OpDef, Operands};
use crate::attr::{Attr, Attributes, find};
use crate::error::OpError;
use crate::tensor::{Scalar, Tensor, TensorMut, strides};
use crate::types::{DType, TensorType};

/// How an update meets the element that is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScatterMode {
    /// It takes its place; of several the last stays.
    #[default]
    Update,
    /// Sum.
    Add,
    /// Difference.
    Sub,
    /// Product.
    Mul,
    /// Quotient.
    Div,
    /// The larger.
    Max,
    /// The smaller.
    Min,
}

impl ScatterMode {
    /// Every mode with its name.
    pub const NAMES: [(Self, &'static str); 7] = [
        (Self::Update, "update"),
        (Self::Add, "add"),
        (Self::Sub, "sub"),
        (Self::Mul, "mul"),
        (Self::Div, "div"),
        (Self::Max, "max"),
        (Self::Min, "min"),
    ];

    fn apply(self, old: Scalar, new: Scalar) -> Result<Scalar, OpError> {
        if self == Self::Update {
            return Ok(new);
        }
        match (old, new) {
            (Scalar::Float(a), Scalar::Float(b)) => Ok(Scalar::Float(match self {
                Self::Update => b,
                Self::Add => a + b,
                Self::Sub => a - b,
                Self::Mul => a * b,
                Self::Div => a / b,
                Self::Max => a.max(b),
                Self::Min => a.min(b),
            })),
            (Scalar::Int(a), Scalar::Int(b)) => match self {
                Self::Update => Some(b),
                Self::Add => a.checked_add(b),
                Self::Sub => a.checked_sub(b),
                Self::Mul => a.checked_mul(b),
                Self::Div => a.checked_div(b),
                Self::Max => Some(a.max(b)),
                Self::Min => Some(a.min(b)),
            }
            .map(Scalar::Int)
            .ok_or(OpError::Unknown("a quotient by zero")),
            // For truth values a sum is "or" and a product is "and".
            (Scalar::Bool(a), Scalar::Bool(b)) => Ok(Scalar::Bool(match self {
                Self::Add | Self::Max => a | b,
                Self::Mul | Self::Min => a & b,
                Self::Sub => a ^ b,
                Self::Update | Self::Div => b,
            })),
            _ => Err(OpError::Unknown("the order of complex numbers")),
        }
    }
}

/// Operands: tensor, indices, updates, axis. `out[.., indices[.., i, ..], ..]` meets `updates[.., i, ..]` as `mode` says, one
/// after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScatterAlongAxis {
    /// How an update meets the element that is there.
    pub mode: ScatterMode,
}

impl OpDef for ScatterAlongAxis {
    const NAME: &'static str = "scatter_along_axis";
    const SUMMARY: &'static str = "elements replaced at positions along an axis";
    const ARITY: std::ops::RangeInclusive<usize> = 4..=4;

    fn attributes(&self) -> Attributes {
        let name = ScatterMode::NAMES.iter().find(|(m, _)| *m == self.mode);
        match name {
            Some((mode, name)) if *mode != ScatterMode::Update => {
                vec![("scatter_mode".into(), Attr::str(name))]
            }
            _ => Vec::new(),
        }
    }

    fn from_attributes(attributes: &[(Arc<str>, Attr)]) -> Result<Self, OpError> {
        let Some(given) = find(attributes, "scatter_mode") else {
            return Ok(Self::default());
        };
        let mode = ScatterMode::NAMES
            .iter()
            .find(|(_, name)| given.as_str() == Some(*name));
        mode.map(|(mode, _)| Self { mode: *mode })
            .ok_or(OpError::Attribute {
                name: "scatter_mode",
                expected: "update, add, sub, mul, div, max or min",
            })
    }

    fn infer(&self, operands: Operands<'_>) -> Result<Vec<Fact>, OpError> {
        let t = operands.tensor(0)?;
        Ok(vec![
            TensorType::new(t.dtype, t.shape.iter().cloned()).into(),
        ])
    }

    fn reference(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, OpError> {
        let (x, ids, updates) = (&inputs[0], &inputs[1], &inputs[2]);
        let at = axis(
            inputs[3].ints().first().copied().unwrap_or(0),
            x.shape.len(),
        )?;
        if ids.shape.len() != x.shape.len() || ids.shape != updates.shape {
            return Err(OpError::shapes(
                "indices and updates have one shape of the tensor's rank",
                &[&ids.shape, &updates.shape],
            ));
        }
        let to = strides(&x.shape);
        let mut out = TensorMut::zeros(x.dtype, &x.shape)?;
        (0..x.len()).for_each(|i| out.set(i, x.get(i)));
        for i in 0..ids.len() {
            let (mut rest, mut offset) = (i, 0);
            for k in (0..ids.shape.len()).rev() {
                let coordinate = (rest % ids.shape[k]) as i64;
                rest /= ids.shape[k];
                let coordinate = if k == at {
                    ids.get(i).int() as i64
                } else {
                    coordinate
                };
                offset += position(coordinate, x.shape[k])? * to[k];
            }
            out.set(offset, self.mode.apply(out.get(offset), updates.get(i))?);
        }
        Ok(vec![out.finish()])
    }

    fn cases() -> Vec<Case<Self>> {
        let ints = |shape: &[usize], v: &[i64]| Tensor::from_ints(DType::I32, shape, v).ok();
        let x = ints(&[3, 4], &(0..12).collect::<Vec<_>>());
        let case = |ids: Option<Tensor>, u: Option<Tensor>, at: i64, mode| {
            Some(Case {
                op: Self { mode },
                inputs: vec![x.clone()?, ids?, u?, ints(&[], &[at])?],
            })
        };
        [
            case(
                ints(&[1, 4], &[2, 0, 1, 2]),
                ints(&[1, 4], &[91, 92, 93, 94]),
                0,
                ScatterMode::Update,
            ),
            case(
                ints(&[3, 1], &[3, 0, -1]),
                ints(&[3, 1], &[91, 92, 93]),
                1,
                ScatterMode::Update,
            ),
        ]
        .into_iter()
        .chain(ScatterMode::NAMES.map(|(mode, _)| {
            let twice = ints(&[3, 2], &[1, 1, 0, 2, -1, -1]);
            case(twice, ints(&[3, 2], &[2, 3, 4, 5, 6, 7]), 1, mode)
        }))
        .flatten()
        .collect()
    }
}
