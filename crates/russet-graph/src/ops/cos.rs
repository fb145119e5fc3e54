//! `cos`: cosine.

use super::family::unary_op;
use crate::tensor::Scalar;

unary_op! {
    /// Cosine of an angle in radians.
    Cos, "cos", "cosine", |x| Scalar::Float(x.float().cos()), [F32, F16, BF16]
}
