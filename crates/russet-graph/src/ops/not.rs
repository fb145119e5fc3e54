//! `not`: logical negation.

use super::family::unary_op;
use crate::tensor::Scalar;

unary_op! {
    /// `true` where the operand is `false`.
    Not, "not", "logical negation", |x| Scalar::Bool(!x.bool()), [Bool]
}
