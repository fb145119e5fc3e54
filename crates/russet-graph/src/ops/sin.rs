//! `sin`: sine.

use super::complex;
use super::family::unary_op;

unary_op! {
    /// Sine of an angle in radians.
    Sin, "sin", "sine",
    |x| complex::apply(x, f64::sin, complex::sin), [F32, F16, BF16, C32]
}
