//! Extents as values: shapes that follow from the shapes of other tensors, and results whose extents only the run knows.

use russet_graph::ops::*;
use russet_graph::types::DType;

use super::{Builder, Choices, Val, number};

impl Builder {
    /// The extents of a value, as signed numbers.
    fn extents(&mut self, v: &Val) -> Option<Val> {
        let shape = self.push(get_shape::GetShape, &[v], false)?;
        self.push(cast::Cast { to: DType::I32 }, &[&shape], false)
    }

    /// Elements `from..to` of a vector.
    fn part(&mut self, v: &Val, from: usize, to: usize) -> Option<Val> {
        let bounds = [from, to, 1].map(|n| self.ints(DType::I32, &[n as i64]));
        let [begin, end, step] = bounds;
        self.push(slice::Slice, &[v, &begin?, &end?, &step?], false)
    }
}

/// A tensor in the shape of another, with its extents in another order, joined, or cut by one.
pub(super) fn reshaped(b: &mut Builder, c: &mut Choices<'_>) -> Option<Val> {
    let x = b.any(c, |v| !v.tensor.shape.is_empty())?;
    let rank = x.tensor.shape.len();
    let shape = b.extents(&x)?;
    match c.below(4) {
        0 => {
            let y = b.any(c, |v| v.tensor.len() == x.tensor.len())?;
            b.push(reshape::Reshape, &[&y, &shape], false)
        }
        1 => {
            let at = c.below(rank);
            let (left, right) = (b.part(&shape, 0, at)?, b.part(&shape, at, rank)?);
            let axis = b.int(0)?;
            let turned = b.push(concat::Concat, &[&axis, &right, &left], false)?;
            b.push(reshape::Reshape, &[&x, &turned], false)
        }
        2 if rank > 1 => {
            let (first, rest) = (b.part(&shape, 0, 2)?, b.part(&shape, 2, rank)?);
            let axis = b.ints(DType::I32, &[0])?;
            let joined = b.push(reduce_product::ReduceProduct, &[&first, &axis], false)?;
            let axis = b.int(0)?;
            let target = b.push(concat::Concat, &[&axis, &joined, &rest], false)?;
            b.push(reshape::Reshape, &[&x, &target], false)
        }
        _ => {
            let less = b.ints(DType::I32, &vec![c.below(2) as i64; rank])?;
            let end = b.push(sub::Sub, &[&shape, &less], false)?;
            let begin = b.ints(DType::I32, &vec![0; rank])?;
            let step = b.ints(DType::I32, &vec![1; rank])?;
            b.push(slice::Slice, &[&x, &begin, &end, &step], false)
        }
    }
}

/// Numbers up to an extent, a value repeated to a shape, or the places of what is not zero.
pub(super) fn counted(b: &mut Builder, c: &mut Choices<'_>) -> Option<Val> {
    let x = b.exact(c, |d| number(d) || d == DType::Bool)?;
    let rank = x.tensor.shape.len();
    match c.below(8) {
        0 if rank > 0 => b.push(non_zero::NonZero, &[&x], false),
        1..4 => {
            let one = b.any(c, |v| v.tensor.shape.is_empty())?;
            let shape = b.push(get_shape::GetShape, &[&x], false)?;
            b.push(broadcast_to::BroadcastTo, &[&one, &shape], false)
        }
        _ => {
            let shape = b.extents(&x)?;
            let at = c.below(rank);
            let stop = b.part(&shape, at, at + 1)?;
            let (start, step) = (b.ints(DType::I32, &[0])?, b.ints(DType::I32, &[1])?);
            b.push(range::Range, &[&start, &stop, &step], false)
        }
    }
}
