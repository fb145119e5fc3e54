//! `join_token`: after all of several tokens.

use super::structural::structural_op;
use crate::types::Type;

structural_op! {
    /// A token that waits for all its operands.
    JoinToken, "join_token", "a token that waits for several", 0..=usize::MAX, |_| Ok(vec![Type::Token])
}
