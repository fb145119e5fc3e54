//! `round`: nearest integer, ties to even.

use super::family::unary_op;
use crate::tensor::Scalar;

unary_op! {
    /// The nearest integer, ties to even; integers stay as they are.
    Round, "round", "nearest integer, ties to even", round, [F32, F16, BF16, I32]
}

fn round(x: Scalar) -> Scalar {
    match x {
        Scalar::Float(v) => Scalar::Float(v.round_ties_even()),
        other => other,
    }
}
