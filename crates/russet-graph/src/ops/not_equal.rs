//! `not_equal`: whether both differ.

use super::family::{Align, binary_op};
use crate::tensor::Scalar;
use crate::types::{DType, Dim};

/// Whether both differ, of two elements.
pub fn not_equal(x: Scalar, y: Scalar) -> Scalar {
    let holds = match (x, y) {
        (Scalar::Float(x), Scalar::Float(y)) => x != y,
        (Scalar::Complex(a, b), Scalar::Complex(c, d)) => a != c || b != d,
        _ => x.int() != y.int(),
    };
    Scalar::Bool(holds)
}

binary_op! {
    /// Whether both differ, elementwise, of two tensors of one shape.
    NotEqual, "not_equal", "whether both differ", Align::Same, not_equal, fold, Some(DType::Bool), [F32, F16, I32, U8, Bool, C32]
}

/// Compares two followed contents that are constants.
pub fn fold(a: &Dim, b: &Dim) -> Option<Dim> {
    Some(Dim::from(i64::from(a.as_const()? != b.as_const()?)))
}
