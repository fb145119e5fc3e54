//! `log`: natural logarithm.

use super::family::unary_op;
use crate::tensor::Scalar;

unary_op! {
    /// Natural logarithm; minus infinity at 0, NaN below.
    Log, "log", "natural logarithm", |x| Scalar::Float(x.float().ln()), [F32, F16, BF16]
}
