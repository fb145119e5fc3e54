//! `acosh`: inverse hyperbolic cosine.

use super::family::unary_op;
use crate::tensor::Scalar;

unary_op! {
    /// `arcosh x`; NaN below 1.
    Acosh, "acosh", "inverse hyperbolic cosine", |x| Scalar::Float(x.float().acosh())
}
