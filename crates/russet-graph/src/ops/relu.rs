//! `relu`: the larger of x and 0.

use super::family::unary_op;
use crate::tensor::Scalar;

unary_op! {
    /// `max(x, 0)`; NaN stays NaN.
    Relu, "relu", "the larger of x and 0", relu, [F32, F16, I32]
}

fn relu(x: Scalar) -> Scalar {
    match x {
        Scalar::Float(v) => Scalar::Float(if v > 0.0 || v.is_nan() { v } else { 0.0 }),
        other => Scalar::Int(other.int().max(0)),
    }
}
