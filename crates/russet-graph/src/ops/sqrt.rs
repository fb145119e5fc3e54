//! `sqrt`: square root.

use super::family::unary_op;
use crate::tensor::Scalar;

unary_op! {
    /// `√x`; NaN below 0.
    Sqrt, "sqrt", "square root", |x| Scalar::Float(x.float().sqrt()), [F32, F16, BF16]
}
