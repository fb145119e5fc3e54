//! `atan`: arc tangent.

use super::family::unary_op;
use crate::tensor::Scalar;

unary_op! {
    /// `arctan x` in radians.
    Atan, "atan", "arc tangent", |x| Scalar::Float(x.float().atan())
}
