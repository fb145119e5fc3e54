//! `greater`: whether the left is greater.

use super::family::{Align, binary_op};
use crate::tensor::Scalar;
use crate::types::{DType, Dim};

/// Whether the left is greater, of two elements.
pub fn greater(x: Scalar, y: Scalar) -> Scalar {
    let holds = match (x, y) {
        (Scalar::Float(x), Scalar::Float(y)) => x > y,
        _ => x.int() > y.int(),
    };
    Scalar::Bool(holds)
}

binary_op! {
    /// Whether the left is greater, elementwise, of two tensors of one shape.
    Greater, "greater", "whether the left is greater", Align::Same, greater, fold, Some(DType::Bool), [F32, F16, I32, U8, Bool]
}

/// Compares two followed contents that are constants.
pub fn fold(a: &Dim, b: &Dim) -> Option<Dim> {
    Some(Dim::from(i64::from(a.as_const()? > b.as_const()?)))
}
