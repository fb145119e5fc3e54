//! `broadcast_shapes`: the shape that two shapes broadcast to.

use super::family::plain_op;
use super::shape::{broadcast, broadcast_fixed};
use super::{Case, Fact, Operands};
use crate::error::OpError;
use crate::tensor::Tensor;
use crate::types::{DType, Dim, TensorType};

plain_op! {
    /// Operands: two shapes (integers). The result is as long as the longer one; NumPy's rule.
    BroadcastShapes, "broadcast_shapes", "the shape that two shapes broadcast to", 2..=2, infer, reference, cases()
}

fn infer(operands: Operands<'_>) -> Result<Vec<Fact>, OpError> {
    let (a, b) = (operands.tensor(0)?, operands.tensor(1)?);
    let length = match (a.fixed_len(), b.fixed_len()) {
        (Some(x), Some(y)) => Dim::from(x.max(y)),
        _ => Dim::Unknown,
    };
    let known = match (operands.known(0), operands.known(1)) {
        (Some(x), Some(y)) => Some(broadcast(&x, &y)?),
        _ => None,
    };
    Ok(vec![Fact::with_known(TensorType::new(a.dtype, [length]), known)])
}

fn reference(inputs: &[Tensor]) -> Result<Vec<Tensor>, OpError> {
    let shape = |t: &Tensor| {
        let extent = |&d: &i64| usize::try_from(d).map_err(|_| OpError::Unknown("an extent"));
        t.ints().iter().map(extent).collect::<Result<Vec<usize>, _>>()
    };
    let out = broadcast_fixed(&shape(&inputs[0])?, &shape(&inputs[1])?)?;
    let out: Vec<i64> = out.into_iter().map(|d| d as i64).collect();
    Ok(vec![Tensor::from_ints(inputs[0].dtype, &[out.len()], &out)?])
}

fn cases() -> Vec<Case<BroadcastShapes>> {
    let examples: [(&[i64], &[i64]); 4] = [(&[3, 1, 5], &[4, 1]), (&[1], &[7, 2]), (&[], &[2]), (&[0, 1], &[1, 3])];
    let shape = |v: &[i64]| Tensor::from_ints(DType::U32, &[v.len()], v).ok();
    let case = |(a, b): &(&[i64], &[i64])| Some(Case { op: BroadcastShapes, inputs: vec![shape(a)?, shape(b)?] });
    examples.iter().filter_map(case).collect()
}
