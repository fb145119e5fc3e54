//! `sparse_with_bitmask_to_dense`: a sparse tensor spelled out.

use super::identity::identity_op;

identity_op! {
    /// The operand: sparse tensors are held as the dense ones they stand for.
    SparseWithBitmaskToDense, "sparse_with_bitmask_to_dense", "a sparse tensor spelled out"
}
