//! `sinh`: hyperbolic sine.

use super::family::unary_op;
use crate::tensor::Scalar;

unary_op! {
    /// `sinh x`.
    Sinh, "sinh", "hyperbolic sine", |x| Scalar::Float(x.float().sinh())
}
