//! What operations share that have no value of their own: calls, control flow, states and their order. Their results follow
//! from the module or from the states of a run, so inference and execution live with those ([`crate::infer`],
//! [`crate::interpret`]); the table knows their names, operands and types.

/// Declares an operation without attributes whose meaning lies in the module or the run. `$infer` maps operands to facts.
macro_rules! structural_op {
    ($(#[$doc:meta])* $name:ident, $text:literal, $summary:literal, $arity:expr, $infer:expr) => {
        $crate::ops::simple_op! { $(#[$doc])* $name }

        impl $crate::ops::OpDef for $name {
            const NAME: &'static str = $text;
            const SUMMARY: &'static str = $summary;
            const ARITY: std::ops::RangeInclusive<usize> = $arity;

            fn from_attributes(
                _: &[(std::sync::Arc<str>, $crate::attr::Attr)],
            ) -> Result<Self, $crate::error::OpError> {
                Ok(Self)
            }

            fn infer(
                &self,
                operands: $crate::ops::Operands<'_>,
            ) -> Result<Vec<$crate::ops::Fact>, $crate::error::OpError> {
                let infer: fn($crate::ops::Operands<'_>) -> Result<Vec<$crate::types::Type>, $crate::error::OpError> =
                    $infer;
                let fact = |ty| $crate::ops::Fact { ty, known: None };
                Ok(infer(operands)?.into_iter().map(fact).collect())
            }

            fn reference(
                &self,
                _: &[$crate::tensor::Tensor],
            ) -> Result<Vec<$crate::tensor::Tensor>, $crate::error::OpError> {
                Err($crate::error::OpError::Unknown("the module or state it works on"))
            }

            fn cases() -> Vec<$crate::ops::Case<Self>> {
                Vec::new()
            }
        }
    };
}
pub(crate) use structural_op;

use crate::error::OpError;
use crate::ops::Operands;
use crate::types::{TensorType, Type};

/// The tensor type behind the handle in operand 0.
pub fn handle_type(operands: Operands<'_>) -> Result<TensorType, OpError> {
    match operands.get(0)?.ty {
        Type::Handle(t) => Ok(t.clone()),
        other => Err(OpError::Shape {
            rule: "operand 0 is a handle",
            shapes: other.to_string(),
        }),
    }
}
