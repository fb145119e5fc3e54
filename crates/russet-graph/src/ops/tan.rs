//! `tan`: tangent.

use super::complex;
use super::family::unary_op;

unary_op! {
    /// `tan x` of radians.
    Tan, "tan", "tangent",
    |x| complex::apply(x, f64::tan, complex::tan), [F32, F16, BF16, C32]
}
