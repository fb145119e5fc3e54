//! Attention as exporters spell it: products with keys that are repeated for every group of queries, a mask that is added, a softmax.

use super::sight::{Pair, Patch, Sight, pair};
use crate::graph::{Node, ValueId};
use crate::ops::Op;
use crate::ops::expand_dims::ExpandDims;
use crate::ops::scaled_dot_product_attention::ScaledDotProductAttention;
use crate::ops::shape::{axis, repeats_to};
use crate::ops::shrink_dims::ShrinkDims;
use crate::ops::softmax::Softmax;
use crate::types::Dim;

/// `e^(x - max) / Σ e^(x - max)` along the last axis.
pub(super) fn softmax(sight: &Sight<'_>, node: &Node) -> Option<Patch> {
    let [power, sum] = pair(node, Pair::Div)?;
    let sum = sight.made_by(sight.uncast(sum), |op| matches!(op, Op::ReduceSum(_)))?;
    let exp = sight.made_by(sight.uncast(power), |op| matches!(op, Op::Exp(_)))?;
    let [x, most] = sight.pair(*exp.inputs.first()?, Pair::Sub)?;
    let most = sight.made_by(sight.uncast(most), |op| matches!(op, Op::ReduceMax(_)))?;
    let same = sight.uncast(sight.along_last(sum)?) == sight.uncast(power)
        && sight.uncast(sight.along_last(most)?) == sight.uncast(x)
        && sight.dtype(x) == sight.dtype(*node.outputs.first()?);
    let rank = sight.rank(x)? as i64;
    let mut patch = Patch::new(sight);
    let last = patch.scalar(rank - 1);
    same.then(|| patch.finish(Softmax, &[x, last], node))
}

/// Scores on their way to the softmax.
#[derive(Default)]
struct Scores {
    scale: Option<f64>,
    mask: Option<ValueId>,
    product: Option<[ValueId; 2]>,
}

impl Sight<'_> {
    /// `scale · q · k + mask`, where each may be absent: first the mask goes, then the scale.
    fn scores(&self, id: ValueId) -> Option<Scores> {
        let id = self.uncast(id);
        if let Some(product) = self.pair(id, Pair::Product) {
            return Some(Scores {
                product: Some(product),
                ..Scores::default()
            });
        }
        if let Some((x, by)) = self.multiple(id) {
            let scores = self.scores(x)?;
            let plain = scores.scale.is_none() && scores.mask.is_none();
            return plain.then_some(Scores {
                scale: Some(by),
                ..scores
            });
        }
        let [a, b] = self.pair(id, Pair::Add)?;
        [(a, b), (b, a)].into_iter().find_map(|(x, mask)| {
            let scores = self.scores(x)?;
            scores.mask.is_none().then_some(Scores {
                mask: Some(mask),
                ..scores
            })
        })
    }

    /// What was exchanged in its last two axes to give a value.
    fn exchanged(&self, id: ValueId) -> Option<ValueId> {
        let node = self.made_by(id, |op| matches!(op, Op::Transpose(_)))?;
        let &[x, order] = &node.inputs[..] else {
            return None;
        };
        let rank = self.rank(x)?;
        let order = self.ints(order)?;
        let order: Option<Vec<usize>> = order.iter().map(|&a| axis(a, rank).ok()).collect();
        let mut wanted: Vec<usize> = (0..rank).collect();
        wanted.swap(rank.checked_sub(2)?, rank - 1);
        (order? == wanted).then_some(x)
    }

    /// Heads before each was repeated for its group: `[kv, s, d]` of `[kv · times, s, d]`, behind axes of extent 1.
    fn ungrouped(&self, id: ValueId) -> Option<ValueId> {
        let is_reshape = |op: &Op| matches!(op, Op::Reshape(_));
        let repeated = *self.made_by(id, is_reshape)?.inputs.first()?;
        let (all, wide) = (self.shape(id)?, self.shape(repeated)?);
        let (lead, [heads, tail @ ..]) = all.split_at_checked(all.len().checked_sub(3)?)? else {
            return None;
        };
        let at = wide.len().checked_sub(3)?;
        let (over, [times, behind @ ..]) = wide.split_at_checked(at)? else {
            return None;
        };
        let (kv, over) = over.split_last()?;
        let joined = tail == behind && kv.mul(times) == *heads && ones(lead) && ones(over);
        let one = self.maker(self.once(repeated, at)?);
        let x = *one.filter(|n| is_shaping(&n.op))?.inputs.first()?;
        let (over, own) = self
            .shape(x)?
            .split_at_checked(self.rank(x)?.checked_sub(3)?)?;
        let whole = ones(over) && own.iter().eq([kv].into_iter().chain(tail));
        (joined && whole).then_some(x)
    }

    /// A value without shapes that only add or drop axes of extent 1 at the front.
    fn unframed(&self, mut id: ValueId) -> ValueId {
        let shaping = |op: &Op| is_shaping(op) || matches!(op, Op::ShrinkDims(_));
        let body = |id| {
            self.shape(id)
                .map(|s| s.iter().skip_while(|d| **d == Dim::Const(1)))
        };
        while let Some(node) = self.made_by(id, shaping) {
            let same = match (body(node.inputs[0]), body(id)) {
                (Some(a), Some(b)) => a.eq(b),
                _ => false,
            };
            if !same {
                break;
            }
            id = node.inputs[0];
        }
        id
    }

    /// What is repeated along an axis where it has extent 1.
    fn once(&self, id: ValueId, at: usize) -> Option<ValueId> {
        let node = self.maker(id)?;
        let x = match &node.op {
            Op::BroadcastTo(_) | Op::Tile(_) => *node.inputs.first()?,
            Op::Concat(_) => {
                let (along, parts) = node.inputs.split_first()?;
                let along = axis(*self.ints(*along)?.first()?, self.rank(id)?).ok()?;
                let first = *parts.first()?;
                let same = parts.iter().all(|p| *p == first) && along == at;
                same.then_some(first)?
            }
            _ => return None,
        };
        let (from, to) = (self.shape(x)?, self.shape(id)?);
        let only = from.len() == to.len()
            && from.get(at)? == &Dim::Const(1)
            && (0..from.len()).all(|i| i == at || from[i] == to[i]);
        only.then_some(x)
    }
}

fn ones(shape: &[Dim]) -> bool {
    shape.iter().all(|d| *d == Dim::Const(1))
}

fn is_shaping(op: &Op) -> bool {
    matches!(op, Op::Reshape(_) | Op::ExpandDims(_))
}

/// `softmax(scale · q · kᵀ + mask) · v`.
pub(super) fn attention(sight: &Sight<'_>, node: &Node) -> Option<Patch> {
    let [shares, v] = pair(node, Pair::Product)?;
    let shares = sight.uncast(sight.unframed(shares));
    let softmax = sight.made_by(shares, |op| matches!(op, Op::Softmax(_)))?;
    let scores = sight.scores(sight.along_last(softmax)?)?;
    let [q, k] = scores.product?;
    let k = sight.exchanged(k)?;
    let [k, v] = [k, v].map(|id| {
        let id = sight.unframed(id);
        sight.ungrouped(id).unwrap_or(id)
    });
    let out = *node.outputs.first()?;
    let dtype = sight.dtype(out)?;
    if [q, k, v].iter().any(|&id| sight.dtype(id) != Some(dtype)) {
        return None;
    }
    let mut patch = Patch::new(sight);
    let heads = [q, k, v].map(|id| four_axes(sight, &mut patch, id));
    let [(q, qs), (k, ks), (v, vs)] = all(heads)?;
    let full = score_shape(&qs, &ks, &vs)?;
    let mut inputs = vec![q, k, v];
    if let Some(mask) = scores.mask {
        let fits = sight.dtype(mask) == Some(dtype) && repeats_to(sight.shape(mask)?, &full);
        inputs.push(fits.then_some(mask)?);
    }
    let op = ScaledDotProductAttention {
        scale: Some(scores.scale.unwrap_or(1.0)),
        mask: scores.mask.is_some(),
        ..ScaledDotProductAttention::default()
    };
    if sight.rank(out)? == 4 {
        return Some(patch.finish(op, &inputs, node));
    }
    let mut shape = full.to_vec();
    shape[3] = vs[3].clone();
    let made = patch.op(op, &inputs, dtype, &shape);
    let first = patch.ints(&[0]);
    let three = sight.rank(out)? == 3;
    three.then(|| patch.finish(ShrinkDims, &[made, first], node))
}

fn all<T, const N: usize>(parts: [Option<T>; N]) -> Option<[T; N]> {
    let parts: Option<Vec<T>> = parts.into_iter().collect();
    parts?.try_into().ok()
}

/// Heads `[b, heads, rows, width]`; of three axes they are those of one of the batch.
fn four_axes(sight: &Sight<'_>, patch: &mut Patch, id: ValueId) -> Option<(ValueId, Vec<Dim>)> {
    let shape = sight.shape(id)?.to_vec();
    match shape.len() {
        4 => Some((id, shape)),
        3 => {
            let first = patch.ints(&[0]);
            let shape: Vec<Dim> = std::iter::once(Dim::Const(1)).chain(shape).collect();
            let id = patch.op(ExpandDims, &[id, first], sight.dtype(id)?, &shape);
            Some((id, shape))
        }
        _ => None,
    }
}

/// `[b, heads, q, s]` of queries, keys and values that fit together.
fn score_shape(q: &[Dim], k: &[Dim], v: &[Dim]) -> Option<[Dim; 4]> {
    let (heads, kv) = (q[1].as_const()?, k[1].as_const()?);
    let alike = q[0] == k[0] && k[..3] == v[..3] && q[3] == k[3];
    let grouped = kv > 0 && heads % kv == 0;
    (alike && grouped).then(|| [q[0].clone(), q[1].clone(), q[2].clone(), k[2].clone()])
}
