//! `floor_divide`: quotient rounded towards minus infinity.

use super::family::{Align, binary_cases, binary_checked, binary_infer, by_class, plain_op};
use super::{Fact, Operands};
use crate::error::OpError;
use crate::tensor::{Scalar, Tensor, round_to};
use crate::types::{DType, Dim};

/// Element kinds of the examples.
pub const KINDS: [DType; 6] = [
    DType::F32,
    DType::F16,
    DType::BF16,
    DType::I32,
    DType::I8,
    DType::U8,
];

plain_op! {
    /// Quotient rounded towards minus infinity, elementwise, of two tensors of one shape. The quotient of floats is rounded to
    /// the element kind first (to `f32` for `f16`), and is NaN for an infinite dividend unless the divisor is 0. Integers wrap,
    /// and give 0 where the divisor is 0.
    FloorDivide, "floor_divide", "quotient rounded towards minus infinity", 2..=2,
    |operands| infer(operands, Align::Same), |inputs: &[Tensor]| reference(inputs, Align::Same),
    binary_cases(FloorDivide, Align::Same, &KINDS)
}

/// The type of the quotient, with its contents where they are followed.
pub fn infer(operands: Operands<'_>, align: Align) -> Result<Vec<Fact>, OpError> {
    binary_infer(operands, align, None, fold)
}

/// The quotient of two tensors.
pub fn reference(inputs: &[Tensor], align: Align) -> Result<Vec<Tensor>, OpError> {
    let kind = match inputs[0].dtype {
        DType::F16 => DType::F32,
        other => other,
    };
    let divide = |x, y| by_class(x, y, |x, y| floor(kind, x, y), floor_integers);
    binary_checked(&inputs[0], &inputs[1], align, None, |x: Scalar, y| {
        divide(x, y)
    })
}

/// As the reference runtime has it: `(x - x mod y) / y`, which is NaN for an infinite `x`.
fn floor(kind: DType, x: f64, y: f64) -> f64 {
    if x.is_infinite() && y.is_finite() && y != 0.0 {
        f64::NAN
    } else {
        round_to(kind, x / y).floor()
    }
}

fn floor_integers(x: i128, y: i128) -> i128 {
    match x.checked_rem(y) {
        None => 0,
        Some(rest) => x / y - i128::from(rest != 0 && (rest < 0) != (y < 0)),
    }
}

/// The quotient of two followed contents.
fn fold(a: &Dim, b: &Dim) -> Option<Dim> {
    (b.as_const() != Some(0)).then(|| a.div(b))
}
