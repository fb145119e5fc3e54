//! `batch_matmul`: matrix products of the last two axes.

use std::sync::Arc;

use super::add::add;
use super::mul::mul;
use super::shape::{broadcast, broadcast_fixed, broadcast_index, dims_error};
use super::{Case, Fact, OpDef, Operands};
use crate::attr::Attr;
use crate::error::OpError;
use crate::tensor::{Scalar, Tensor, TensorMut};
use crate::types::{Class, DType, TensorType};

simple_op! {
    /// Operands `[…, m, k]` and `[…, k, n]`; leading axes are equal.
    /// Sums are taken wide and rounded once.
    BatchMatmul
}

impl OpDef for BatchMatmul {
    const NAME: &'static str = "batch_matmul";
    const SUMMARY: &'static str = "matrix products of the last two axes";
    const ARITY: std::ops::RangeInclusive<usize> = 2..=2;

    fn from_attributes(_: &[(Arc<str>, Attr)]) -> Result<Self, OpError> {
        Ok(Self)
    }

    fn infer(&self, operands: Operands<'_>) -> Result<Vec<Fact>, OpError> {
        Ok(vec![product_type(operands)?.into()])
    }

    fn reference(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, OpError> {
        if inputs[0].shape.len() != inputs[1].shape.len() {
            return Err(OpError::shapes(
                "both operands have one rank",
                &[&inputs[0].shape, &inputs[1].shape],
            ));
        }
        product(&inputs[0], &inputs[1])
    }

    fn cases() -> Vec<Case<Self>> {
        let shapes: [(&[usize], &[usize]); 3] = [
            (&[2, 3], &[3, 4]),
            (&[2, 2, 3], &[2, 3, 1]),
            (&[1, 0], &[0, 2]),
        ];
        shapes
            .iter()
            .flat_map(|s| [DType::F32, DType::F16, DType::C32].map(|dtype| case(Self, s, dtype)))
            .flatten()
            .collect()
    }
}

/// The type of a product; leading axes broadcast.
pub fn product_type(operands: Operands<'_>) -> Result<TensorType, OpError> {
    let (a, b) = (operands.tensor(0)?, operands.tensor(1)?);
    let (Some(r), Some(s)) = (a.rank().checked_sub(2), b.rank().checked_sub(2)) else {
        return Err(dims_error(
            "operands of a product have two axes or more",
            &[&a.shape, &b.shape],
        ));
    };
    let fits = match (a.shape[r + 1].as_const(), b.shape[s].as_const()) {
        (Some(x), Some(y)) => x == y,
        _ => true,
    };
    if !fits || a.dtype != b.dtype {
        return Err(dims_error(
            "rows of the left are as long as columns of the right",
            &[&a.shape, &b.shape],
        ));
    }
    let mut shape = broadcast(&a.shape[..r], &b.shape[..s])?;
    shape.extend([a.shape[r].clone(), b.shape[s + 1].clone()]);
    Ok(TensorType::new(a.dtype, shape))
}

/// The product of the last two axes, summed in f64 and rounded once.
pub fn product(a: &Tensor, b: &Tensor) -> Result<Vec<Tensor>, OpError> {
    let (Some(r), Some(s)) = (a.shape.len().checked_sub(2), b.shape.len().checked_sub(2)) else {
        return Err(OpError::shapes(
            "operands of a product have two axes or more",
            &[&a.shape, &b.shape],
        ));
    };
    let (m, k, n) = (a.shape[r], a.shape[r + 1], b.shape[s + 1]);
    if b.shape[s] != k || a.dtype != b.dtype {
        return Err(OpError::shapes(
            "rows of the left are as long as columns of the right",
            &[&a.shape, &b.shape],
        ));
    }
    let lead = broadcast_fixed(&a.shape[..r], &b.shape[..s])?;
    let mut shape = lead.clone();
    shape.extend([m, n]);
    let mut out = TensorMut::zeros(a.dtype, &shape)?;
    for i in 0..out.len() {
        let (batch, row, column) = (i / (m * n), i / n % m, i % n);
        let left = broadcast_index(batch, &lead, &a.shape[..r]) * m * k + row * k;
        let right = broadcast_index(batch, &lead, &b.shape[..s]) * k * n + column;
        let terms = (0..k).map(|j| (a.get(left + j), b.get(right + j * n)));
        let sum = match a.dtype.class() {
            Class::Float => Scalar::Float(terms.map(|(x, y)| x.float() * y.float()).sum()),
            Class::Complex => terms.fold(Scalar::Complex(0.0, 0.0), |s, (x, y)| add(s, mul(x, y))),
            _ => Scalar::Int(terms.map(|(x, y)| x.int() * y.int()).sum()),
        };
        out.set(i, sum);
    }
    Ok(vec![out.finish()])
}

/// A case of a product, with small numbers in matrices of two shapes.
pub(super) fn case<T>(op: T, (a, b): &(&[usize], &[usize]), dtype: DType) -> Option<Case<T>> {
    let sample = |shape: &[usize]| {
        let n = shape.iter().product::<usize>();
        let values: Vec<f64> = (0..n).map(|i| (i % 7) as f64 * 0.5 - 1.0).collect();
        Tensor::from_floats(dtype, shape, &values).ok()
    };
    Some(Case {
        op,
        inputs: vec![sample(a)?, sample(b)?],
    })
}
