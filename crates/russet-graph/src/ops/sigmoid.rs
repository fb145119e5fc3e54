//! `sigmoid`: 1 / (1 + exp(-x)).

use super::family::unary_op;
use crate::tensor::Scalar;

unary_op! {
    /// The logistic function `1 / (1 + e^-x)`.
    Sigmoid, "sigmoid", "1 / (1 + exp(-x))", |x| Scalar::Float(1.0 / (1.0 + (-x.float()).exp())), [F32, F16, BF16]
}
