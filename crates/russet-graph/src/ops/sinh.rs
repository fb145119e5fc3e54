//! `sinh`: hyperbolic sine.

use super::complex;
use super::family::unary_op;

unary_op! {
    /// `sinh x`.
    Sinh, "sinh", "hyperbolic sine",
    |x| complex::apply(x, f64::sinh, complex::sinh), [F32, F16, BF16, C32]
}
