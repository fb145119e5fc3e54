//! Operations that hand on their operand: what they change is how its elements are stored, or what they are called.

use crate::ops::Case;
use crate::ops::family::samples;
use crate::types::DType;

/// Declares an operation whose result is its operand.
macro_rules! identity_op {
    ($(#[$doc:meta])* $name:ident, $text:literal, $summary:literal) => {
        $crate::ops::family::plain_op! {
            $(#[$doc])* $name, $text, $summary, 1..=1,
            |operands: $crate::ops::Operands<'_>| $crate::ops::family::unary_infer(operands),
            |inputs: &[$crate::tensor::Tensor]| Ok(vec![inputs[0].clone()]),
            $crate::ops::identity::cases(Self)
        }
    };
}
pub(crate) use identity_op;

/// Examples in a float and an integer kind.
pub fn cases<O: Copy>(op: O) -> Vec<Case<O>> {
    samples(&[DType::F16, DType::U8])
        .into_iter()
        .map(|t| Case {
            op,
            inputs: vec![t],
        })
        .collect()
}
