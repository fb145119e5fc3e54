//! `constant`: a tensor that is part of the program.

use std::sync::Arc;

use russet_kernels::mem::SharedBytes;

use super::{Case, Fact, KNOWN_LIMIT, OpDef, Operands};
use crate::attr::Attr;
use crate::error::OpError;
use crate::graph::{ConstantData, Storage};
use crate::tensor::Tensor;
use crate::types::{DType, Dim, TensorType};

/// A tensor of the file: dense, one repeated element, or blocks with their scales.
#[derive(Clone, Debug, PartialEq)]
pub struct Constant(pub Arc<ConstantData>);

/// The contents of a small integer constant.
pub fn contents(data: &ConstantData) -> Option<Vec<Dim>> {
    let followed = (data.ty.dtype.is_int() || data.ty.dtype == DType::Bool)
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
        let case = |t: Option<Tensor>, storage: fn(SharedBytes) -> Storage, shape: &[usize]| {
            let t = t?;
            let data = ConstantData {
                ty: TensorType::fixed(t.dtype, shape),
                storage: storage(t.bytes().clone()),
            };
            Some(Case {
                op: Self(Arc::new(data)),
                inputs: Vec::new(),
            })
        };
        let ints = Tensor::from_ints(DType::I4, &[3], &[1, -8, 7]).ok();
        let floats = Tensor::from_floats(DType::F16, &[2, 1], &[0.5, -0.0]).ok();
        let one = Tensor::from_floats(DType::F32, &[], &[1.5]).ok();
        [
            case(ints, Storage::Dense, &[3]),
            case(floats, Storage::Dense, &[2, 1]),
            case(one, Storage::Splat, &[2, 3]),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}
