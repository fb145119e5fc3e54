//! `rope`: rotary position embedding.

use std::sync::Arc;

use super::shape::{agree, broadcast_index, repeats_to};
use super::{Case, Fact, OpDef, Operands};
use crate::attr::{Attr, Attributes, only, roles, texts, value_or};
use crate::error::OpError;
use crate::tensor::{Scalar, Tensor, TensorMut, round_to};
use crate::types::{DType, Dim, TensorType};

/// Pairs of elements of `[b, …, q, width]` turned by an angle that grows with the position (Su et al., arXiv 2104.09864).
///
/// Operands: input, then those of [`Part`] that are declared. Positions are those given, else `offset..offset + q`, else `0..q`.
/// The angle of pair `i` is `position · frequency · scale` in f32, where the frequency is given or `1 / base^(2i / dims)`;
/// cosine and sine are rounded to the input's kind, and so is each product before the two are added. Where both tables are given,
/// they are the cosines and sines; one alone counts for nothing (exporters write one that holds positions).
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
    /// Which operands follow the input.
    pub parts: Parts,
}

/// An operand of [`Rope`] beside the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Cosines, of the input's kind: repeat to `[b, …, q, pairs]`.
    Cos,
    /// Sines, alike.
    Sin,
    /// Positions `[b, q]` or `[1, q]`, integers.
    Positions,
    /// The frequency of every pair, `[pairs]` of f32.
    Frequencies,
    /// The first position: one integer for all, or one for each of the batch.
    Offset,
}

impl Part {
    const ALL: [(Self, &'static str); 5] = [
        (Self::Cos, "cos"),
        (Self::Sin, "sin"),
        (Self::Positions, "position_ids"),
        (Self::Frequencies, "freqs"),
        (Self::Offset, "offset"),
    ];
}

/// Which operands there are, in the order of [`Part`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parts([bool; 5]);

impl Parts {
    /// These operands.
    pub const fn of(parts: &[Part]) -> Self {
        let mut given = [false; 5];
        let mut i = 0;
        while i < parts.len() {
            given[parts[i] as usize] = true;
            i += 1;
        }
        Self(given)
    }

    /// The number of an operand that counts; none where it is absent, or where another one takes its place.
    pub fn place(self, part: Part) -> Option<usize> {
        let given = |p: Part| self.0[p as usize];
        let tables = given(Part::Cos) && given(Part::Sin);
        let counts = match part {
            Part::Cos | Part::Sin => tables,
            Part::Positions | Part::Frequencies => !tables && given(part),
            Part::Offset => !tables && given(part) && !given(Part::Positions),
        };
        let before = self.0[..part as usize].iter().filter(|g| **g).count();
        counts.then_some(1 + before)
    }

    fn names(self) -> Vec<&'static str> {
        let given = Part::ALL.iter().filter(|(p, _)| self.0[*p as usize]);
        std::iter::once("input")
            .chain(given.map(|(_, n)| *n))
            .collect()
    }
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

    /// Turns of every pair for one position.
    fn frequencies(&self, pairs: usize, inputs: &[Tensor]) -> Vec<f32> {
        let given = self.parts.place(Part::Frequencies).map(|at| &inputs[at]);
        let frequency = |i| match given {
            Some(t) => t.get(i).float() as f32 * self.scale as f32,
            None => self.frequency(i, pairs),
        };
        (0..pairs).map(frequency).collect()
    }

    /// The position of a row of the input `[b, …, q, width]`.
    fn position(&self, row: usize, shape: &[usize], inputs: &[Tensor]) -> f32 {
        let q = shape[shape.len() - 2].max(1);
        let batch = row / shape[1..shape.len() - 1].iter().product::<usize>().max(1);
        let first = |t: &Tensor, each: usize| if t.len() > each { batch * each } else { 0 };
        if let Some(at) = self.parts.place(Part::Positions) {
            let t = &inputs[at];
            return t.get(first(t, q) + row % q).int() as f32;
        }
        let offset = self.parts.place(Part::Offset).map(|at| &inputs[at]);
        let offset = offset.map_or(0, |t| t.get(first(t, 1)).int());
        (offset + (row % q) as i128) as f32
    }

    /// Whether operand `part` may have type `t` beside an input of type `x`.
    fn allows(part: Part, t: &TensorType, x: &TensorType, pairs: &Dim) -> bool {
        let (b, q) = (&x.shape[0], &x.shape[x.rank() - 2]);
        let batched = |d: &Dim| d.as_const() == Some(1) || (x.rank() > 2 && agree(d, b));
        match (part, &t.shape[..]) {
            (Part::Cos | Part::Sin, shape) => {
                let mut table = x.shape.to_vec();
                table.splice(x.rank() - 1.., [pairs.clone()]);
                t.dtype == x.dtype
                    && repeats_to(shape, &table)
                    && shape.last().is_some_and(|n| agree(n, pairs))
            }
            (Part::Positions, [n, length]) => t.dtype.is_int() && batched(n) && agree(length, q),
            (Part::Frequencies, [n]) => t.dtype == DType::F32 && agree(n, pairs),
            (Part::Offset, []) => t.dtype.is_int(),
            (Part::Offset, [n]) => t.dtype.is_int() && batched(n),
            _ => false,
        }
    }

    fn check(&self, types: &[&TensorType]) -> Result<(), OpError> {
        let x = types[0];
        let width = x.shape.last().and_then(Dim::as_const);
        if x.rank() < 2 || !x.dtype.is_float() {
            return Err(OpError::Shape {
                rule: "rows of floats have a position and a width",
                shapes: x.to_string(),
            });
        }
        let width = width.and_then(|w| usize::try_from(w).ok());
        let pairs = self.pairs(width.ok_or(OpError::Unknown("the width of a row"))?)?;
        for (part, name) in Part::ALL {
            let Some(at) = self.parts.place(part) else {
                continue;
            };
            let t = types.get(at).ok_or(OpError::Unknown("an operand"))?;
            if !Self::allows(part, t, x, &Dim::from(pairs)) {
                let shapes = format!("{name} {t} for {x}");
                return Err(OpError::Shape {
                    rule: "positions, frequencies and tables fit the input",
                    shapes,
                });
            }
        }
        Ok(())
    }
}

impl OpDef for Rope {
    const NAME: &'static str = "rope";
    const SUMMARY: &'static str = "rotary position embedding";
    const ARITY: std::ops::RangeInclusive<usize> = 1..=6;

    fn attributes(&self) -> Attributes {
        let mut out: Attributes = vec![
            ("base".into(), Attr::float(self.base)),
            ("interleaved".into(), Attr::Bool(self.interleaved)),
            ("scale".into(), Attr::float(self.scale)),
        ];
        out.extend(self.dims.map(|d| ("dims".into(), Attr::Int(d as i64))));
        out.push(("inputs".into(), texts(&self.parts.names())));
        out
    }

    fn from_attributes(attributes: &[(Arc<str>, Attr)]) -> Result<Self, OpError> {
        only(attributes, &["base", "scale", "dims", "interleaved"])?;
        let names = roles(attributes);
        let given: Vec<Part> = Part::ALL
            .iter()
            .filter(|(_, n)| names.contains(n))
            .map(|(p, _)| *p)
            .collect();
        let parts = Parts::of(&given);
        if parts.names() != names {
            return Err(OpError::Attribute {
                name: "inputs",
                expected: "input, then of cos, sin, position_ids, freqs and offset those that are there",
            });
        }
        let number = |name, default| {
            value_or(attributes, name, default, (Attr::as_float, "a number"))
        };
        let count = |a: &Attr| a.as_int().and_then(|d| usize::try_from(d).ok()).map(Some);
        let truth = (Attr::as_bool, "true or false");
        Ok(Self {
            base: number("base", 1e4)?,
            scale: number("scale", 1.0)?,
            dims: value_or(attributes, "dims", None, (count, "a positive integer"))?,
            interleaved: value_or(attributes, "interleaved", false, truth)?,
            parts,
        })
    }

    fn infer(&self, operands: Operands<'_>) -> Result<Vec<Fact>, OpError> {
        let types: Vec<&TensorType> = (0..operands.len())
            .map(|i| operands.tensor(i))
            .collect::<Result<_, _>>()?;
        if types.len() != self.parts.names().len() {
            return Err(OpError::Arity {
                expected: self.parts.names().len().to_string(),
                got: types.len(),
            });
        }
        self.check(&types)?;
        let shape = types[0].shape.iter().cloned();
        Ok(vec![TensorType::new(types[0].dtype, shape).into()])
    }

    fn reference(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, OpError> {
        let types: Vec<TensorType> = inputs.iter().map(Tensor::ty).collect();
        self.check(&types.iter().collect::<Vec<_>>())?;
        let x = &inputs[0];
        let rank = x.shape.len();
        let width = x.shape[rank - 1];
        let pairs = self.pairs(width)?;
        let round = |v: f64| round_to(x.dtype, v);
        let frequencies = self.frequencies(pairs, inputs);
        let tables = [Part::Cos, Part::Sin].map(|p| self.parts.place(p).map(|at| &inputs[at]));
        let table_shape = [&x.shape[..rank - 1], &[pairs]].concat();
        let turn = |row: usize, i: usize| match tables {
            [Some(cos), Some(sin)] => [cos, sin].map(|t| {
                t.get(broadcast_index(row * pairs + i, &table_shape, &t.shape))
                    .float()
            }),
            _ => {
                let angle = f64::from(self.position(row, &x.shape, inputs) * frequencies[i]);
                [round(angle.cos()), round(angle.sin())]
            }
        };
        let mut out = TensorMut::zeros(x.dtype, &x.shape)?;
        for row in 0..x.len() / width.max(1) {
            (0..width).for_each(|i| out.set(row * width + i, x.get(row * width + i)));
            for i in 0..pairs {
                let [cos, sin] = turn(row, i);
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
        use Part::{Cos, Frequencies, Offset, Positions, Sin};
        let op = |parts: &[Part]| Self {
            base: 1e4,
            scale: 1.0,
            dims: None,
            interleaved: false,
            parts: Parts::of(parts),
        };
        let pairs = |parts: &[Part]| Self {
            interleaved: true,
            ..op(parts)
        };
        let part = |dims, parts: &[Part]| Self {
            dims: Some(dims),
            scale: 0.5,
            ..op(parts)
        };
        let one = Tensor::from_ints(DType::I32, &[1, 3], &[7, 8, 9]).ok();
        let each = Tensor::from_ints(DType::I32, &[2, 3], &[7, 8, 9, 0, 4, 5]).ok();
        let turns = Tensor::from_floats(DType::F32, &[4], &[1.0, 0.5, 0.25, 0.125]).ok();
        let first = Tensor::from_ints(DType::I32, &[], &[5]).ok();
        let firsts = Tensor::from_ints(DType::I32, &[2], &[5, 11]).ok();
        let cos = Tensor::from_floats(DType::F16, &[3, 2], &[0.5, 0.25, -1.0, 0.0, 0.75, 1.0]).ok();
        let sin = Tensor::from_floats(
            DType::F16,
            &[2, 1, 1, 2],
            &[0.125, -0.5, 0.875, 1.0],
        )
        .ok();
        [
            case(op(&[Cos]), DType::F16, 1, vec![one.clone()]),
            case(pairs(&[Positions]), DType::F32, 1, vec![one.clone()]),
            case(part(4, &[Positions]), DType::F16, 1, vec![one.clone()]),
            case(op(&[]), DType::BF16, 1, vec![]),
            case(op(&[Positions]), DType::F16, 2, vec![each]),
            case(op(&[Positions, Frequencies]), DType::F32, 1, vec![one, turns.clone()]),
            case(pairs(&[Frequencies]), DType::F16, 2, vec![turns]),
            case(op(&[Offset]), DType::F16, 1, vec![first]),
            case(op(&[Offset]), DType::BF16, 2, vec![firsts]),
            case(part(4, &[Cos, Sin]), DType::F16, 2, vec![cos, sin]),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

/// A case of two heads, three rows and eight elements a row.
fn case(op: Rope, dtype: DType, batch: usize, rest: Vec<Option<Tensor>>) -> Option<Case<Rope>> {
    let shape = [batch, 2, 3, 8];
    let values: Vec<f64> = (0..shape.iter().product())
        .map(|i: usize| (i * 5 % 13) as f64 * 0.25 - 1.5)
        .collect();
    let mut inputs = vec![Tensor::from_floats(dtype, &shape, &values).ok()?];
    inputs.extend(rest.into_iter().collect::<Option<Vec<_>>>()?);
    Some(Case { op, inputs })
}
