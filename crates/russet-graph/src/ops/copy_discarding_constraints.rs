//! `copy_discarding_constraints`: the same elements; takes the storage hint from a tensor.

use super::identity::identity_op;

identity_op! {
    /// A copy that takes the storage hint from a tensor. Layout is a hint: the values are the operand's.
    CopyDiscardingConstraints, "copy_discarding_constraints", "the same elements with another storage hint"
}
