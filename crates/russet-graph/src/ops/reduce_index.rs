//! `reduce_index`: where the element is that wins a comparison, along an axis.

use super::structural::structural_op;
use crate::error::OpError;

structural_op! {
    /// Operands: tensor, axis (one integer), initial value and initial index (scalars). The block gets the best value so far and
    /// the next element, both scalars, and returns a bool: whether the element replaces the best. The result holds the positions
    /// of the winners; the axis keeps extent 1.
    ReduceIndex, "reduce_index", "where the element is that wins a comparison, along an axis", 4..=4, |_| Err(OpError::Unknown("the blocks outside their node"))
}
