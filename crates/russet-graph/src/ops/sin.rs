//! `sin`: sine.

use super::family::unary_op;
use crate::tensor::Scalar;

unary_op! {
    /// Sine of an angle in radians.
    Sin, "sin", "sine", |x| Scalar::Float(x.float().sin()), [F32, F16, BF16]
}
