//! `rsqrt`: reciprocal of the square root.

use super::family::unary_op;
use crate::tensor::Scalar;

unary_op! {
    /// `1 / √x`; infinity at 0, NaN below.
    Rsqrt, "rsqrt", "reciprocal of the square root", |x| Scalar::Float(1.0 / x.float().sqrt()), [F32, F16, BF16]
}
