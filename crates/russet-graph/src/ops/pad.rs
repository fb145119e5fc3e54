//! `pad`: elements before and after a tensor along its axes.

use std::sync::Arc;

use super::shape::{dims_error, unravel};
use super::{Case, Fact, OpDef, Operands};
use crate::attr::{Attr, Attributes, find};
use crate::error::OpError;
use crate::tensor::{Tensor, TensorMut, strides};
use crate::types::{DType, Dim, TensorType};

/// Where new elements come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PaddingMode {
    /// All are the padding value.
    #[default]
    Constant,
    /// The nearest element of the tensor.
    Replicate,
    /// The tensor mirrored at its border, without the border.
    Reflect,
    /// The tensor mirrored at its border, with the border.
    Symmetric,
    /// The tensor again from its other end.
    Circular,
}

impl PaddingMode {
    const NAMES: [(Self, &'static str); 5] = [
        (Self::Constant, "constant"),
        (Self::Replicate, "replicate"),
        (Self::Reflect, "reflect"),
        (Self::Symmetric, "symmetric"),
        (Self::Circular, "circular"),
    ];

    /// The element of an axis of `n` that stands at `at`, counted from the first element; `None` for the padding value.
    fn source(self, at: i64, n: i64) -> Result<Option<usize>, OpError> {
        let source = match self {
            _ if (0..n).contains(&at) => at,
            Self::Constant => return Ok(None),
            Self::Replicate => at.min(n - 1).max(0),
            Self::Reflect if at < 0 => -at,
            Self::Reflect => 2 * n - 2 - at,
            Self::Symmetric if at < 0 => -1 - at,
            Self::Symmetric => 2 * n - 1 - at,
            Self::Circular if at < 0 => at + n,
            Self::Circular => at - n,
        };
        if !(0..n).contains(&source) {
            return Err(OpError::Range {
                what: "a padded position",
                value: at,
                allowed: format!("what {self:?} reaches from 0..{n}"),
            });
        }
        Ok(usize::try_from(source).ok())
    }
}

/// Operands: tensor, amounts (before and after each axis, `2 · rank` integers), padding value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pad {
    /// Where new elements come from.
    pub mode: PaddingMode,
}

impl OpDef for Pad {
    const NAME: &'static str = "pad";
    const SUMMARY: &'static str = "elements before and after a tensor along its axes";
    const ARITY: std::ops::RangeInclusive<usize> = 3..=3;

    fn attributes(&self) -> Attributes {
        let name = PaddingMode::NAMES.iter().find(|(m, _)| *m == self.mode);
        vec![("padding_mode".into(), Attr::str(name.map_or("constant", |(_, n)| n)))]
    }

    fn from_attributes(attributes: &[(Arc<str>, Attr)]) -> Result<Self, OpError> {
        let Some(name) = find(attributes, "padding_mode") else {
            return Ok(Self::default());
        };
        let found = PaddingMode::NAMES.iter().find(|(_, n)| name.as_str() == Some(*n));
        found.map(|(mode, _)| Self { mode: *mode }).ok_or(OpError::Attribute {
            name: "padding_mode",
            expected: "constant, replicate, reflect, symmetric or circular",
        })
    }

    fn infer(&self, operands: Operands<'_>) -> Result<Vec<Fact>, OpError> {
        let (t, amounts) = (operands.tensor(0)?, operands.tensor(1)?);
        let known = operands.known(1);
        if known.as_ref().is_some_and(|k| k.len() != 2 * t.rank()) {
            return Err(dims_error("padding has two numbers an axis", &[&t.shape, &amounts.shape]));
        }
        let shape = t.shape.iter().enumerate().map(|(i, d)| match &known {
            Some(k) => d.add(&k[2 * i]).add(&k[2 * i + 1]),
            None => Dim::Unknown,
        });
        Ok(vec![TensorType::new(t.dtype, shape).into()])
    }

    fn reference(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, OpError> {
        let (x, amounts, rank) = (&inputs[0], inputs[1].ints(), inputs[0].shape.len());
        if amounts.len() != 2 * rank || inputs[2].is_empty() {
            return Err(OpError::shapes("padding has two numbers an axis", &[&x.shape, &inputs[1].shape]));
        }
        let extent = |i: usize| {
            let total = amounts[2 * i].checked_add(amounts[2 * i + 1])?;
            let valid = amounts[2 * i] >= 0 && amounts[2 * i + 1] >= 0;
            x.shape[i].checked_add(usize::try_from(total).ok().filter(|_| valid)?)
        };
        let shape: Option<Vec<usize>> = (0..rank).map(extent).collect();
        let shape = shape.ok_or(OpError::Unknown("an amount of padding"))?;
        let from = strides(&x.shape);
        let mut out = TensorMut::zeros(x.dtype, &shape)?;
        for i in 0..out.len() {
            let mut place = Some(0);
            for (k, at) in unravel(i, &shape).into_iter().enumerate() {
                let source = self.mode.source(at as i64 - amounts[2 * k], x.shape[k] as i64)?;
                place = place.zip(source).map(|(p, s)| p + s * from[k]);
            }
            out.set(i, place.map_or_else(|| inputs[2].get(0), |p| x.get(p)));
        }
        Ok(vec![out.finish()])
    }

    fn cases() -> Vec<Case<Self>> {
        let case = |(mode, amounts): (PaddingMode, &[i64; 4])| {
            let x = Tensor::from_ints(DType::I32, &[2, 3], &[1, 2, 3, 4, 5, 6]).ok()?;
            let amounts = Tensor::from_ints(DType::U32, &[4], amounts).ok()?;
            let value = Tensor::from_ints(DType::I32, &[], &[9]).ok()?;
            Some(Case { op: Self { mode }, inputs: vec![x, amounts, value] })
        };
        let amounts = [[1, 1, 2, 1], [0, 0, 0, 2]];
        let modes = PaddingMode::NAMES.into_iter();
        modes.flat_map(|(m, _)| amounts.iter().map(move |a| (m, a))).filter_map(case).collect()
    }
}
