//! Norms: division by the root of the mean square, as exporters spell it.

use super::sight::{Pair, Patch, Sight, ones, pair};
use crate::graph::{Node, ValueId};
use crate::ops::Op;
use crate::ops::rms_norm::RmsNorm;
use crate::ops::shape::axis;
use crate::ops::transpose::Transpose;
use crate::types::{DType, Dim};

impl Sight<'_> {
    /// The mean over the last axis of some value's squares, given its value: `x`, and by what the sum of squares is divided.
    fn squares(&self, id: ValueId) -> Option<(ValueId, f64)> {
        let reduces = |op: &Op| matches!(op, Op::ReduceMean(_) | Op::ReduceSum(_));
        let node = self.made_by(self.uncast(id), reduces)?;
        let of = self.uncast(self.along_last(node)?);
        let [a, b] = self.pair(of, Pair::Mul)?;
        let (a, b) = (self.uncast(a), self.uncast(b));
        let mean = matches!(node.op, Op::ReduceMean(_));
        let n = if mean { self.width(a)? as f64 } else { 1.0 };
        (a == b).then_some((a, n))
    }

    /// `1 / √(x + eps)`: `x` and eps, which may come in several parts.
    fn inverse_root(&self, id: ValueId) -> Option<(ValueId, f64)> {
        let node = self.made_by(self.uncast(id), |op| matches!(op, Op::Rsqrt(_)))?;
        let (mut x, mut eps) = (self.uncast(*node.inputs.first()?), 0.0);
        while let Some((of, more)) = self.plus(x) {
            (x, eps) = (self.uncast(of), eps + more);
        }
        (eps >= 0.0).then_some((x, eps))
    }

    /// `x · factor`, the factor one for every row.
    fn with_row_factor(&self, node: &Node) -> Option<[ValueId; 2]> {
        let [a, b] = pair(node, Pair::Mul)?;
        let one = |id| self.width(id) == Some(1);
        match (one(a), one(b)) {
            (false, true) => Some([a, b]),
            (true, false) => Some([b, a]),
            _ => None,
        }
    }

    /// A norm with a scale of ones: what it is of, and its epsilon.
    fn bare_norm(&self, id: ValueId) -> Option<(ValueId, f64)> {
        let node = self.maker(id)?;
        let Op::RmsNorm(norm) = &node.op else {
            return None;
        };
        let &[x, scale] = &node.inputs[..] else {
            return None;
        };
        (self.number(scale)? == 1.0).then_some((x, norm.eps))
    }
}

/// A norm of `x` with a scale of ones in the kind of `x`, in the place of `root`.
fn bare(sight: &Sight<'_>, x: ValueId, eps: f64, root: &Node) -> Option<Patch> {
    let mut patch = Patch::new(sight);
    let ones = ones(sight.dtype(x)?, sight.width(x)?)?;
    let ones = patch.constant(ones);
    Some(patch.finish(RmsNorm { eps }, &[x, ones], root))
}

/// The first half of `layer_norm([x, -x])`, whose mean is zero.
pub(super) fn of_both_signs(sight: &Sight<'_>, node: &Node) -> Option<Patch> {
    let &[id] = &node.outputs[..] else {
        return None;
    };
    let &[normal, begin, _, stride] = &node.inputs[..] else {
        return None;
    };
    if !matches!(node.op, Op::Slice(_)) {
        return None;
    }
    let (all, eps) = layer_norm(sight, normal)?;
    let both = |v: Vec<i64>, n: i64| v.iter().all(|v| *v == n);
    let first = both(sight.ints(begin)?, 0) && both(sight.ints(stride)?, 1);
    let (half, lead) = sight.shape(id)?.split_last()?;
    let (whole, rows) = sight.shape(all)?.split_last()?;
    let halved = rows == lead && whole.as_const()? == 2 * half.as_const()?;
    let (x, order) = both_signs(sight, all)?;
    let (shape, dtype) = (sight.shape(id)?, sight.dtype(x)?);
    if !(first && halved && sight.dtype(id) == Some(dtype)) {
        return None;
    }
    let mut patch = Patch::new(sight);
    let x = match order {
        Some(order) => patch.op(Transpose, &[x, order], dtype, shape),
        None => x,
    };
    let ones = patch.constant(ones(dtype, half.as_const()?)?);
    Some(patch.finish(RmsNorm { eps }, &[x, ones], node))
}

/// What a layer norm over the last axis is of, and its epsilon.
fn layer_norm(sight: &Sight<'_>, id: ValueId) -> Option<(ValueId, f64)> {
    // What is left of it behind the mean is a norm by the mean square.
    let (away, eps) = sight.bare_norm(sight.uncast(id))?;
    let [all, center] = sight.pair(away, Pair::Sub)?;
    let center = sight.made_by(center, |op| matches!(op, Op::ReduceMean(_)))?;
    (sight.along_last(center)? == all).then_some((all, eps))
}

/// What lies behind one another with its negative, and the order of axes in which that gives `id`, where they are in another.
fn both_signs(sight: &Sight<'_>, id: ValueId) -> Option<(ValueId, Option<ValueId>)> {
    let id = sight.uncast(id);
    let turned = sight.made_by(id, |op| matches!(op, Op::Transpose(_)));
    let (of, order) = match turned.map(|n| &n.inputs[..]) {
        Some(&[x, order]) => (sight.uncast(x), Some(order)),
        _ => (id, None),
    };
    let concat = sight.made_by(of, |op| matches!(op, Op::Concat(_)))?;
    let &[at, x, negative] = &concat.inputs[..] else {
        return None;
    };
    let rank = sight.rank(of)?;
    let at = axis(*sight.ints(at)?.first()?, rank).ok()?;
    let last = match order {
        Some(order) => axis(*sight.ints(order)?.last()?, rank).ok()?,
        None => rank - 1,
    };
    let signs = at == last && sight.multiple(negative)? == (x, -1.0);
    signs.then_some((x, order))
}

/// `x / √(mean(x²) + eps)`.
pub(super) fn of_mean_square(sight: &Sight<'_>, node: &Node) -> Option<Patch> {
    let [x, factor] = sight.with_row_factor(node)?;
    let (mean, eps) = sight.inverse_root(factor)?;
    let (of, n) = sight.squares(mean)?;
    let width = sight.width(x)? as f64;
    let alike = sight.uncast(x) == sight.uncast(of) && n == width && width > 1.0;
    alike.then(|| bare(sight, x, eps, node)).flatten()
}

/// A norm that works in 32 bits on narrow rows and gives narrow rows is a norm of narrow rows.
pub(super) fn in_one_kind(sight: &Sight<'_>, node: &Node) -> Option<Patch> {
    let (Op::Cast(cast), &[wide]) = (&node.op, &node.inputs[..]) else {
        return None;
    };
    let norm = sight.made_by(wide, |op| matches!(op, Op::RmsNorm(_)))?;
    let (Op::RmsNorm(op), &[x, scale]) = (&norm.op, &norm.inputs[..]) else {
        return None;
    };
    let from = sight.uncast(x);
    let kinds = [wide, x, scale].map(|id| sight.dtype(id));
    if kinds != [Some(DType::F32); 3] || sight.dtype(from)? != cast.to || cast.to == DType::F32 {
        return None;
    }
    if sight.bare_norm(wide).is_some() {
        return bare(sight, from, op.eps, node);
    }
    Some(Patch::new(sight).finish(*op, &[from, scale], node))
}

/// `norm(x) · scale`, the scale a constant row.
pub(super) fn scaled(sight: &Sight<'_>, node: &Node) -> Option<Patch> {
    let [a, b] = pair(node, Pair::Mul)?;
    let of = |norm, scale| {
        let ((x, eps), row) = (sight.bare_norm(norm)?, sight.shape(scale)?);
        sight.data(scale)?;
        let shape = sight.shape(x)?;
        let lead = row.len().checked_sub(1)?;
        let fits = row.last()? == shape.last()? && row.len() <= shape.len();
        let one_row = row[..lead].iter().all(|d| *d == Dim::Const(1));
        let kinds = sight.dtype(scale) == sight.dtype(x) && sight.width(x)? > 1;
        (fits && one_row && kinds).then_some((x, scale, eps))
    };
    let (x, scale, eps) = of(a, b).or_else(|| of(b, a))?;
    Some(Patch::new(sight).finish(RmsNorm { eps }, &[x, scale], node))
}
