//! `sigmoid`: 1 / (1 + exp(-x)).

use super::complex;
use super::family::unary_op;

unary_op! {
    /// The logistic function `1 / (1 + e^-x)`.
    Sigmoid, "sigmoid", "1 / (1 + exp(-x))",
    |x| complex::apply(x, |x| 1.0 / (1.0 + (-x).exp()), complex::sigmoid), [F32, F16, BF16, C32]
}
