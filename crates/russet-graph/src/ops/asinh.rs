//! `asinh`: inverse hyperbolic sine.

use super::family::unary_op;
use crate::tensor::Scalar;

unary_op! {
    /// `arsinh x`.
    Asinh, "asinh", "inverse hyperbolic sine", |x| Scalar::Float(x.float().asinh())
}
