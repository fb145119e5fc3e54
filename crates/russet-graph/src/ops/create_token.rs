//! `create_token`: the beginning of an order.

use super::structural::structural_op;
use crate::types::Type;

structural_op! {
    /// A token that waits for nothing.
    CreateToken, "create_token", "a token that waits for nothing", 0..=0, |_| Ok(vec![Type::Token])
}
