//! What `sort` and `argsort` share.

use std::cmp::Ordering;

use crate::error::OpError;
use crate::ops::Case;
use crate::ops::shape::axis;
use crate::tensor::{Scalar, Tensor};
use crate::types::DType;

/// Order of two elements; NaN comes last in either direction.
pub fn compare(a: Scalar, b: Scalar, descending: bool) -> Ordering {
    let (x, y) = (a.float(), b.float());
    if x.is_nan() || y.is_nan() {
        return x.is_nan().cmp(&y.is_nan());
    }
    let order = match (a, b) {
        (Scalar::Float(_), _) => x.partial_cmp(&y).unwrap_or(Ordering::Equal),
        _ => a.int().cmp(&b.int()),
    };
    if descending { order.reverse() } else { order }
}

/// Calls `put(place in the result, place in the operand, position along the axis)` for every element of the sorted tensor.
/// Operands: tensor, axis, descending, stable. Equal elements keep their order.
pub fn sorted(inputs: &[Tensor], mut put: impl FnMut(usize, usize, usize)) -> Result<(), OpError> {
    let x = &inputs[0];
    let at = axis(
        inputs[1].ints().first().copied().unwrap_or(0),
        x.shape.len(),
    )?;
    let descending = inputs[2].ints().first().copied().unwrap_or(0) != 0;
    let inner: usize = x.shape[at + 1..].iter().product();
    let n = x.shape[at];
    for line in 0..x.len().checked_div(n).unwrap_or(0) {
        let place = |k: usize| line / inner * n * inner + line % inner + k * inner;
        let mut order: Vec<usize> = (0..n).collect();
        order.sort_by(|&a, &b| compare(x.get(place(a)), x.get(place(b)), descending));
        order
            .iter()
            .enumerate()
            .for_each(|(k, &i)| put(place(k), place(i), i));
    }
    Ok(())
}

/// Examples in both directions.
pub fn cases<O: Copy>(op: O) -> Vec<Case<O>> {
    let flag = |b: bool| Tensor::from_ints(DType::Bool, &[], &[i64::from(b)]);
    let case = |x: Result<Tensor, OpError>, at: i64, descending: bool| {
        Some(Case {
            op,
            inputs: vec![
                x.ok()?,
                Tensor::from_ints(DType::I32, &[], &[at]).ok()?,
                flag(descending).ok()?,
                flag(true).ok()?,
            ],
        })
    };
    let floats = Tensor::from_floats(
        DType::F32,
        &[2, 4],
        &[3.0, f64::NAN, -1.0, 3.0, 0.0, f64::INFINITY, -0.5, 2.0],
    );
    let ints = Tensor::from_ints(DType::I32, &[3, 2], &[5, 1, 5, 2, 3, 0]);
    [
        case(floats.clone(), -1, false),
        case(floats, 1, true),
        case(ints, 0, true),
    ]
    .into_iter()
    .flatten()
    .collect()
}
