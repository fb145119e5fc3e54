//! `cosh`: hyperbolic cosine.

use super::family::unary_op;
use crate::tensor::Scalar;

unary_op! {
    /// `cosh x`.
    Cosh, "cosh", "hyperbolic cosine", |x| Scalar::Float(x.float().cosh())
}
