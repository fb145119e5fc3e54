//! `exp`: exponential.

use super::complex;
use super::family::unary_op;

unary_op! {
    /// `e^x`.
    Exp, "exp", "exponential",
    |x| complex::apply(x, f64::exp, complex::exp), [F32, F16, BF16, C32]
}
