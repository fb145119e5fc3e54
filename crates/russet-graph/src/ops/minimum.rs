//! `minimum`: the smaller of both.

use super::family::{Align, binary_op, by_class};
use crate::tensor::Scalar;

/// The smaller of two elements; the first where they are equal, NaN where one is NaN.
pub fn minimum(x: Scalar, y: Scalar) -> Scalar {
    by_class(
        x,
        y,
        |x, y| if y < x || y.is_nan() { y } else { x },
        i128::min,
    )
}

binary_op! {
    /// The smaller of both, elementwise, of two tensors of one shape.
    Minimum, "minimum", "the smaller of both", Align::Same, minimum, |a, b| Some(a.smaller(b)), None, [F32, F16, BF16, I32, I8, U8]
}
