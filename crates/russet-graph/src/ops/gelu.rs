//! `gelu`: the Gaussian error linear unit.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, SQRT_2};
use std::sync::Arc;

use half::f16;

use super::erf::erfc;
use super::family::{samples, unary, unary_infer};
use super::{Case, Fact, OpDef, Operands};
use crate::attr::{Attr, Attributes, find};
use crate::error::OpError;
use crate::tensor::{Scalar, Tensor};
use crate::types::DType;

/// How the normal distribution is computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Approximate {
    /// By the error function.
    #[default]
    None,
    /// By a hyperbolic tangent.
    Tanh,
    /// By a logistic function.
    Sigmoid,
}

impl Approximate {
    const NAMES: [(Self, &'static str); 3] = [
        (Self::None, "none"),
        (Self::Tanh, "tanh"),
        (Self::Sigmoid, "sigmoid"),
    ];
}

/// `x · Φ(x)` with the normal distribution function `Φ` (arXiv 1606.08415).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gelu {
    /// How `Φ` is computed.
    pub approximate: Approximate,
}

impl Gelu {
    /// The function of one element of kind `dtype`. The Core AI runtime computes it step by step, each rounded to the kind (to
    /// `f32` for `bf16`), which shows where `Φ` is small; constants are rounded like everything else.
    pub fn apply(self, dtype: DType, x: f64) -> f64 {
        match dtype {
            DType::F16 => self.steps(x, |v| f16::from_f64(v).to_f64()),
            DType::F64 => self.steps(x, |v| v),
            _ => self.steps(x, |v| f64::from(v as f32)),
        }
    }

    fn steps(self, x: f64, r: impl Fn(f64) -> f64) -> f64 {
        match self.approximate {
            Approximate::None => r(r(0.5 * x) * r(erfc(-r(x * r(FRAC_1_SQRT_2))))),
            Approximate::Tanh => {
                let scale = r(r(SQRT_2) * r(FRAC_2_SQRT_PI)) / 2.0;
                let inner = r(x + r(r(r(r(0.044_715) * x) * x) * x));
                r(r(0.5 * x) * r(1.0 + r(r(scale * inner).tanh())))
            }
            Approximate::Sigmoid => {
                let exponential = r((-r(r(1.702) * x)).exp());
                r(x * r(1.0 / r(1.0 + exponential)))
            }
        }
    }
}

impl OpDef for Gelu {
    const NAME: &'static str = "gelu";
    const SUMMARY: &'static str = "x times the normal distribution function of x";
    const ARITY: std::ops::RangeInclusive<usize> = 1..=1;

    fn attributes(&self) -> Attributes {
        let name = Approximate::NAMES
            .iter()
            .find(|(a, _)| *a == self.approximate)
            .map_or("none", |(_, n)| n);
        vec![("approximate".into(), Attr::str(name))]
    }

    fn from_attributes(attributes: &[(Arc<str>, Attr)]) -> Result<Self, OpError> {
        let wrong = OpError::Attribute {
            name: "approximate",
            expected: "none, tanh or sigmoid",
        };
        let Some(name) = find(attributes, "approximate") else {
            return Ok(Self::default());
        };
        let found = Approximate::NAMES
            .iter()
            .find(|(_, n)| name.as_str() == Some(*n));
        found
            .map(|(approximate, _)| Self {
                approximate: *approximate,
            })
            .ok_or(wrong)
    }

    fn infer(&self, operands: Operands<'_>) -> Result<Vec<Fact>, OpError> {
        unary_infer(operands)
    }

    fn reference(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, OpError> {
        let dtype = inputs[0].dtype;
        unary(&inputs[0], |x| Scalar::Float(self.apply(dtype, x.float())))
    }

    fn cases() -> Vec<Case<Self>> {
        let kinds = [DType::F32, DType::F16];
        let ops = Approximate::NAMES.map(|(approximate, _)| Self { approximate });
        samples(&kinds)
            .into_iter()
            .flat_map(|t| {
                ops.map(|op| Case {
                    op,
                    inputs: vec![t.clone()],
                })
            })
            .collect()
    }
}
