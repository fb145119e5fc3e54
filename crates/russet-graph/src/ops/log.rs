//! `log`: natural logarithm.

use super::complex;
use super::family::unary_op;

unary_op! {
    /// Natural logarithm; minus infinity at 0, NaN below.
    Log, "log", "natural logarithm",
    |x| complex::apply(x, f64::ln, complex::log), [F32, F16, BF16, C32]
}
