//! `scatter_nd`: slices replaced at positions.

use super::family::{plain_op, unary_infer};
use super::shape::position;
use super::Case;
use crate::error::OpError;
use crate::tensor::{Tensor, TensorMut, strides};
use crate::types::DType;

plain_op! {
    /// Operands: tensor, indices `[…, depth]`, updates. `out[indices[i…, 0], …, indices[i…, depth - 1]] = updates[i…]`, later ones win;
    /// everything else is the tensor's. Negative indices count from the end.
    ScatterNd, "scatter_nd", "slices replaced at positions", 3..=3, unary_infer, reference, cases()
}

fn reference(inputs: &[Tensor]) -> Result<Vec<Tensor>, OpError> {
    let (x, ids, updates) = (&inputs[0], &inputs[1], &inputs[2]);
    let Some((&depth, lead)) = ids.shape.split_last().filter(|(d, _)| **d <= x.shape.len()) else {
        return Err(OpError::shapes("indices reach into the tensor", &[&x.shape, &ids.shape]));
    };
    let expected: Vec<usize> = lead.iter().chain(&x.shape[depth..]).copied().collect();
    if updates.shape != expected || updates.dtype != x.dtype {
        return Err(OpError::shapes("updates fit indices and tensor", &[&updates.shape, &expected]));
    }
    let cell: usize = x.shape[depth..].iter().product();
    let stride = strides(&x.shape);
    let mut out = TensorMut::zeros(x.dtype, &x.shape)?;
    (0..x.len()).for_each(|i| out.set(i, x.get(i)));
    for i in 0..lead.iter().product() {
        let mut at = 0;
        for d in 0..depth {
            at += position(ids.get(i * depth + d).int() as i64, x.shape[d])? * stride[d];
        }
        (0..cell).for_each(|k| out.set(at + k, updates.get(i * cell + k)));
    }
    Ok(vec![out.finish()])
}

fn cases() -> Vec<Case<ScatterNd>> {
    let ints = |shape: &[usize], from: i64| {
        let n = shape.iter().product::<usize>() as i64;
        Tensor::from_ints(DType::I32, shape, &(from..from + n).collect::<Vec<_>>()).ok()
    };
    let case = |ids: &[i64], shape: &[usize], updates: &[usize]| {
        let ids = Tensor::from_ints(DType::I32, shape, ids).ok()?;
        Some(Case { op: ScatterNd, inputs: vec![ints(&[3, 4], 0)?, ids, ints(updates, 50)?] })
    };
    [
        case(&[2, 0], &[2, 1], &[2, 4]),
        case(&[0, -1, 2, 1], &[2, 2], &[2]),
        case(&[], &[0, 1], &[0, 4]),
    ]
    .into_iter()
    .flatten()
    .collect()
}
