//! `maximum`: the larger of both.

use super::family::{Align, binary_op, by_class};
use crate::tensor::Scalar;

/// The larger of two elements; the first where they are equal, NaN where one is NaN.
pub fn maximum(x: Scalar, y: Scalar) -> Scalar {
    by_class(
        x,
        y,
        |x, y| if y > x || y.is_nan() { y } else { x },
        i128::max,
    )
}

binary_op! {
    /// The larger of both, elementwise, of two tensors of one shape.
    Maximum, "maximum", "the larger of both", Align::Same, maximum, |a, b| Some(a.larger(b)), None, [F32, F16, BF16, I32, I8, U8]
}
