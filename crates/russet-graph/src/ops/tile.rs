//! `tile`: a tensor repeated along its axes.

use super::family::plain_op;
use super::shape::{dims_error, unravel};
use super::{Case, Fact, Operands};
use crate::error::OpError;
use crate::tensor::{Tensor, TensorMut, strides};
use crate::types::{DType, Dim, TensorType};

plain_op! {
    /// Operands: tensor, repetitions (integers, for the last axes; axes before them are not repeated).
    Tile, "tile", "a tensor repeated along its axes", 2..=2, infer, reference, cases()
}

fn infer(operands: Operands<'_>) -> Result<Vec<Fact>, OpError> {
    let (t, times) = (operands.tensor(0)?, operands.tensor(1)?);
    let Some(known) = operands.known(1) else {
        let unknown = vec![Dim::Unknown; t.rank()];
        return Ok(vec![TensorType::new(t.dtype, unknown).into()]);
    };
    let Some(first) = t.rank().checked_sub(known.len()) else {
        return Err(dims_error(
            "repetitions are for axes of the tensor",
            &[&t.shape, &times.shape],
        ));
    };
    let mut shape = t.shape.clone();
    for (d, by) in shape[first..].iter_mut().zip(known.iter()) {
        *d = d.mul(by);
    }
    Ok(vec![TensorType::new(t.dtype, shape).into()])
}

fn reference(inputs: &[Tensor]) -> Result<Vec<Tensor>, OpError> {
    let (x, times) = (&inputs[0], inputs[1].ints());
    let rank = x.shape.len();
    let Some(first) = rank.checked_sub(times.len()) else {
        return Err(OpError::shapes(
            "repetitions are for axes of the tensor",
            &[&x.shape, &inputs[1].shape],
        ));
    };
    let mut shape = x.shape.clone();
    for (d, &by) in shape[first..].iter_mut().zip(&times) {
        let by = usize::try_from(by).ok();
        *d = by.and_then(|by| d.checked_mul(by)).ok_or(OpError::Unknown("a number of repetitions"))?;
    }
    let mut out = TensorMut::zeros(x.dtype, &shape)?;
    let from = strides(&x.shape);
    for i in 0..out.len() {
        let at = unravel(i, &shape);
        let place: usize = (0..rank).map(|k| at[k] % x.shape[k] * from[k]).sum();
        out.set(i, x.get(place));
    }
    Ok(vec![out.finish()])
}

fn cases() -> Vec<Case<Tile>> {
    let examples: [(&[usize], &[i64]); 4] =
        [(&[3], &[2]), (&[2, 3], &[2]), (&[2, 1], &[3, 2]), (&[2, 0], &[1, 3])];
    let case = |(shape, times): &(&[usize], &[i64])| {
        let n = shape.iter().product::<usize>() as i64;
        let x = Tensor::from_ints(DType::I16, shape, &(0..n).collect::<Vec<_>>()).ok()?;
        let times = Tensor::from_ints(DType::U32, &[times.len()], times).ok()?;
        Some(Case { op: Tile, inputs: vec![x, times] })
    };
    examples.iter().filter_map(case).collect()
}
