//! `acos`: arc cosine.

use super::family::unary_op;
use crate::tensor::Scalar;

unary_op! {
    /// `arccos x` in radians; NaN outside `[-1, 1]`.
    Acos, "acos", "arc cosine", |x| Scalar::Float(x.float().acos())
}
