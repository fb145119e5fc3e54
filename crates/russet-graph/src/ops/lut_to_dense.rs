//! `lut_to_dense`: elements looked up in tables, block by block.

use super::family::plain_op;
use super::shape::{axis, dims_error, unravel};
use super::{Case, Fact, Operands};
use crate::error::OpError;
use crate::tensor::{Tensor, TensorMut, strides};
use crate::types::{DType, Dim, TensorType};

plain_op! {
    /// Operands: indices, tables, axis. Tables `[b…, entries, width]` have one table of `entries` vectors for each block of the indices;
    /// along every axis the indices' extent is a multiple of `b`. Every index becomes a vector along the axis.
    LutToDense, "lut_to_dense", "elements looked up in tables, block by block", 3..=3, infer, reference, cases()
}

/// The type of the result.
pub fn infer(operands: Operands<'_>) -> Result<Vec<Fact>, OpError> {
    let (ids, lut) = (operands.tensor(0)?, operands.tensor(1)?);
    if lut.rank() != ids.rank() + 2 {
        return Err(dims_error("tables have two axes more than indices", &[&ids.shape, &lut.shape]));
    }
    let mut shape = ids.shape.clone();
    match (operands.int(2), &lut.shape[ids.rank() + 1]) {
        (_, Dim::Const(1)) => {}
        (Some(at), width) => {
            let at = axis(at, ids.rank())?;
            shape[at] = shape[at].mul(width);
        }
        (None, _) => shape.fill(Dim::Unknown),
    }
    Ok(vec![TensorType::new(lut.dtype, shape).into()])
}

/// Looks every index up.
pub fn reference(inputs: &[Tensor]) -> Result<Vec<Tensor>, OpError> {
    let (ids, lut, rank) = (&inputs[0], &inputs[1], inputs[0].shape.len());
    let blocks = lut.shape.get(..rank).filter(|_| lut.shape.len() == rank + 2);
    let whole = |b: &&[usize]| ids.shape.iter().zip(*b).all(|(a, b)| *b != 0 && a % b == 0);
    let Some(blocks) = blocks.filter(whole) else {
        return Err(OpError::shapes("indices are whole blocks of tables", &[&ids.shape, &lut.shape]));
    };
    let (entries, width) = (lut.shape[rank], lut.shape[rank + 1]);
    let at = match (width, inputs[2].ints().first()) {
        (1, _) => 0,
        (_, Some(&a)) => axis(a, rank)?,
        (_, None) => return Err(OpError::Unknown("the axis of a table")),
    };
    let mut shape = ids.shape.clone();
    if let Some(d) = shape.get_mut(at) {
        *d = d.checked_mul(width).ok_or(OpError::Unknown("the width of a table"))?;
    }
    let mut out = TensorMut::zeros(lut.dtype, &shape)?;
    let (to, from) = (strides(&shape), strides(blocks));
    for i in 0..ids.len() {
        let index = ids.get(i).int();
        let index = usize::try_from(index).ok().filter(|&k| k < entries).ok_or(OpError::Range {
            what: "an index into a table",
            value: index as i64,
            allowed: format!("0..{entries}"),
        })?;
        let place = unravel(i, &ids.shape);
        let block: usize = (0..rank).map(|k| place[k] / (ids.shape[k] / blocks[k]) * from[k]).sum();
        let first: usize = (0..rank).map(|k| place[k] * to[k] * if k == at { width } else { 1 }).sum();
        let step = to.get(at).copied().unwrap_or(1);
        (0..width).for_each(|v| out.set(first + v * step, lut.get((block * entries + index) * width + v)));
    }
    Ok(vec![out.finish()])
}

fn cases() -> Vec<Case<LutToDense>> {
    let ramp = |shape: &[usize]| {
        let values: Vec<f64> = (0..shape.iter().product::<usize>()).map(|i| i as f64 * 0.5).collect();
        Tensor::from_floats(DType::F16, shape, &values).ok()
    };
    let case = |dtype, shape: &[usize], ids: &[i64], tables: &[usize], at: i64| {
        let ids = Tensor::from_ints(dtype, shape, ids).ok()?;
        let at = Tensor::from_ints(DType::I16, &[], &[at]).ok()?;
        Some(Case { op: LutToDense, inputs: vec![ids, ramp(tables)?, at] })
    };
    [
        case(DType::U2, &[4, 2], &[0, 1, 2, 3, 3, 2, 1, 0], &[2, 1, 4, 1], 0),
        case(DType::U1, &[2, 2], &[0, 1, 1, 0], &[1, 1, 2, 3], 1),
        case(DType::U1, &[2, 2], &[0, 1, 1, 0], &[1, 2, 2, 2], 0),
    ]
    .into_iter()
    .flatten()
    .collect()
}
