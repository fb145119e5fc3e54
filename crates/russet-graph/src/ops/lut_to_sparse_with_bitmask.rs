//! `lut_to_sparse_with_bitmask`: stored elements looked up in tables, block by block.

use super::build_sparse_with_bitmask::{check_mask, sample_mask};
use super::family::plain_op;
use super::lut_to_dense;
use super::shape::{axis, unravel};
use super::{Case, Fact, Operands};
use crate::error::OpError;
use crate::tensor::{Tensor, TensorMut, strides};
use crate::types::DType;

plain_op! {
    /// Operands: indices, tables, axis, mask of the indices. As [`lut_to_dense`](mod@lut_to_dense) where the mask is set; zeros elsewhere.
    LutToSparseWithBitmask, "lut_to_sparse_with_bitmask", "stored elements looked up in tables, block by block", 4..=4, infer, reference, cases()
}

fn infer(operands: Operands<'_>) -> Result<Vec<Fact>, OpError> {
    check_mask(3, operands.tensor(3)?.dtype)?;
    lut_to_dense::infer(Operands(&operands.0[..3]))
}

fn reference(inputs: &[Tensor]) -> Result<Vec<Tensor>, OpError> {
    let (mask, rank) = (&inputs[3], inputs[0].shape.len());
    check_mask(3, mask.dtype)?;
    if mask.shape != inputs[0].shape {
        return Err(OpError::shapes(
            "a mask has the shape of its indices",
            &[&mask.shape, &inputs[0].shape],
        ));
    }
    let dense = lut_to_dense::reference(&inputs[..3])?.remove(0);
    let width = inputs[1].shape.last().copied().unwrap_or(1).max(1);
    let at = match inputs[2].ints().first() {
        Some(&a) if width > 1 => axis(a, rank)?,
        _ => rank,
    };
    let step = strides(&mask.shape);
    let mut out = TensorMut::zeros(dense.dtype, &dense.shape)?;
    for i in 0..dense.len() {
        let place = unravel(i, &dense.shape).into_iter().enumerate();
        let part = |(k, p): (usize, usize)| step[k] * if k == at { p / width } else { p };
        if mask.get(place.map(part).sum()).bool() {
            out.set(i, dense.get(i));
        }
    }
    Ok(vec![out.finish()])
}

fn cases() -> Vec<Case<LutToSparseWithBitmask>> {
    let case = |tables: &[usize], at: i64| {
        let n = tables.iter().product::<usize>();
        let values: Vec<f64> = (0..n).map(|i| i as f64 + 1.0).collect();
        let inputs = vec![
            Tensor::from_ints(DType::U2, &[2, 3], &[0, 1, 2, 3, 0, 1]).ok()?,
            Tensor::from_floats(DType::F16, tables, &values).ok()?,
            Tensor::from_ints(DType::I16, &[], &[at]).ok()?,
            sample_mask(DType::U1)?,
        ];
        let op = LutToSparseWithBitmask;
        Some(Case { op, inputs })
    };
    [
        case(&[1, 1, 4, 1], 0),
        case(&[2, 1, 4, 2], 0),
        case(&[1, 1, 4, 2], -1),
    ]
    .into_iter()
    .flatten()
    .collect()
}
