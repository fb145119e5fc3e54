//! `interpolate_coordinates`: a tensor sampled at points.

use std::sync::Arc;

use super::interpolation::{Interpolation, not_empty};
use super::{Case, Fact, OpDef, Operands};
use crate::attr::{Attr, Attributes};
use crate::error::OpError;
use crate::tensor::{Tensor, TensorMut};
use crate::types::{DType, Dim, TensorType};

/// Operands: tensor, coordinates `[points, rank]`; 0 is the first element of an axis, and points outside are clamped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InterpolateCoordinates {
    /// How a value between elements is found.
    pub mode: Interpolation,
}

impl OpDef for InterpolateCoordinates {
    const NAME: &'static str = "interpolate_coordinates";
    const SUMMARY: &'static str = "a tensor sampled at points";
    const ARITY: std::ops::RangeInclusive<usize> = 2..=2;

    fn attributes(&self) -> Attributes {
        self.mode.attributes()
    }

    fn from_attributes(attributes: &[(Arc<str>, Attr)]) -> Result<Self, OpError> {
        Ok(Self { mode: Interpolation::from_attributes(attributes)? })
    }

    fn infer(&self, operands: Operands<'_>) -> Result<Vec<Fact>, OpError> {
        let points = operands.tensor(1)?.shape.first().cloned().unwrap_or(Dim::Unknown);
        Ok(vec![TensorType::new(operands.tensor(0)?.dtype, [points]).into()])
    }

    fn reference(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, OpError> {
        let (x, points) = (&inputs[0], &inputs[1]);
        not_empty(x)?;
        let rank = x.shape.len();
        if points.shape.len() != 2 || points.shape[1] != rank {
            return Err(OpError::shapes("points have one coordinate an axis", &[&x.shape, &points.shape]));
        }
        let mut out = TensorMut::zeros(x.dtype, &points.shape[..1])?;
        for i in 0..out.len() {
            let at: Vec<f32> = (0..rank).map(|k| points.get(i * rank + k).float() as f32).collect();
            out.set(i, self.mode.sample(x, &at));
        }
        Ok(vec![out.finish()])
    }

    fn cases() -> Vec<Case<Self>> {
        let case = |mode| {
            let x = Tensor::from_floats(DType::F16, &[2, 3], &[0.0, 1.0, 4.0, -2.0, 0.5, 8.0]).ok()?;
            let at = Tensor::from_floats(DType::F32, &[3, 2], &[0.5, 0.25, -3.0, 1.5, 1.0, 9.0]).ok()?;
            Some(Case { op: Self { mode }, inputs: vec![x, at] })
        };
        [case(Interpolation::Linear), case(Interpolation::Nearest)].into_iter().flatten().collect()
    }
}
