//! `rms_norm`: division by the root of the mean square, then a scale.

use std::sync::Arc;

use super::shape::{axis, broadcast_index, dims_error, repeats_to};
use super::{Case, Fact, OpDef, Operands};
use crate::attr::{Attr, Attributes, find, only, roles, texts};
use crate::error::OpError;
use crate::tensor::{Scalar, Tensor, TensorMut, round_to};
use crate::types::{DType, TensorType};

/// `round(x / √(mean(x²) + eps)) · scale`, the mean over the last axis in f32 (Zhang and Sennrich, arXiv 1910.07467).
///
/// Operands: input, scale. The scale broadcasts against the input: `[width]`, or `[heads, 1, width]`. It has the input's kind, or
/// is f32: then rows are multiplied with it in f32 and rounded once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RmsNorm {
    /// Added to the mean square.
    pub eps: f64,
}

impl OpDef for RmsNorm {
    const NAME: &'static str = "rms_norm";
    const SUMMARY: &'static str = "division by the root of the mean square, then a scale";
    const ARITY: std::ops::RangeInclusive<usize> = 2..=2;

    fn attributes(&self) -> Attributes {
        vec![
            ("axes".into(), Attr::Int(-1)),
            ("eps".into(), Attr::float(self.eps)),
            ("inputs".into(), texts(&["input", "scale"])),
        ]
    }

    fn from_attributes(attributes: &[(Arc<str>, Attr)]) -> Result<Self, OpError> {
        only(attributes, &["axes", "eps"])?;
        let axes = find(attributes, "axes").map(|a| {
            a.as_ints()
                .unwrap_or_else(|| a.as_int().into_iter().collect())
        });
        if axes.is_some_and(|a| a != [-1]) {
            return Err(OpError::Attribute {
                name: "axes",
                expected: "the last axis",
            });
        }
        if roles(attributes) != ["input", "scale"] {
            return Err(OpError::Attribute {
                name: "inputs",
                expected: "input and scale",
            });
        }
        let eps = find(attributes, "eps").and_then(Attr::as_float);
        eps.map(|eps| Self { eps }).ok_or(OpError::Attribute {
            name: "eps",
            expected: "a number",
        })
    }

    fn infer(&self, operands: Operands<'_>) -> Result<Vec<Fact>, OpError> {
        let (x, scale) = (operands.tensor(0)?, operands.tensor(1)?);
        axis(-1, x.rank())?;
        for (index, t) in [x, scale].into_iter().enumerate() {
            let allowed = [x.dtype, DType::F32].contains(&t.dtype) && t.dtype.is_float();
            if !allowed {
                return Err(OpError::Kind {
                    rule: "input and scale have one kind of float, or the scale is f32",
                    index,
                    got: t.dtype,
                });
            }
        }
        if !repeats_to(&scale.shape, &x.shape) {
            return Err(dims_error(
                "the scale broadcasts against the input",
                &[&x.shape, &scale.shape],
            ));
        }
        Ok(vec![
            TensorType::new(x.dtype, x.shape.iter().cloned()).into(),
        ])
    }

    fn reference(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, OpError> {
        let (x, scale) = (&inputs[0], &inputs[1]);
        let width = x.shape[axis(-1, x.shape.len())?];
        let mut out = TensorMut::zeros(x.dtype, &x.shape)?;
        for row in 0..x.len().checked_div(width).unwrap_or(0) {
            let values: Vec<f64> = (0..width).map(|i| x.get(row * width + i).float()).collect();
            let mean = values.iter().map(|v| v * v).sum::<f64>() / width as f64;
            let factor = 1.0 / (mean + self.eps).sqrt();
            for (i, v) in values.iter().enumerate() {
                let at = row * width + i;
                let by = scale.get(broadcast_index(at, &x.shape, &scale.shape));
                let normal = round_to(scale.dtype, v * factor);
                out.set(at, Scalar::Float(normal * by.float()));
            }
        }
        Ok(vec![out.finish()])
    }

    fn cases() -> Vec<Case<Self>> {
        let ramp = |shape: &[usize], dtype| {
            let values: Vec<f64> = (0..shape.iter().product())
                .map(|i| (i * 7 % 11) as f64 * 0.3 - 1.4)
                .collect();
            Tensor::from_floats(dtype, shape, &values).ok()
        };
        let case = |x: &[usize], scale: &[usize], kinds: [DType; 2]| {
            Some(Case {
                op: Self { eps: 1e-6 },
                inputs: vec![ramp(x, kinds[0])?, ramp(scale, kinds[1])?],
            })
        };
        [
            case(&[1, 3, 20], &[20], [DType::F16; 2]),
            case(&[1, 2, 3, 8], &[2, 1, 8], [DType::F32; 2]),
            case(&[2, 5], &[5], [DType::BF16; 2]),
            case(&[2, 3, 8], &[8], [DType::F16, DType::F32]),
            case(&[1, 0, 8], &[8], [DType::BF16, DType::F32]),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}
