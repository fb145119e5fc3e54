//! States: read as views, updated in place.
//!
//! A `slice_update` of a state's value that ends in a `write_handle` of the same state writes into the state itself. Whoever
//! still needs the value from before gets a copy of it first.

use super::{Lower, Lowering, Value, ViewDraft};
use crate::error::OpError;
use crate::exec::build::Home;
use crate::exec::kernels;
use crate::exec::layout::Layout;
use crate::graph::{Node, ValueId};
use crate::ops::Op;
use crate::types::Type;

impl Lowering<'_> {
    /// Lowers reads, writes and updates of states, and tokens; `false` for anything else.
    pub(super) fn state_node(&mut self, index: usize, node: &Node) -> Lower<bool> {
        match &node.op {
            Op::CreateToken(_) | Op::JoinToken(_) => {
                self.values.insert(node.outputs[0], Value::Token);
                Ok(true)
            }
            Op::ReadHandle(_) => {
                let view = self.state_view(node.inputs[0])?;
                self.set(node.outputs[0], view);
                self.values.insert(node.outputs[1], Value::Token);
                Ok(true)
            }
            Op::WriteHandle(_) => self.write(index, node).map(|()| true),
            Op::SliceUpdate(_) => self.update(index, node).map(|()| true),
            _ => Ok(false),
        }
    }

    fn state_number(&self, id: ValueId) -> Lower<usize> {
        match self.values.get(&id) {
            Some(Value::Handle(n)) => Ok(*n),
            _ => Err(OpError::Unknown("the state of a handle")),
        }
    }

    /// The whole state behind a handle.
    fn state_view(&self, id: ValueId) -> Lower<ViewDraft> {
        let number = self.state_number(id)?;
        let Some(Type::Handle(t)) = self.facts.ty(id) else {
            return Err(OpError::Unknown("the type of a handle"));
        };
        Ok(ViewDraft {
            dtype: t.dtype,
            home: Home::State(number),
            layout: Layout::contiguous(&t.shape),
        })
    }

    fn write(&mut self, index: usize, node: &Node) -> Lower<()> {
        let target = self.state_view(node.inputs[0])?;
        let value = self.view(node.inputs[1])?;
        self.values.insert(node.outputs[0], Value::Token);
        if value.home == target.home && value.layout == target.layout {
            return Ok(());
        }
        let Home::State(state) = target.home else {
            return Ok(());
        };
        let value = if value.home == target.home {
            self.copied(&value)
        } else {
            value
        };
        self.keep_old(state, index);
        self.emit("write", kernels::Copy, vec![value], vec![target]);
        Ok(())
    }

    /// Operands: tensor, begin, end, stride, update.
    fn update(&mut self, index: usize, node: &Node) -> Lower<()> {
        let (id, result) = (node.inputs[0], node.outputs[0]);
        if self.may_walk_back(node.inputs[3]) {
            return self.reference(node);
        }
        let base = self.view(id)?;
        let mut update = self.view(node.inputs[4])?;
        let target = match base.home {
            Home::State(state) if self.ends_in_write(index, result, state) => {
                if update.home == base.home {
                    update = self.copied(&update);
                }
                self.keep_old(state, index);
                base
            }
            _ => self.copied(&base),
        };
        let bounds: Option<Vec<_>> = node.inputs[1..4]
            .iter()
            .map(|&id| self.contents(id).cloned())
            .collect();
        match bounds {
            Some(b) => {
                self.assume(b[0].iter());
                let begin: Vec<_> = b[0]
                    .iter()
                    .zip(&target.layout.shape)
                    .map(|(v, n)| crate::ops::slice::bound(v, n))
                    .collect();
                let layout = target.layout.slice(&begin, &update.layout.shape, &b[2]);
                let part = ViewDraft {
                    layout,
                    ..target.clone()
                };
                match self.shifted(id, node.inputs[4], &part) {
                    Some((kernel, inputs)) => {
                        self.emit("shift", kernel, inputs.to_vec(), vec![part]);
                    }
                    None => self.emit("update", kernels::Copy, vec![update], vec![part]),
                }
            }
            None => {
                let rank = target.layout.shape.len();
                let (bounds, inputs) = self.bounds(update, &node.inputs[1..4], rank)?;
                let kernel = kernels::SliceWrite(bounds);
                self.emit("update", kernel, inputs, vec![target.clone()]);
            }
        }
        self.set(result, target);
        Ok(())
    }

    /// Whether the result of the update at `index` is written back to `state`, possibly through further updates, before
    /// anything reads the state anew.
    fn ends_in_write(&self, index: usize, mut result: ValueId, state: usize) -> bool {
        let is_state =
            |id: ValueId| matches!(self.values.get(&id), Some(Value::Handle(n)) if *n == state);
        for node in &self.graph.body.nodes[index + 1..] {
            match &node.op {
                Op::ReadHandle(_) if is_state(node.inputs[0]) => return false,
                Op::WriteHandle(_) if is_state(node.inputs[0]) => return node.inputs[1] == result,
                Op::SliceUpdate(_) if node.inputs[0] == result => result = node.outputs[0],
                _ => {}
            }
        }
        false
    }

    /// Copies every view of the state's present value that is needed after node `index`.
    fn keep_old(&mut self, state: usize, index: usize) {
        let mut late: Vec<ValueId> = self
            .values
            .iter()
            .filter_map(|(&id, value)| {
                let old = matches!(value, Value::View(v) if v.home == Home::State(state));
                (old && self.last_use.get(&id).is_some_and(|&last| last > index)).then_some(id)
            })
            .collect();
        late.sort_unstable();
        for id in late {
            if let Some(Value::View(view)) = self.values.get(&id).cloned() {
                let copy = self.copied(&view);
                self.set(id, copy);
            }
        }
    }
}
