//! Bounds that are computed in the run, followed back to the few numbers that they come from: exporters put them together from a
//! position and constants, element by element.

use super::{Lower, Lowering, ViewDraft};
use crate::exec::kernels::{Bound, Bounds};
use crate::graph::{Node, ValueId};
use crate::ops::Op;
use crate::ops::shape::axis;
use crate::types::DType;

/// How far an element is followed.
const REACH: usize = 32;

/// A number, or an element of a value and a number more.
#[derive(Clone, Copy, Debug)]
struct Element {
    of: Option<(ValueId, usize)>,
    plus: i64,
}

impl Lowering<'_> {
    /// Begin, end and stride of a box in `rank` axes, and the inputs of a step that reads them: `first`, then where they come from.
    pub(super) fn bounds(
        &mut self,
        first: ViewDraft,
        operands: &[ValueId],
        rank: usize,
    ) -> Lower<(Bounds, Vec<ViewDraft>)> {
        let (mut sources, mut inputs) = (Vec::new(), vec![first]);
        let mut bounds = Vec::with_capacity(rank);
        for at in 0..rank {
            let mut three = [Bound { of: None, plus: 0 }; 3];
            for (bound, &id) in three.iter_mut().zip(operands) {
                let element = self.element(id, at, REACH);
                bound.plus = element.plus;
                let Some((id, at)) = element.of else { continue };
                let place = sources.iter().position(|s| *s == id);
                if place.is_none() {
                    sources.push(id);
                    inputs.push(self.view(id)?);
                }
                bound.of = Some((place.map_or(inputs.len() - 1, |p| p + 1), at));
            }
            bounds.push(three);
        }
        Ok((bounds, inputs))
    }

    /// What element `at` of an integer tensor comes from.
    fn element(&self, id: ValueId, at: usize, reach: usize) -> Element {
        let itself = Element {
            of: Some((id, at)),
            plus: 0,
        };
        if let Some(number) = self.known_element(id, at) {
            let (of, plus) = (None, number);
            return Element { of, plus };
        }
        let found = reach.checked_sub(1).and_then(|reach| {
            let node = &self.graph.body.nodes[*self.makers.get(&id)?];
            self.followed(node, at, reach)
        });
        found.unwrap_or(itself)
    }

    fn known_element(&self, id: ValueId, at: usize) -> Option<i64> {
        self.contents(id)?.get(at)?.as_const()
    }

    fn followed(&self, node: &Node, at: usize, reach: usize) -> Option<Element> {
        let one = |id: ValueId| if self.len(id) == Some(1) { 0 } else { at };
        let element = |id: ValueId| self.element(id, one(id), reach);
        match (&node.op, &node.inputs[..]) {
            (Op::Reshape(_) | Op::ExpandDims(_) | Op::ShrinkDims(_), [x, _]) => {
                Some(self.element(*x, at, reach))
            }
            (Op::Concat(_), [along, parts @ ..]) => self.part(*along, parts, at, reach),
            (Op::BroadcastingWhere(_) | Op::Where(_), &[condition, yes, no]) => {
                let holds = self.known_element(condition, one(condition))? != 0;
                Some(element(if holds { yes } else { no }))
            }
            (Op::BroadcastingAdd(_) | Op::Add(_), &[a, b]) if self.is_long(a) => {
                let (a, b) = (element(a), element(b));
                let of = match (a.of, b.of) {
                    (of, None) | (None, of) => of,
                    _ => return None,
                };
                let plus = a.plus.checked_add(b.plus)?;
                Some(Element { of, plus })
            }
            _ => None,
        }
    }

    /// Element `at` of vectors one behind the other.
    fn part(
        &self,
        along: ValueId,
        parts: &[ValueId],
        mut at: usize,
        reach: usize,
    ) -> Option<Element> {
        axis(*self.ints(along)?.first()?, 1).ok()?;
        for &part in parts {
            let n = self.len(part)?;
            if at < n {
                return Some(self.element(part, at, reach));
            }
            at -= n;
        }
        None
    }

    /// The elements of a tensor of at most one axis.
    fn len(&self, id: ValueId) -> Option<usize> {
        let ty = self.facts.tensor(id).filter(|t| t.rank() <= 1)?;
        ty.fixed_len()
    }

    /// Whether sums of such integers are far from wrapping: positions are.
    fn is_long(&self, id: ValueId) -> bool {
        let kind = self.facts.tensor(id).map(|t| t.dtype);
        matches!(kind, Some(DType::I32 | DType::I64))
    }
}
