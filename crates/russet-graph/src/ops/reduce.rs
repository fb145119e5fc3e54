//! `reduce`: elements over axes folded by a block.

use super::structural::structural_op;
use crate::error::OpError;

structural_op! {
    /// Operands: tensor, axes (integers), initial value (a scalar). The block gets the value so far and the next element, both
    /// scalars, and returns the next value. Elements come in row-major order; reduced axes keep extent 1.
    Reduce, "reduce", "elements over axes folded by a block", 3..=3, |_| Err(OpError::Unknown("the blocks outside their node"))
}
