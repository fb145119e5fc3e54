//! `cos`: cosine.

use super::complex;
use super::family::unary_op;

unary_op! {
    /// Cosine of an angle in radians.
    Cos, "cos", "cosine",
    |x| complex::apply(x, f64::cos, complex::cos), [F32, F16, BF16, C32]
}
