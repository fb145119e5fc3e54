//! `copy_with_constraints`: the same elements; gives a storage hint to a tensor.

use super::identity::identity_op;

identity_op! {
    /// A copy that gives a storage hint to a tensor. Layout is a hint: the values are the operand's.
    CopyWithConstraints, "copy_with_constraints", "the same elements with another storage hint"
}
