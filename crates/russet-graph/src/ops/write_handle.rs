//! `write_handle`: replaces the value of a state.

use super::structural::{handle_type, structural_op};
use crate::types::Type;

structural_op! {
    /// Operands: handle, tensor, token. Result: a token for what comes after.
    WriteHandle, "write_handle", "replaces the value of a state", 3..=3,
    |operands| handle_type(operands).map(|_| vec![Type::Token])
}
