//! `cosh`: hyperbolic cosine.

use super::complex;
use super::family::unary_op;

unary_op! {
    /// `cosh x`.
    Cosh, "cosh", "hyperbolic cosine",
    |x| complex::apply(x, f64::cosh, complex::cosh), [F32, F16, BF16, C32]
}
