//! Rotary embeddings: `x · cos + [-x₂, x₁] · sin`, with tables whose halves are alike.

use super::sight::{Pair, Patch, Sight, pair};
use crate::graph::{ConstantData, Node, Storage, ValueId};
use crate::ops::Op;
use crate::ops::rope::{Part, Parts, Rope};
use crate::ops::shape::repeats_to;
use crate::ops::slice::Slice;
use crate::types::Dim;

/// A rotation of whole rows by tables of cosines and sines.
const BY_TABLES: Rope = Rope {
    base: 10000.0,
    scale: 1.0,
    dims: None,
    interleaved: false,
    parts: Parts::of(&[Part::Cos, Part::Sin]),
};

/// How far from a table the operations go that bring it into its place.
const REACH: usize = 12;

/// `x · cos + turned(x) · sin`, in any order.
pub(super) fn whole(sight: &Sight<'_>, node: &Node) -> Option<Patch> {
    let [a, b] = pair(node, Pair::Add)?;
    let (a, b) = (sight.pair(a, Pair::Mul)?, sight.pair(b, Pair::Mul)?);
    let (turned, sin, [c, d]) = [(a, b), (b, a)].into_iter().find_map(|([p, q], other)| {
        let both = [(p, q), (q, p)];
        let (x, sin) = both
            .into_iter()
            .find_map(|(x, sin)| Some((sight.turned(x)?, sin)))?;
        Some((x, sin, other))
    })?;
    let cos = if c == turned { d } else { c };
    if c != turned && d != turned {
        return None;
    }
    let width = sight.width(turned).filter(|w| w % 2 == 0)?;
    let tables = sight.is_table(cos, turned, width) && sight.is_table(sin, turned, width);
    if !tables || sight.shape(turned)? != sight.shape(*node.outputs.first()?)? {
        return None;
    }
    let mut patch = Patch::new(sight);
    let mut half = |id| {
        let patch = &mut patch;
        Half {
            sight,
            patch,
            of: width,
        }
        .of(id, REACH)
    };
    let (cos, sin) = (half(cos)?, half(sin)?);
    Some(patch.finish(BY_TABLES, &[turned, cos, sin], node))
}

/// `[x₁ · cos - x₂ · sin, x₂ · cos + x₁ · sin]`, with tables of half the width.
pub(super) fn by_halves(sight: &Sight<'_>, node: &Node) -> Option<Patch> {
    let &[id] = &node.outputs[..] else {
        return None;
    };
    let (Op::Concat(_), &[_, first, second]) = (&node.op, &node.inputs[..]) else {
        return None;
    };
    let width = sight.width(id)?;
    let half = sight.width(first)?;
    let [a, b] = sight.pair(first, Pair::Sub)?;
    let [c, d] = sight.pair(second, Pair::Add)?;
    let (lower, upper) = ((0, half), (half, width));
    let found = sight.factors(a, lower).into_iter().find_map(|(x, cos)| {
        let of = |product, part| {
            let factors = sight.factors(product, part).into_iter();
            factors.filter(|f| f.0 == x).map(|f| f.1).next()
        };
        let sin = of(b, upper)?;
        let alike = |[c, d]: [ValueId; 2]| of(c, upper) == Some(cos) && of(d, lower) == Some(sin);
        (alike([c, d]) || alike([d, c])).then_some((x, cos, sin))
    });
    let (x, cos, sin) = found?;
    let tables = sight.is_table(cos, x, half) && sight.is_table(sin, x, half);
    let whole = sight.shape(x)? == sight.shape(id)? && width == 2 * half;
    (tables && whole).then(|| Patch::new(sight).finish(BY_TABLES, &[x, cos, sin], node))
}

/// A rotation of the first elements of rows, beside the others as they were.
pub(super) fn first(sight: &Sight<'_>, node: &Node) -> Option<Patch> {
    let &[id] = &node.outputs[..] else {
        return None;
    };
    let (Op::Concat(_), &[_, turned, rest]) = (&node.op, &node.inputs[..]) else {
        return None;
    };
    let rope = sight.maker(turned)?;
    let (Op::Rope(op), &[part, cos, sin]) = (&rope.op, &rope.inputs[..]) else {
        return None;
    };
    let ((x, from, to), (y, begin, end)) = (sight.part_of_rows(part)?, sight.part_of_rows(rest)?);
    let whole = x == y && from == 0 && to == begin && Some(end) == sight.width(x);
    let along = sight.shape(x)? == sight.shape(id)?;
    if !(whole && along && *op == BY_TABLES) {
        return None;
    }
    let op = Rope {
        dims: usize::try_from(to).ok(),
        ..*op
    };
    Some(Patch::new(sight).finish(op, &[x, cos, sin], node))
}

impl Sight<'_> {
    /// Whether a value repeats to the rows of `x`, cut to `width`.
    fn is_table(&self, id: ValueId, x: ValueId, width: i64) -> bool {
        let fits = || {
            let mut rows = self.shape(x)?.to_vec();
            *rows.last_mut()? = Dim::Const(width);
            let table = self.shape(id)?;
            let kinds = self.dtype(id) == self.dtype(x) && self.width(id)? == width;
            Some(kinds && rows.len() > 1 && repeats_to(table, &rows))
        };
        fits().unwrap_or(false)
    }

    /// What a product may be of: a part of the rows of some `x`, and a table.
    fn factors(&self, id: ValueId, (from, to): (i64, i64)) -> Vec<(ValueId, ValueId)> {
        let Some([p, q]) = self.pair(id, Pair::Mul) else {
            return Vec::new();
        };
        let of = |part, table| {
            let (x, begin, end) = self.part_of_rows(part)?;
            ((begin, end) == (from, to)).then_some((x, table))
        };
        [of(p, q), of(q, p)].into_iter().flatten().collect()
    }

    /// The rows whose halves are exchanged here, the second turned round.
    fn turned(&self, id: ValueId) -> Option<ValueId> {
        let &[second, first] = self.joined_rows(id)? else {
            return None;
        };
        let (second, by) = self.multiple(second)?;
        let ((x, from, end), (y, begin, to)) =
            (self.part_of_rows(second)?, self.part_of_rows(first)?);
        let width = self.width(x)?;
        let halves = (from, end, begin, to) == (width / 2, width, 0, width / 2);
        (x == y && by == -1.0 && halves && width % 2 == 0).then_some(x)
    }
}

/// The first half of the rows of a table, where the other half is the same.
struct Half<'a, 'b, 'c> {
    sight: &'a Sight<'b>,
    patch: &'c mut Patch,
    of: i64,
}

impl Half<'_, '_, '_> {
    fn of(&mut self, id: ValueId, reach: usize) -> Option<ValueId> {
        let (reach, sight) = (reach.checked_sub(1)?, self.sight);
        let node = sight.maker(id)?;
        let (dtype, mut shape) = (sight.dtype(id)?, sight.shape(id)?.to_vec());
        *shape.last_mut()? = Dim::Const(self.of / 2);
        let inputs = match &node.op {
            Op::Constant(c) => return self.constant(id, &c.0),
            Op::Concat(_) => {
                let &[a, b] = sight.joined_rows(id)? else {
                    return None;
                };
                return (a == b).then_some(a);
            }
            Op::Cos(_) | Op::Sin(_) | Op::Cast(_) => vec![self.of(*node.inputs.first()?, reach)?],
            Op::Mul(_) | Op::BroadcastingMul(_) => {
                let &[a, b] = &node.inputs[..] else {
                    return None;
                };
                match (sight.number(a), sight.number(b)) {
                    (None, Some(_)) => vec![self.of(a, reach)?, b],
                    (Some(_), None) => vec![a, self.of(b, reach)?],
                    _ => return None,
                }
            }
            Op::GatherNd(_) => self.gathered(node, reach)?,
            Op::ExpandDims(_) | Op::ShrinkDims(_) | Op::Transpose(_) => {
                self.moved(node, id, reach)?
            }
            Op::Reshape(_) => {
                let x = self.rows(*node.inputs.first()?, reach)?;
                let shape: Option<Vec<i64>> = shape.iter().map(Dim::as_const).collect();
                vec![x, self.patch.ints(&shape?)]
            }
            _ => return None,
        };
        Some(self.patch.op(node.op.clone(), &inputs, dtype, &shape))
    }

    /// The half of something whose rows are as wide.
    fn rows(&mut self, x: ValueId, reach: usize) -> Option<ValueId> {
        (self.sight.width(x)? == self.of).then(|| self.of(x, reach))?
    }

    /// Operands of an operation that keeps the last axis last.
    fn moved(&mut self, node: &Node, id: ValueId, reach: usize) -> Option<Vec<ValueId>> {
        let &[x, how] = &node.inputs[..] else {
            return None;
        };
        let (rank, ints) = (self.sight.rank(id)? as i64, self.sight.ints(how)?);
        let keeps = match &node.op {
            Op::Transpose(_) => [Some(&(rank - 1)), Some(&-1)].contains(&ints.last()),
            Op::ExpandDims(_) => !ints.iter().any(|a| [rank - 1, -1].contains(a)),
            _ => true,
        };
        Some(vec![keeps.then(|| self.rows(x, reach))??, how])
    }

    /// Operands of an operation that picks rows.
    fn gathered(&mut self, node: &Node, reach: usize) -> Option<Vec<ValueId>> {
        let &[table, at] = &node.inputs[..] else {
            return None;
        };
        let deep = usize::try_from(self.sight.width(at)?).ok()?;
        let rows = deep < self.sight.rank(table)?;
        Some(vec![rows.then(|| self.rows(table, reach))??, at])
    }

    /// A slice of a constant table whose rows have two halves that are alike.
    fn constant(&mut self, id: ValueId, data: &ConstantData) -> Option<ValueId> {
        let (Storage::Dense(bytes), size) = (&data.storage, data.ty.dtype.size()?) else {
            return None;
        };
        let row = usize::try_from(self.of).ok()?.checked_mul(size)?;
        let alike = |row: &[u8]| {
            let (first, second) = row.split_at(row.len() / 2);
            first == second
        };
        if self.sight.width(id)? != self.of || !bytes.chunks(row.max(1)).all(alike) {
            return None;
        }
        let mut shape = data.ty.fixed_shape()?;
        let rank = shape.len();
        *shape.last_mut()? /= 2;
        let end: Vec<i64> = shape.iter().map(|&d| d as i64).collect();
        let dims: Vec<Dim> = shape.into_iter().map(Dim::from).collect();
        let (begin, stride) = (vec![0; rank], vec![1; rank]);
        let [begin, end, stride] = [begin, end, stride].map(|v| self.patch.ints(&v));
        let inputs = [id, begin, end, stride];
        Some(self.patch.op(Slice, &inputs, data.ty.dtype, &dims))
    }
}
