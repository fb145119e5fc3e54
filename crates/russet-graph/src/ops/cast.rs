//! `cast`: another element kind.

use std::sync::Arc;

use super::family::samples;
use super::{Case, Fact, OpDef, Operands};
use crate::attr::{Attr, Attributes, find};
use crate::error::OpError;
use crate::tensor::{Scalar, Tensor, TensorMut};
use crate::types::{Class, DType, TensorType, Type};

/// Elements in kind `to`. Floats round to nearest even; floats truncate to integers, NaN gives 0; integers saturate;
/// bool is "not zero".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cast {
    /// The kind of the result.
    pub to: DType,
}

/// One element in another kind.
pub fn convert(value: Scalar, to: DType) -> Scalar {
    match (to.class(), value) {
        (Class::Bool, v) => Scalar::Bool(v.bool()),
        (Class::Float, v) => Scalar::Float(v.float()),
        (Class::Complex, v @ Scalar::Complex(..)) => v,
        (Class::Complex, v) => Scalar::Complex(v.float(), 0.0),
        (Class::Signed, v) => {
            let limit = 1i128 << (to.bits() - 1);
            Scalar::Int(v.int().clamp(-limit, limit - 1))
        }
        (Class::Unsigned, v) => Scalar::Int(v.int().clamp(0, (1i128 << to.bits()) - 1)),
    }
}

impl OpDef for Cast {
    const NAME: &'static str = "cast";
    const SUMMARY: &'static str = "another element kind";
    const ARITY: std::ops::RangeInclusive<usize> = 1..=1;

    fn attributes(&self) -> Attributes {
        vec![(
            "to".into(),
            Attr::Type(Type::Tensor(TensorType::fixed(self.to, &[]))),
        )]
    }

    fn from_attributes(attributes: &[(Arc<str>, Attr)]) -> Result<Self, OpError> {
        match find(attributes, "to") {
            Some(Attr::Type(Type::Tensor(t))) => Ok(Self { to: t.dtype }),
            _ => Err(OpError::Attribute {
                name: "to",
                expected: "a type",
            }),
        }
    }

    fn infer(&self, operands: Operands<'_>) -> Result<Vec<Fact>, OpError> {
        let t = operands.tensor(0)?;
        let ty = TensorType::new(self.to, t.shape.iter().cloned());
        let known = operands
            .known(0)
            .filter(|_| self.to.is_int())
            .map(|k| k.to_vec());
        Ok(vec![Fact::with_known(ty, known)])
    }

    fn reference(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, OpError> {
        let mut out = TensorMut::zeros(self.to, &inputs[0].shape)?;
        (0..out.len()).for_each(|i| out.set(i, convert(inputs[0].get(i), self.to)));
        Ok(vec![out.finish()])
    }

    fn cases() -> Vec<Case<Self>> {
        let kinds = [
            DType::F32,
            DType::F16,
            DType::BF16,
            DType::I32,
            DType::U32,
            DType::I8,
            DType::U8,
            DType::Bool,
        ];
        samples(&kinds)
            .into_iter()
            .flat_map(|t| {
                kinds.map(|to| Case {
                    op: Self { to },
                    inputs: vec![t.clone()],
                })
            })
            .collect()
    }
}
