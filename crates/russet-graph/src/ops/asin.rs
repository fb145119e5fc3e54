//! `asin`: arc sine.

use super::family::unary_op;
use crate::tensor::Scalar;

unary_op! {
    /// `arcsin x` in radians; NaN outside `[-1, 1]`.
    Asin, "asin", "arc sine", |x| Scalar::Float(x.float().asin())
}
