//! `while`: repeats a block as long as a condition holds.

use super::structural::structural_op;

structural_op! {
    /// Operands are the initial values. The first block gets the current values and returns the condition (a bool of one
    /// element) followed by the values to carry on; the second block gets those and returns the next values. The results are
    /// the values carried when the condition was false.
    While, "while", "repeats a block as long as a condition holds", 0..=usize::MAX,
    |operands| Ok(operands.0.iter().map(|o| o.ty.clone()).collect())
}
