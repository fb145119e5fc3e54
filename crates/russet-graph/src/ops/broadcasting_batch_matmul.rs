//! `broadcasting_batch_matmul`: matrix products of the last two axes.

use std::sync::Arc;

use super::batch_matmul::{case, product, product_type};
use super::{Case, Fact, OpDef, Operands};
use crate::attr::Attr;
use crate::error::OpError;
use crate::tensor::Tensor;
use crate::types::DType;

simple_op! {
    /// Operands `[…, m, k]` and `[…, k, n]`; leading axes broadcast.
    /// Sums are taken wide and rounded once.
    BroadcastingBatchMatmul
}

impl OpDef for BroadcastingBatchMatmul {
    const NAME: &'static str = "broadcasting_batch_matmul";
    const SUMMARY: &'static str = "matrix products of the last two axes with broadcasting";
    const ARITY: std::ops::RangeInclusive<usize> = 2..=2;

    fn from_attributes(_: &[(Arc<str>, Attr)]) -> Result<Self, OpError> {
        Ok(Self)
    }

    fn infer(&self, operands: Operands<'_>) -> Result<Vec<Fact>, OpError> {
        Ok(vec![product_type(operands)?.into()])
    }

    fn reference(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, OpError> {
        product(&inputs[0], &inputs[1])
    }

    fn cases() -> Vec<Case<Self>> {
        let shapes: [(&[usize], &[usize]); 3] = [
            (&[2, 3], &[3, 4]),
            (&[2, 1, 2, 3], &[2, 3, 1]),
            (&[1, 5, 3], &[3, 2]),
        ];
        shapes
            .iter()
            .flat_map(|s| [DType::F32, DType::F16].map(|dtype| case(Self, s, dtype)))
            .flatten()
            .collect()
    }
}
