//! `non_zero`: where a tensor is not zero.

use super::family::plain_op;
use super::shape::unravel;
use super::{Case, Fact, Operands};
use crate::error::OpError;
use crate::tensor::Tensor;
use crate::types::{DType, Dim, TensorType};

plain_op! {
    /// Operand: a tensor. The result `[count, rank]` lists the coordinates of its elements that are not zero, in row-major order; not a
    /// number is not zero.
    NonZero, "non_zero", "where a tensor is not zero", 1..=1, infer, reference, cases()
}

fn infer(operands: Operands<'_>) -> Result<Vec<Fact>, OpError> {
    let rank = Dim::from(operands.tensor(0)?.rank());
    Ok(vec![TensorType::new(DType::I32, [Dim::Unknown, rank]).into()])
}

fn reference(inputs: &[Tensor]) -> Result<Vec<Tensor>, OpError> {
    let x = &inputs[0];
    let found: Vec<usize> = (0..x.len()).filter(|&i| x.get(i).bool()).collect();
    let coordinates = found.iter().flat_map(|&i| unravel(i, &x.shape));
    let coordinates: Vec<i64> = coordinates.map(|c| c as i64).collect();
    Ok(vec![Tensor::from_ints(DType::I32, &[found.len(), x.shape.len()], &coordinates)?])
}

fn cases() -> Vec<Case<NonZero>> {
    let floats = Tensor::from_floats(DType::F32, &[2, 3], &[0.0, f64::NAN, -0.0, 1.0, f64::INFINITY, 0.0]);
    let none = Tensor::from_ints(DType::I32, &[2, 2], &[0; 4]);
    [floats, none].into_iter().flatten().map(|x| Case { op: NonZero, inputs: vec![x] }).collect()
}
