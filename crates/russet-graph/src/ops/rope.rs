//! `rope`: rotary position embedding.

use std::sync::Arc;

use super::{Case, Fact, OpDef, Operands};
use crate::attr::{Attr, Attributes, find, roles, texts};
use crate::error::OpError;
use crate::tensor::{Scalar, Tensor, TensorMut, round_to};
use crate::types::{DType, Dim, TensorType};

/// Pairs of elements of `[…, q, width]` turned by an angle that grows with the position (Su et al., arXiv 2104.09864).
///
/// Operand 1, where there is one, holds positions `[1, q]` or is a `cos` without a `sin`, which counts for nothing: exporters
/// write that, and positions are then `0..q`. The angle of pair `i` is `position · scale / base^(2i / dims)` in f32; cosine and
/// sine are rounded to the input's kind, and so is each product before the two are added.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rope {
    /// The slowest pair turns this many times slower than the fastest.
    pub base: f64,
    /// Multiplies the angles.
    pub scale: f64,
    /// Elements that are turned, the whole row by default; the others are copied.
    pub dims: Option<usize>,
    /// Pairs are neighbours, not elements of the two halves.
    pub interleaved: bool,
    /// What operand 1 is.
    pub second: Second,
}

/// What the second operand of [`Rope`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Second {
    /// There is none.
    None,
    /// A `cos` table that is not used.
    Cos,
    /// Positions.
    Positions,
}

impl Second {
    const ROLES: [(Self, &'static [&'static str]); 3] = [
        (Self::None, &["input"]),
        (Self::Cos, &["input", "cos"]),
        (Self::Positions, &["input", "position_ids"]),
    ];
}

impl Rope {
    /// Pairs of a row of `width` elements.
    pub fn pairs(&self, width: usize) -> Result<usize, OpError> {
        let dims = self.dims.filter(|d| *d < width).unwrap_or(width);
        if dims < 2 || !dims.is_multiple_of(2) {
            let value = dims as i64;
            return Err(OpError::Range {
                what: "the elements to turn",
                value,
                allowed: "an even number from 2".into(),
            });
        }
        Ok(dims / 2)
    }

    /// Turns of pair `i` of `pairs` for one position, in f32 as the exporters' constant is.
    pub fn frequency(&self, i: usize, pairs: usize) -> f32 {
        let exponent = i as f32 / pairs as f32;
        1.0 / (self.base as f32).powf(exponent) * self.scale as f32
    }
}

impl OpDef for Rope {
    const NAME: &'static str = "rope";
    const SUMMARY: &'static str = "rotary position embedding";
    const ARITY: std::ops::RangeInclusive<usize> = 1..=2;

    fn attributes(&self) -> Attributes {
        let roles = Second::ROLES
            .iter()
            .find(|(s, _)| *s == self.second)
            .map_or(&[][..], |(_, r)| r);
        let mut out: Attributes = vec![
            ("base".into(), Attr::float(self.base)),
            ("interleaved".into(), Attr::Bool(self.interleaved)),
            ("scale".into(), Attr::float(self.scale)),
        ];
        out.extend(self.dims.map(|d| ("dims".into(), Attr::Int(d as i64))));
        out.push(("inputs".into(), texts(roles)));
        out
    }

    fn from_attributes(attributes: &[(Arc<str>, Attr)]) -> Result<Self, OpError> {
        let roles = roles(attributes);
        let known = Second::ROLES.iter().find(|(_, r)| *r == roles);
        let second = known.map(|(s, _)| *s).ok_or(OpError::Attribute {
            name: "inputs",
            expected: "input, or input and positions",
        })?;
        let dims = match find(attributes, "dims") {
            None | Some(Attr::Unit) => None,
            Some(d) => {
                let dims = d.as_int().and_then(|d| usize::try_from(d).ok());
                Some(dims.ok_or(OpError::Attribute {
                    name: "dims",
                    expected: "a positive integer",
                })?)
            }
        };
        let number = |name, default| find(attributes, name).map_or(Some(default), Attr::as_float);
        Ok(Self {
            base: number("base", 1e4).ok_or(OpError::Attribute {
                name: "base",
                expected: "a number",
            })?,
            scale: number("scale", 1.0).ok_or(OpError::Attribute {
                name: "scale",
                expected: "a number",
            })?,
            interleaved: find(attributes, "interleaved")
                .and_then(Attr::as_bool)
                .unwrap_or(false),
            dims,
            second,
        })
    }

    fn infer(&self, operands: Operands<'_>) -> Result<Vec<Fact>, OpError> {
        let x = operands.tensor(0)?;
        let width = x
            .shape
            .last()
            .and_then(Dim::as_const)
            .and_then(|w| usize::try_from(w).ok());
        if x.rank() < 2 {
            return Err(OpError::Shape {
                rule: "rows have a position and a width",
                shapes: x.to_string(),
            });
        }
        self.pairs(width.ok_or(OpError::Unknown("the width of a row"))?)?;
        // A float `cos` would be a table: that is another operation.
        if self.second != Second::None && !operands.tensor(1)?.dtype.is_int() {
            return Err(OpError::Kind {
                rule: "positions are integers",
                index: 1,
                got: operands.tensor(1)?.dtype,
            });
        }
        Ok(vec![
            TensorType::new(x.dtype, x.shape.iter().cloned()).into(),
        ])
    }

    fn reference(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, OpError> {
        let x = &inputs[0];
        let [.., q, width] = x.shape[..] else {
            return Err(OpError::shapes(
                "rows have a position and a width",
                &[&x.shape],
            ));
        };
        let pairs = self.pairs(width)?;
        let round = |v: f64| round_to(x.dtype, v);
        let mut out = TensorMut::zeros(x.dtype, &x.shape)?;
        for row in 0..x.len() / width.max(1) {
            let position = match self.second {
                Second::Positions => inputs[1].get(row % q % inputs[1].len().max(1)).int() as f32,
                _ => (row % q) as f32,
            };
            (0..width).for_each(|i| out.set(row * width + i, x.get(row * width + i)));
            for i in 0..pairs {
                let angle = f64::from(position * self.frequency(i, pairs));
                let (cos, sin) = (round(angle.cos()), round(angle.sin()));
                let (a, b) = if self.interleaved {
                    (2 * i, 2 * i + 1)
                } else {
                    (i, i + pairs)
                };
                let (a, b) = (row * width + a, row * width + b);
                let (u, v) = (x.get(a).float(), x.get(b).float());
                out.set(a, Scalar::Float(round(cos * u) - round(sin * v)));
                out.set(b, Scalar::Float(round(sin * u) + round(cos * v)));
            }
        }
        Ok(vec![out.finish()])
    }

    fn cases() -> Vec<Case<Self>> {
        let values: Vec<f64> = (0..2 * 3 * 8)
            .map(|i| (i * 5 % 13) as f64 * 0.25 - 1.5)
            .collect();
        let case = |dtype, dims, interleaved, second: Second| {
            let mut inputs = vec![Tensor::from_floats(dtype, &[1, 2, 3, 8], &values).ok()?];
            if second != Second::None {
                inputs.push(Tensor::from_ints(DType::I32, &[1, 3], &[7, 8, 9]).ok()?);
            }
            Some(Case {
                op: Self {
                    base: 1e4,
                    scale: 1.0,
                    dims,
                    interleaved,
                    second,
                },
                inputs,
            })
        };
        [
            case(DType::F16, None, false, Second::Cos),
            case(DType::F32, None, true, Second::Positions),
            case(DType::F16, Some(4), false, Second::Positions),
            case(DType::BF16, None, false, Second::None),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}
