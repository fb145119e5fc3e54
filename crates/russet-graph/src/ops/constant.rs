//! `constant`: a tensor that is part of the program.

use std::sync::Arc;

use super::{Case, Fact, KNOWN_LIMIT, OpDef, Operands};
use crate::attr::Attr;
use crate::error::OpError;
use crate::graph::{ConstantData, Storage};
use crate::tensor::Tensor;
use crate::types::{Dim, TensorType};

/// A tensor of the file: dense, one repeated element, or blocks with their scales.
#[derive(Clone, Debug, PartialEq)]
pub struct Constant(pub Arc<ConstantData>);

/// The contents of a small integer constant.
pub fn contents(data: &ConstantData) -> Option<Vec<Dim>> {
    let followed = (data.ty.dtype.is_int() || data.ty.dtype == crate::types::DType::Bool)
        && data.len() <= KNOWN_LIMIT
        && !matches!(data.storage, Storage::Blocks(..));
    if !followed {
        return None;
    }
    Some(
        Tensor::from_constant(data)
            .ok()?
            .ints()
            .into_iter()
            .map(Dim::Const)
            .collect(),
    )
}

impl OpDef for Constant {
    const NAME: &'static str = "constant";
    const SUMMARY: &'static str = "a tensor that is part of the program";
    const ARITY: std::ops::RangeInclusive<usize> = 0..=0;

    fn from_attributes(_: &[(Arc<str>, Attr)]) -> Result<Self, OpError> {
        Err(OpError::Attribute {
            name: "data",
            expected: "written in place",
        })
    }

    fn infer(&self, _: Operands<'_>) -> Result<Vec<Fact>, OpError> {
        let ty = TensorType::new(self.0.ty.dtype, self.0.ty.shape.iter().cloned());
        Ok(vec![Fact::with_known(ty, contents(&self.0))])
    }

    fn reference(&self, _: &[Tensor]) -> Result<Vec<Tensor>, OpError> {
        Ok(vec![Tensor::from_constant(&self.0)?])
    }

    fn cases() -> Vec<Case<Self>> {
        let Ok(t) = Tensor::from_ints(crate::types::DType::I4, &[3], &[1, -8, 7]) else {
            return Vec::new();
        };
        let data = ConstantData {
            ty: t.ty(),
            storage: Storage::Dense(t.bytes().clone()),
        };
        vec![Case {
            op: Self(Arc::new(data)),
            inputs: Vec::new(),
        }]
    }
}
