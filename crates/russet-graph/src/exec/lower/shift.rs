//! Caches that shift by blocks: `where(condition, [held[by..], tail], held)`, written back to where `held` is, is done in the state,
//! where the condition holds.

use super::{Lowering, Value, ViewDraft};
use crate::exec::build::Home;
use crate::exec::kernels::ShiftIf;
use crate::exec::layout::Layout;
use crate::graph::{Node, ValueId};
use crate::ops::Op;
use crate::ops::shape::axis;
use crate::types::Dim;

impl Lowering<'_> {
    /// How `update` shifts the box `part` of a state whose value is `base`: the kernel, the condition and the tail; none where it
    /// is something else.
    pub(super) fn shifted(
        &mut self,
        base: ValueId,
        update: ValueId,
        part: &ViewDraft,
    ) -> Option<(ShiftIf, [ViewDraft; 2])> {
        let is_choice = |op: &Op| matches!(op, Op::BroadcastingWhere(_) | Op::Where(_));
        let &[condition, moved, held] = &self.made_by(update, is_choice)?.inputs[..] else {
            return None;
        };
        let part = (base, part);
        self.is_at(held, &part.1.layout, part)?;
        let concat = self.made_by(moved, |op| matches!(op, Op::Concat(_)))?;
        let &[along, rest, tail] = &concat.inputs[..] else {
            return None;
        };
        let (whole, at) = (&part.1.layout, &part.1.home);
        let rank = whole.shape.len();
        let axis = axis(*self.ints(along)?.first()?, rank).ok()?;
        let (all, kept) = (extent(whole, axis)?, self.tensor_extent(rest, axis)?);
        let by = all.checked_sub(kept)?;
        let mut begin = vec![Dim::Const(0); rank];
        begin[axis] = Dim::from(by);
        let mut shape = whole.shape.clone();
        shape[axis] = Dim::from(kept);
        let behind = whole.slice(&begin, &shape, &vec![Dim::Const(1); rank]);
        self.is_at(rest, &behind, part)?;
        let rows = axis + 1 < rank && whole.strides.last() == Some(&Dim::Const(1));
        let (condition, tail) = (self.view(condition).ok()?, self.view(tail).ok()?);
        let axes = condition.layout.shape.iter().zip(&condition.layout.strides);
        let mut single = axes.map(|(d, s)| [d, s] == [d, &Dim::Const(0)] || *d == Dim::Const(1));
        let fits = rows && single.all(|one| one) && tail.home != *at;
        fits.then_some((ShiftIf { axis, by }, [condition, tail]))
    }

    fn made_by(&self, id: ValueId, is: impl Fn(&Op) -> bool) -> Option<&Node> {
        let node = &self.graph.body.nodes[*self.makers.get(&id)?];
        is(&node.op).then_some(node)
    }

    /// Whether a value is a part of `base`, and what the memory of its box holds in this layout.
    fn is_at(
        &self,
        id: ValueId,
        layout: &Layout,
        (base, part): (ValueId, &ViewDraft),
    ) -> Option<()> {
        let Value::View(view) = self.values.get(&id)? else {
            return None;
        };
        let same = view.home == part.home && view.layout == *layout;
        let own = matches!(view.home, Home::State(_)) && self.is_part(id, base);
        (same && own).then_some(())
    }

    fn is_part(&self, mut id: ValueId, base: ValueId) -> bool {
        let cuts = |op: &Op| matches!(op, Op::Slice(_) | Op::ExpandDims(_) | Op::ShrinkDims(_));
        while id != base {
            match self.made_by(id, cuts) {
                Some(node) => id = node.inputs[0],
                None => return false,
            }
        }
        true
    }

    fn tensor_extent(&self, id: ValueId, axis: usize) -> Option<usize> {
        let extent = self.facts.tensor(id)?.shape.get(axis)?.as_const()?;
        usize::try_from(extent).ok()
    }
}

fn extent(layout: &Layout, axis: usize) -> Option<usize> {
    usize::try_from(layout.shape.get(axis)?.as_const()?).ok()
}
