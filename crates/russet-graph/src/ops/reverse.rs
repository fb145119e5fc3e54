//! `reverse`: elements in the opposite order along axes.

use super::family::{plain_op, unary_infer};
use super::shape::{axis, unravel};
use super::Case;
use crate::error::OpError;
use crate::tensor::{Tensor, TensorMut, strides};
use crate::types::DType;

plain_op! {
    /// Operands: tensor, axes (integers, may count from the end).
    Reverse, "reverse", "elements in the opposite order along axes", 2..=2, unary_infer, reference, cases()
}

fn reference(inputs: &[Tensor]) -> Result<Vec<Tensor>, OpError> {
    let x = &inputs[0];
    let mut turned = vec![false; x.shape.len()];
    for a in inputs[1].ints() {
        turned[axis(a, x.shape.len())?] = true;
    }
    let from = strides(&x.shape);
    let mut out = TensorMut::zeros(x.dtype, &x.shape)?;
    for i in 0..out.len() {
        let at = unravel(i, &x.shape);
        let mirrored = |k: usize| if turned[k] { x.shape[k] - 1 - at[k] } else { at[k] };
        let place: usize = (0..at.len()).map(|k| mirrored(k) * from[k]).sum();
        out.set(i, x.get(place));
    }
    Ok(vec![out.finish()])
}

fn cases() -> Vec<Case<Reverse>> {
    let axes: [&[i64]; 4] = [&[0], &[-1], &[0, 1], &[]];
    let case = |axes: &&[i64]| {
        let x = Tensor::from_ints(DType::U8, &[2, 3], &[1, 2, 3, 4, 5, 6]).ok()?;
        let axes = Tensor::from_ints(DType::I32, &[axes.len()], axes).ok()?;
        Some(Case { op: Reverse, inputs: vec![x, axes] })
    };
    axes.iter().filter_map(case).collect()
}
