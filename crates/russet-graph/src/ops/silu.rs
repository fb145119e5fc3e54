//! `silu`: x · sigmoid(x).

use super::complex;
use super::family::unary_op;

unary_op! {
    /// `x / (1 + exp(-x))` (sigmoid-weighted linear unit), also called swish.
    Silu, "silu", "x · sigmoid(x)",
    |x| complex::apply(x, |x| x / (1.0 + (-x).exp()), complex::silu), [F32, F16, BF16, C32]
}
