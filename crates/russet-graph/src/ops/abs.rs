//! `abs`: magnitude.

use super::family::unary_op;
use crate::tensor::Scalar;

unary_op! {
    /// `|x|`. The smallest integer wraps to itself.
    Abs, "abs", "magnitude", magnitude, [F32, F16, I32]
}

fn magnitude(x: Scalar) -> Scalar {
    match x {
        Scalar::Float(v) => Scalar::Float(v.abs()),
        other => Scalar::Int(other.int().abs()),
    }
}
