//! `tanh`: hyperbolic tangent.

use super::family::unary_op;
use crate::tensor::Scalar;

unary_op! {
    /// Hyperbolic tangent.
    Tanh, "tanh", "hyperbolic tangent", |x| Scalar::Float(x.float().tanh()), [F32, F16, BF16]
}
