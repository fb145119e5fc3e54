//! Operations that only move elements around: they become views.

use super::{Lower, Lowering, Value, ViewDraft};
use crate::error::OpError;
use crate::exec::kernels;
use crate::exec::layout::Layout;
use crate::graph::{Node, ValueId};
use crate::ops::Op;
use crate::ops::shape::axis;
use crate::ops::slice::bound;
use crate::types::Dim;

impl Lowering<'_> {
    /// Lowers a node that is a view of its first operand; `false` where it is not one.
    pub(super) fn view_node(&mut self, node: &Node) -> Lower<bool> {
        if let (Some(known), [id]) = (
            node.outputs
                .first()
                .and_then(|&id| self.contents(id).cloned()),
            &node.outputs[..],
        ) {
            let (dtype, shape) = self.ty(*id)?;
            self.values
                .insert(*id, Value::Contents(dtype, shape, known));
            return Ok(true);
        }
        if let Some(Value::Stack { weights, layout }) = self.first_value(node)
            && let Some(layout) = self.moved(node, &layout)?
        {
            let value = Value::Stack { weights, layout };
            self.values.insert(node.outputs[0], value);
            return Ok(true);
        }
        match &node.op {
            Op::Slice(_) => self.slice(node),
            Op::Reshape(_) | Op::ExpandDims(_) | Op::ShrinkDims(_) => self.reshape(node),
            Op::Transpose(_) => self.transpose(node),
            Op::BroadcastTo(_) => self.broadcast_to(node),
            Op::BroadcastInDims(_) => self.broadcast_in_dims(node),
            Op::Split(_) => self.split(node),
            Op::CopyWithConstraints(_)
            | Op::CopyDiscardingConstraints(_)
            | Op::ImageToTensor(_)
            | Op::TensorToImage(_) => {
                let view = self.view(node.inputs[0])?;
                self.set(node.outputs[0], view);
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    fn first_value(&self, node: &Node) -> Option<Value> {
        self.values.get(node.inputs.first()?).cloned()
    }

    /// Where the elements lie after an operation that only moves them, as far as compressed stacks follow that.
    fn moved(&self, node: &Node, layout: &Layout) -> Lower<Option<Layout>> {
        let (_, shape) = self.ty(node.outputs[0])?;
        let ints = |i: usize| node.inputs.get(i).and_then(|&id| self.ints(id));
        Ok(match &node.op {
            Op::Reshape(_) | Op::ExpandDims(_) | Op::ShrinkDims(_) => layout.reshape(&shape),
            Op::Transpose(_) => {
                let order = ints(1).ok_or(OpError::Unknown("a permutation"))?;
                let order = order.iter().map(|&a| axis(a, shape.len()));
                Some(layout.permute(&order.collect::<Result<Vec<_>, _>>()?))
            }
            Op::Slice(_) => match (ints(1), ints(3)) {
                (Some(begin), Some(stride)) if stride.iter().all(|s| *s > 0) => {
                    let begins = begin.iter().zip(&layout.shape);
                    let begins: Vec<Dim> = begins.map(|(b, n)| bound(&Dim::Const(*b), n)).collect();
                    let strides: Vec<Dim> = stride.into_iter().map(Dim::Const).collect();
                    Some(layout.slice(&begins, &shape, &strides))
                }
                _ => None,
            },
            _ => None,
        })
    }

    fn slice(&mut self, node: &Node) -> Lower<bool> {
        let bounds: Option<Vec<_>> = node.inputs[1..]
            .iter()
            .map(|&id| self.contents(id).cloned())
            .collect();
        if self.may_walk_back(node.inputs[3]) {
            self.reference(node)?;
            return Ok(true);
        }
        let x = self.view(node.inputs[0])?;
        let (_, shape) = self.ty(node.outputs[0])?;
        match bounds {
            Some(b) => {
                self.assume(b[..2].iter().flat_map(|v| v.iter()).chain(&shape));
                let begin: Vec<Dim> = b[0]
                    .iter()
                    .zip(&x.layout.shape)
                    .map(|(v, n)| bound(v, n))
                    .collect();
                let layout = x.layout.slice(&begin, &shape, &b[2]);
                self.set(node.outputs[0], ViewDraft { layout, ..x });
            }
            None => {
                let rank = x.layout.shape.len();
                let (bounds, inputs) = self.bounds(x, &node.inputs[1..], rank)?;
                let kernel = kernels::SliceCopy(bounds);
                self.emit_for(node.outputs[0], "slice", kernel, inputs)?;
            }
        }
        Ok(true)
    }

    /// Whether strides may be negative: views and their kernels go forward only.
    pub(super) fn may_walk_back(&self, strides: ValueId) -> bool {
        let forward = |s: &Dim| s.as_const().is_none_or(|c| c > 0);
        !self
            .contents(strides)
            .is_some_and(|known| known.iter().all(forward))
    }

    fn reshape(&mut self, node: &Node) -> Lower<bool> {
        let x = self.view(node.inputs[0])?;
        let (_, shape) = self.ty(node.outputs[0])?;
        let view = match x.layout.reshape(&shape) {
            Some(layout) => ViewDraft { layout, ..x },
            None => {
                let copy = self.copied(&x);
                ViewDraft {
                    layout: Layout::contiguous(&shape),
                    ..copy
                }
            }
        };
        self.set(node.outputs[0], view);
        Ok(true)
    }

    fn transpose(&mut self, node: &Node) -> Lower<bool> {
        let rank = self.ty(node.outputs[0])?.1.len();
        let order = self
            .ints(node.inputs[1])
            .ok_or(OpError::Unknown("a permutation"))?;
        let order: Vec<usize> = order
            .iter()
            .map(|&a| axis(a, rank))
            .collect::<Result<_, _>>()?;
        if let (Some((weights, transposed)), [1, 0]) = (self.weights(node.inputs[0]), &order[..]) {
            self.values.insert(
                node.outputs[0],
                Value::Weights {
                    weights,
                    transposed: !transposed,
                },
            );
            return Ok(true);
        }
        let x = self.view(node.inputs[0])?;
        self.set(
            node.outputs[0],
            ViewDraft {
                layout: x.layout.permute(&order),
                ..x
            },
        );
        Ok(true)
    }

    fn broadcast_to(&mut self, node: &Node) -> Lower<bool> {
        let x = self.view(node.inputs[0])?;
        let (_, shape) = self.ty(node.outputs[0])?;
        let layout = x
            .layout
            .broadcast(&shape)
            .ok_or(OpError::Unknown("a broadcast"))?;
        self.set(node.outputs[0], ViewDraft { layout, ..x });
        Ok(true)
    }

    /// Operands: tensor, extents of the broadcast axes, and which axes those are; the others keep their extent.
    fn broadcast_in_dims(&mut self, node: &Node) -> Lower<bool> {
        self.broadcast_to(node)
    }

    /// Operands: tensor, sizes, axis. Every part is a slice.
    fn split(&mut self, node: &Node) -> Lower<bool> {
        let x = self.view(node.inputs[0])?;
        let at = self
            .ints(node.inputs[2])
            .and_then(|v| v.first().copied())
            .ok_or(OpError::Unknown("the axis of a split"))?;
        let at = axis(at, x.layout.shape.len())?;
        let rank = x.layout.shape.len();
        let mut begin = vec![Dim::Const(0); rank];
        let ones = vec![Dim::Const(1); rank];
        for &id in &node.outputs {
            let (_, shape) = self.ty(id)?;
            let layout = x.layout.slice(&begin, &shape, &ones);
            begin[at] = begin[at].add(&shape[at]);
            self.set(
                id,
                ViewDraft {
                    layout,
                    ..x.clone()
                },
            );
        }
        Ok(true)
    }

    /// Several tensors one after another along an axis: one copy each into parts of one buffer.
    pub(super) fn concat(&mut self, id: ValueId, at: ValueId, parts: &[ValueId]) -> Lower<()> {
        let (dtype, shape) = self.ty(id)?;
        let at = self
            .ints(at)
            .and_then(|v| v.first().copied())
            .ok_or(OpError::Unknown("the axis of a concat"))?;
        let at = axis(at, shape.len().max(1))?;
        let views = self.views(parts)?;
        let out = self.buffer(dtype, &shape);
        let mut begin = vec![Dim::Const(0); shape.len()];
        let ones = vec![Dim::Const(1); shape.len()];
        for view in views {
            let mut extent = view.layout.shape.clone();
            extent.resize(shape.len(), Dim::Const(1));
            let part = ViewDraft {
                layout: out.layout.slice(&begin, &extent, &ones),
                ..out.clone()
            };
            let layout = view
                .layout
                .reshape(&extent)
                .unwrap_or_else(|| view.layout.clone());
            begin[at] = begin[at].add(&extent[at]);
            self.emit(
                "copy",
                kernels::Copy,
                vec![ViewDraft { layout, ..view }],
                vec![part],
            );
        }
        self.set(id, out);
        Ok(())
    }
}
