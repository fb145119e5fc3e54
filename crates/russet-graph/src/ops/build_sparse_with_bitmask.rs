//! `build_sparse_with_bitmask`: a tensor whose elements are zero but for listed ones.

use super::family::plain_op;
use super::{Case, Fact, Operands};
use crate::error::OpError;
use crate::tensor::{Scalar, Tensor, TensorMut};
use crate::types::{DType, TensorType};

plain_op! {
    /// Operands: values `[n]`, mask. Where the mask is 1 stand the values, in row-major order; elsewhere 0. A sparse tensor is held as
    /// the dense one it stands for; operations that ask where something is stored take the mask beside it.
    BuildSparseWithBitmask, "build_sparse_with_bitmask", "listed elements where a mask is set, else zeros", 2..=2, infer, reference, cases()
}

fn infer(operands: Operands<'_>) -> Result<Vec<Fact>, OpError> {
    let (values, mask) = (operands.tensor(0)?, operands.tensor(1)?);
    check_mask(1, mask.dtype)?;
    Ok(vec![
        TensorType::new(values.dtype, mask.shape.iter().cloned()).into(),
    ])
}

/// A mask has elements of one bit.
pub fn check_mask(index: usize, got: DType) -> Result<(), OpError> {
    if matches!(got, DType::U1 | DType::Bool) {
        return Ok(());
    }
    let rule = "a mask has one bit an element";
    Err(OpError::Kind { rule, index, got })
}

fn reference(inputs: &[Tensor]) -> Result<Vec<Tensor>, OpError> {
    let (values, mask) = (&inputs[0], &inputs[1]);
    check_mask(1, mask.dtype)?;
    let mut out = TensorMut::zeros(values.dtype, &mask.shape)?;
    let places = mask.scalars().enumerate().filter(|(_, m)| m.bool());
    let mut listed = 0;
    for (i, _) in places {
        if listed < values.len() {
            out.set(i, values.get(listed));
        }
        listed += 1;
    }
    if listed != values.len() {
        return Err(OpError::shapes(
            "a mask is set for every value",
            &[&values.shape, &[listed]],
        ));
    }
    Ok(vec![out.finish()])
}

/// A mask of two rows with three bits set, for examples.
pub fn sample_mask(dtype: DType) -> Option<Tensor> {
    Tensor::from_ints(dtype, &[2, 3], &[0, 1, 0, 1, 0, 1]).ok()
}

fn cases() -> Vec<Case<BuildSparseWithBitmask>> {
    let case = |dtype, mask| {
        let values = [10, 20, 30].map(Scalar::Int);
        let values = Tensor::from_scalars(dtype, &[3], &values).ok()?;
        Some(Case {
            op: BuildSparseWithBitmask,
            inputs: vec![values, sample_mask(mask)?],
        })
    };
    [case(DType::F16, DType::U1), case(DType::I8, DType::Bool)]
        .into_iter()
        .flatten()
        .collect()
}
