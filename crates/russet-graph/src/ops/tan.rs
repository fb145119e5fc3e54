//! `tan`: tangent.

use super::family::unary_op;
use crate::tensor::Scalar;

unary_op! {
    /// `tan x` of radians.
    Tan, "tan", "tangent", |x| Scalar::Float(x.float().tan())
}
