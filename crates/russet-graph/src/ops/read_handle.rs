//! `read_handle`: the value of a state.

use super::structural::{handle_type, structural_op};
use crate::types::Type;

structural_op! {
    /// Operands: handle, token. Results: the state's tensor as of that token, and a token for what comes after.
    ReadHandle, "read_handle", "the value of a state", 2..=2,
    |operands| Ok(vec![Type::Tensor(handle_type(operands)?), Type::Token])
}
