//! `exp`: exponential.

use super::family::unary_op;
use crate::tensor::Scalar;

unary_op! {
    /// `e^x`.
    Exp, "exp", "exponential", |x| Scalar::Float(x.float().exp()), [F32, F16, BF16]
}
