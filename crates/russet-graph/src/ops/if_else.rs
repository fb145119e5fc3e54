//! `if`: one of two blocks.

use super::structural::structural_op;
use crate::error::OpError;

structural_op! {
    /// Operand: a bool of one element. The first block runs where it is true, the second where it is false; the results are
    /// those of the block that ran. Blocks may use values of the enclosing ones.
    If, "if", "one of two blocks", 1..=1, |_| Err(OpError::Unknown("the blocks outside their node"))
}
