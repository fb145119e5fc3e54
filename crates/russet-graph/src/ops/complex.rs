//! What operations on complex numbers share: their kinds and parts.

use crate::error::OpError;
use crate::ops::{Case, Fact, Operands};
use crate::tensor::{Scalar, Tensor, TensorMut};
use crate::types::{DType, TensorType};

/// Every complex kind with the kind of its parts.
pub const KINDS: [(DType, DType); 2] = [(DType::C32, DType::F32), (DType::C16, DType::F16)];

/// The kind of the parts of `dtype`.
pub fn part_of(dtype: DType) -> Result<DType, OpError> {
    let found = KINDS.iter().find(|(c, _)| *c == dtype).map(|(_, p)| *p);
    found.ok_or(OpError::Kind {
        rule: "the operand is complex",
        index: 0,
        got: dtype,
    })
}

/// The type of one part of the operand.
pub fn infer_part(operands: Operands<'_>) -> Result<Vec<Fact>, OpError> {
    let t = operands.tensor(0)?;
    Ok(vec![
        TensorType::new(part_of(t.dtype)?, t.shape.iter().cloned()).into(),
    ])
}

/// One part of every element.
pub fn part(x: &Tensor, of: impl Fn(Scalar) -> f64) -> Result<Vec<Tensor>, OpError> {
    let mut out = TensorMut::zeros(part_of(x.dtype)?, &x.shape)?;
    (0..x.len()).for_each(|i| out.set(i, Scalar::Float(of(x.get(i)))));
    Ok(vec![out.finish()])
}

/// Examples of every complex kind.
pub fn cases<O: Copy>(op: O) -> Vec<Case<O>> {
    let values = [Scalar::Complex(1.0, -2.0), Scalar::Complex(0.5, f64::NAN)];
    let tensor = |(dtype, _)| Tensor::from_scalars(dtype, &[2, 1], &values).ok();
    KINDS
        .into_iter()
        .filter_map(tensor)
        .map(|t| Case {
            op,
            inputs: vec![t],
        })
        .collect()
}
