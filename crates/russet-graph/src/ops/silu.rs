//! `silu`: x · sigmoid(x).

use super::family::unary_op;
use crate::tensor::Scalar;

unary_op! {
    /// `x / (1 + exp(-x))` (sigmoid-weighted linear unit), also called swish.
    Silu, "silu", "x · sigmoid(x)", |x| Scalar::Float(x.float() / (1.0 + (-x.float()).exp()))
}
