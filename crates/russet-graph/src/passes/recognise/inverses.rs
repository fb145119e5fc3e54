//! The inverse of a unit lower triangular matrix by block doubling, as the chunked delta rule is exported where nothing but products
//! is at hand.
//!
//! With `X_1 = I` and masks `M_b` for b = 1, 2, 4 … below n, `X_2b = X_b - X_b (L ∘ M_b) X_b` gives the inverse of `I + L` in blocks
//! of 2b along the diagonal. `M_b` is 1 in the lower left quarters of these blocks: where the row lies in an odd block of b, and the
//! column in the one before. All masks together are 1 once in every place below the diagonal, and nowhere else.

use super::sight::{Pair, Patch, Sight, pair};
use crate::graph::{ConstantData, Node, Storage, ValueId};
use crate::ops::Op;
use crate::ops::unit_lower_inverse::UnitLowerInverse;
use crate::tensor::Tensor;
use crate::types::{DType, Dim};

/// `X - X (L ∘ M) X` with the last of the masks.
pub(super) fn by_doubling(sight: &Sight<'_>, node: &Node) -> Option<Patch> {
    let &[id] = &node.outputs[..] else {
        return None;
    };
    let difference = |x| match x == id {
        true => pair(node, Pair::Sub),
        false => sight.pair(x, Pair::Sub),
    };
    difference(id)?;
    let n = usize::try_from(sight.width(id)?).ok()?;
    let identity = |x| sight.repeats(x, n, |row, column| row == column);
    let (mut x, mut lower, mut block) = (id, None, n.checked_next_power_of_two()?);
    while block > 1 {
        block /= 2;
        let [before, away] = difference(x)?;
        x = sight.regrouped(before, n);
        // The first X is the identity, with which nothing needs to be multiplied.
        let plain = (block == 1).then_some(away);
        let is_x = |id| sight.regrouped(id, n) == x || block == 1 && identity(id);
        let masked = sight.between(sight.regrouped(away, n), is_x).or(plain)?;
        let of = sight.masked(sight.regrouped(masked, n), n, block)?;
        if *lower.get_or_insert(of) != of {
            return None;
        }
    }
    let lower = lower?;
    // As many matrices: so nothing was repeated on the way, and their order has stayed.
    let fits = sight.shape(lower)? == sight.shape(id)? && sight.dtype(lower) == sight.dtype(id);
    let whole = fits && identity(x);
    whole.then(|| Patch::new(sight).finish(UnitLowerInverse, &[lower], node))
}

impl Sight<'_> {
    /// Matrices `[n, n]` before the axes in front of them were grouped anew.
    fn regrouped(&self, mut id: ValueId, n: usize) -> ValueId {
        let square = [Dim::from(n), Dim::from(n)];
        let is_square = |id| self.shape(id).is_some_and(|s| s.ends_with(&square));
        let regroups =
            |op: &Op| matches!(op, Op::Reshape(_) | Op::ExpandDims(_) | Op::ShrinkDims(_));
        while let Some(node) = self.made_by(id, regroups) {
            match node.inputs.first() {
                Some(&from) if is_square(from) && is_square(id) => id = from,
                _ => break,
            }
        }
        id
    }

    /// What stands between two `x` in a product of three.
    fn between(&self, id: ValueId, is_x: impl Fn(ValueId) -> bool) -> Option<ValueId> {
        let [a, b] = self.pair(id, Pair::Product)?;
        let left = || {
            let [first, middle] = self.pair(a, Pair::Product)?;
            (is_x(first) && is_x(b)).then_some(middle)
        };
        let right = || {
            let [middle, last] = self.pair(b, Pair::Product)?;
            (is_x(a) && is_x(last)).then_some(middle)
        };
        left().or_else(right)
    }

    /// What was multiplied with the mask for blocks of `block`, or chosen by it.
    fn masked(&self, id: ValueId, n: usize, block: usize) -> Option<ValueId> {
        let quarter = |row: usize, column: usize| {
            let (row, column) = (row / block, column / block);
            row % 2 == 1 && column + 1 == row
        };
        let node = self.maker(id)?;
        let (of, mask) = match (&node.op, &node.inputs[..]) {
            (Op::Where(_) | Op::BroadcastingWhere(_), &[mask, x, zero]) => {
                (x, Some(mask).filter(|_| self.number(zero) == Some(0.0))?)
            }
            _ => {
                let [a, b] = pair(node, Pair::Mul)?;
                if self.repeats(b, n, quarter) {
                    (a, b)
                } else {
                    (b, a)
                }
            }
        };
        self.repeats(mask, n, quarter).then_some(of)
    }

    /// Whether a value is a constant of matrices `[n, n]` that are 1 where `one` says so, and 0 elsewhere.
    fn repeats(&self, mut id: ValueId, n: usize, one: impl Fn(usize, usize) -> bool) -> bool {
        let square = [Dim::from(n), Dim::from(n)];
        let is_square = |id| self.shape(id).is_some_and(|s| s.ends_with(&square));
        while is_square(id) {
            if let Some(data) = self.data(id) {
                return is_pattern(data, n, one);
            }
            let repeated = |op: &Op| {
                matches!(
                    op,
                    Op::Cast(_)
                        | Op::BroadcastTo(_)
                        | Op::Tile(_)
                        | Op::ExpandDims(_)
                        | Op::ShrinkDims(_)
                        | Op::Reshape(_)
                )
            };
            let node = self.made_by(id, repeated);
            let Some(&from) = node.and_then(|n| n.inputs.first()) else {
                return false;
            };
            id = from;
        }
        false
    }
}

/// Whether all matrices `[n, n]` of a constant are 1 where `one` says so, and 0 elsewhere.
fn is_pattern(data: &ConstantData, n: usize, one: impl Fn(usize, usize) -> bool) -> bool {
    let (Storage::Dense(bytes), Some(size)) = (&data.storage, data.ty.dtype.size()) else {
        return false;
    };
    let len = n.checked_mul(n).and_then(|len| len.checked_mul(size));
    let (Some(bits), Some(len)) = (one_of(data.ty.dtype), len.filter(|l| *l <= bytes.len())) else {
        return false;
    };
    let mut pattern = vec![0; len];
    for (i, place) in pattern.chunks_exact_mut(size).enumerate() {
        if one(i / n, i % n) {
            place.copy_from_slice(bits.bytes());
        }
    }
    bytes.chunks(len).all(|matrix| *matrix == pattern)
}

/// The number 1 of a kind.
fn one_of(dtype: DType) -> Option<Tensor> {
    match dtype.is_float() {
        true => Tensor::from_floats(dtype, &[1], &[1.0]).ok(),
        false => Tensor::from_ints(dtype, &[1], &[1]).ok(),
    }
}
