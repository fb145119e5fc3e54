//! `atanh`: inverse hyperbolic tangent.

use super::family::unary_op;
use crate::tensor::Scalar;

unary_op! {
    /// `artanh x`; infinite at ±1, NaN beyond.
    Atanh, "atanh", "inverse hyperbolic tangent", |x| Scalar::Float(x.float().atanh())
}
