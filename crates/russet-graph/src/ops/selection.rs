//! What `where` and `broadcasting_where` share.

use crate::error::OpError;
use crate::ops::family::{Align, samples};
use crate::ops::shape::{broadcast, broadcast_fixed, broadcast_index, dims_error};
use crate::ops::{Case, Fact, Operands};
use crate::tensor::{Tensor, TensorMut};
use crate::types::{DType, Dim, TensorType};

/// The type of the result, with its contents where the condition is known.
pub fn infer(operands: Operands<'_>, align: Align) -> Result<Vec<Fact>, OpError> {
    let (c, a, b) = (
        operands.tensor(0)?,
        operands.tensor(1)?,
        operands.tensor(2)?,
    );
    check_kinds(c.dtype, a.dtype, b.dtype)?;
    let shapes: [&[Dim]; 3] = [&c.shape, &a.shape, &b.shape];
    if align == Align::Same && (c.rank() != a.rank() || a.rank() != b.rank()) {
        return Err(dims_error("all operands have one shape", &shapes));
    }
    let ty = TensorType::new(
        a.dtype,
        broadcast(&broadcast(&c.shape, &a.shape)?, &b.shape)?,
    );
    let known = contents(operands, &ty);
    Ok(vec![Fact::with_known(ty, known)])
}

fn contents(operands: Operands<'_>, ty: &TensorType) -> Option<Vec<Dim>> {
    let out = ty.fixed_shape()?;
    let at = |operand: usize, i: usize| {
        let shape = operands.tensor(operand).ok()?.fixed_shape()?;
        operands
            .known(operand)?
            .get(broadcast_index(i, &out, &shape))
            .cloned()
    };
    let pick = |i| at(if at(0, i)?.as_const()? != 0 { 1 } else { 2 }, i);
    (0..ty.fixed_len().filter(|&n| n <= crate::ops::KNOWN_LIMIT)?)
        .map(pick)
        .collect()
}

fn check_kinds(condition: DType, a: DType, b: DType) -> Result<(), OpError> {
    if condition != DType::Bool {
        return Err(OpError::Kind {
            rule: "a condition is bool",
            index: 0,
            got: condition,
        });
    }
    if a != b {
        return Err(OpError::Kind {
            rule: "both values have one element kind",
            index: 2,
            got: b,
        });
    }
    Ok(())
}

/// Takes each element from one of two tensors.
pub fn select(inputs: &[Tensor], align: Align) -> Result<Vec<Tensor>, OpError> {
    let (c, a, b) = (&inputs[0], &inputs[1], &inputs[2]);
    check_kinds(c.dtype, a.dtype, b.dtype)?;
    if align == Align::Same && (c.shape != a.shape || a.shape != b.shape) {
        return Err(OpError::shapes(
            "all operands have one shape",
            &[&c.shape, &a.shape, &b.shape],
        ));
    }
    let shape = broadcast_fixed(&broadcast_fixed(&c.shape, &a.shape)?, &b.shape)?;
    let mut out = TensorMut::zeros(a.dtype, &shape)?;
    for i in 0..out.len() {
        let at = |t: &Tensor| t.get(broadcast_index(i, &shape, &t.shape));
        out.set(i, if at(c).bool() { at(a) } else { at(b) });
    }
    Ok(vec![out.finish()])
}

/// Examples of values in several kinds; with a scalar for one of them where shapes may differ.
pub fn cases<O: Copy>(op: O, align: Align) -> Vec<Case<O>> {
    let condition = Tensor::from_ints(DType::Bool, &[3, 4], &[1, 0, 1, 0, 0, 0, 1, 1, 0, 1, 0, 1]);
    let case = |t: Tensor| {
        let reversed: Vec<_> = (0..t.len()).rev().map(|i| t.get(i)).collect();
        let other = match align {
            Align::Same => Tensor::from_scalars(t.dtype, &t.shape, &reversed),
            Align::Broadcast => Tensor::from_scalars(t.dtype, &[], &reversed[..1]),
        };
        Some(Case {
            op,
            inputs: vec![condition.clone().ok()?, t, other.ok()?],
        })
    };
    samples(&[DType::F32, DType::F16, DType::I32])
        .into_iter()
        .filter_map(case)
        .collect()
}
