//! `interpolate`: a tensor resampled on another grid.

use std::sync::Arc;

use super::interpolation::{Interpolation, not_empty};
use super::shape::unravel;
use super::{Case, Fact, OpDef, Operands};
use crate::attr::{Attr, Attributes};
use crate::error::OpError;
use crate::tensor::{Tensor, TensorMut};
use crate::types::{DType, Dim, TensorType};

/// Operands: tensor, shape of the result, scales, offsets (one number an axis each). Element `i` of an axis is the value at
/// `(i + 0.5 - offset) / scale - 0.5`, clamped to the axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interpolate {
    /// How a value between elements is found.
    pub mode: Interpolation,
}

impl OpDef for Interpolate {
    const NAME: &'static str = "interpolate";
    const SUMMARY: &'static str = "a tensor resampled on another grid";
    const ARITY: std::ops::RangeInclusive<usize> = 4..=4;

    fn attributes(&self) -> Attributes {
        self.mode.attributes()
    }

    fn from_attributes(attributes: &[(Arc<str>, Attr)]) -> Result<Self, OpError> {
        Ok(Self { mode: Interpolation::from_attributes(attributes)? })
    }

    fn infer(&self, operands: Operands<'_>) -> Result<Vec<Fact>, OpError> {
        let t = operands.tensor(0)?;
        let shape = operands.known(1).filter(|k| k.len() == t.rank());
        let shape = shape.map_or_else(|| vec![Dim::Unknown; t.rank()], |k| k.to_vec());
        Ok(vec![TensorType::new(t.dtype, shape).into()])
    }

    fn reference(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, OpError> {
        let (x, rank) = (&inputs[0], inputs[0].shape.len());
        not_empty(x)?;
        if let Some(t) = inputs[1..].iter().find(|t| t.len() != rank) {
            return Err(OpError::shapes("one number an axis", &[&x.shape, &t.shape]));
        }
        let extent = |d: i64| usize::try_from(d).map_err(|_| OpError::Unknown("an extent"));
        let shape: Vec<usize> = inputs[1].ints().into_iter().map(extent).collect::<Result<_, _>>()?;
        let numbers = |t: &Tensor| t.floats().into_iter().map(|v| v as f32).collect::<Vec<_>>();
        let (scale, offset) = (numbers(&inputs[2]), numbers(&inputs[3]));
        let mut out = TensorMut::zeros(x.dtype, &shape)?;
        for i in 0..out.len() {
            let coordinate = |(k, at): (usize, usize)| (at as f32 + 0.5 - offset[k]) / scale[k] - 0.5;
            let at: Vec<f32> = unravel(i, &shape).into_iter().enumerate().map(coordinate).collect();
            out.set(i, self.mode.sample(x, &at));
        }
        Ok(vec![out.finish()])
    }

    fn cases() -> Vec<Case<Self>> {
        let case = |mode, shape: &[i64; 2], scale: &[f64; 2], offset: &[f64; 2]| {
            let x = Tensor::from_floats(DType::F32, &[2, 3], &[0.0, 1.0, 4.0, -2.0, 0.5, 8.0]).ok()?;
            let shape = Tensor::from_ints(DType::I32, &[2], shape).ok()?;
            let numbers = |v: &[f64; 2]| Tensor::from_floats(DType::F32, &[2], v).ok();
            Some(Case { op: Self { mode }, inputs: vec![x, shape, numbers(scale)?, numbers(offset)?] })
        };
        [
            case(Interpolation::Linear, &[4, 3], &[2.0, 1.0], &[0.0, 0.0]),
            case(Interpolation::Linear, &[1, 2], &[0.5, 0.5], &[0.25, 0.0]),
            case(Interpolation::Nearest, &[4, 6], &[2.0, 2.0], &[0.0, 0.0]),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}
