//! `sparse_with_bitmask_to_dense`: a sparse tensor spelled out.

use super::build_sparse_with_bitmask::sample_mask;
use super::family::{plain_op, unary_infer};
use super::{Case, Operands};
use crate::tensor::Tensor;
use crate::types::DType;

plain_op! {
    /// The operand: sparse tensors are held as the dense ones they stand for.
    SparseWithBitmaskToDense, "sparse_with_bitmask_to_dense", "a sparse tensor spelled out", 1..=1,
    |operands: Operands<'_>| unary_infer(operands), |inputs: &[Tensor]| Ok(vec![inputs[0].clone()]),
    sample_mask(DType::F32).map(|x| Case { op: Self, inputs: vec![x] }).into_iter().collect()
}
