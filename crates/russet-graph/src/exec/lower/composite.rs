//! Composites: one step each, and the tables that they share.

use super::{Lower, Lowering, ViewDraft};
use crate::error::OpError;
use crate::exec::kernels;
use crate::exec::layout::Layout;
use crate::graph::Node;
use crate::ops::Op;
use crate::ops::rope::{Rope, Second};
use crate::types::{DType, Dim};

/// A pair of cosine and sine tables and what they were made for.
#[derive(Debug)]
pub(super) struct Tables {
    rope: Rope,
    dtype: DType,
    shape: [Dim; 2],
    positions: Option<ViewDraft>,
    tables: [ViewDraft; 2],
}

impl Lowering<'_> {
    /// Lowers a whole composite; `false` for anything else.
    pub(super) fn composite_node(&mut self, node: &Node) -> Lower<bool> {
        match &node.op {
            Op::RmsNorm(op) => {
                let x = self.view(node.inputs[0])?;
                let x = self.contiguous(x);
                let scale = self.view(node.inputs[1])?;
                let scale = self.contiguous(scale);
                let layout = scale
                    .layout
                    .broadcast(&x.layout.shape)
                    .ok_or(OpError::Unknown("a broadcast"))?;
                let inputs = vec![x, ViewDraft { layout, ..scale }];
                self.emit_for(
                    node.outputs[0],
                    "rms_norm",
                    kernels::RmsNorm {
                        eps: op.eps as f32,
                        exact: true,
                    },
                    inputs,
                )?;
                self.mark(super::What::RmsNorm(op.eps as f32));
            }
            Op::Rope(op) => self.rope(*op, node)?,
            Op::ScaledDotProductAttention(op) => {
                let mut views = self.views(&node.inputs)?;
                for view in &mut views {
                    if view.layout.strides[3] != Dim::Const(1) {
                        *view = self.copied(view);
                    }
                }
                let kernel = kernels::Sdpa {
                    op: *op,
                    exact: true,
                };
                self.emit_for(node.outputs[0], "attention", kernel, views)?;
                self.mark(super::What::Attention(*op));
            }
            Op::GatedDeltaUpdate(op) => {
                let views = self.views(&node.inputs)?;
                let mut outputs = Vec::with_capacity(2);
                for &id in &node.outputs {
                    let (dtype, shape) = self.ty(id)?;
                    let out = self.buffer(dtype, &shape);
                    self.set(id, out.clone());
                    outputs.push(out);
                }
                self.emit("gated_delta", kernels::GatedDelta(*op), views, outputs);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn rope(&mut self, op: Rope, node: &Node) -> Lower<()> {
        let x = self.view(node.inputs[0])?;
        let x = if x.layout.strides.last() == Some(&Dim::Const(1)) {
            x
        } else {
            self.copied(&x)
        };
        let shape = &x.layout.shape;
        let (q, width) = (
            shape[shape.len() - 2].clone(),
            shape[shape.len() - 1].clone(),
        );
        let width = width
            .as_const()
            .and_then(|w| usize::try_from(w).ok())
            .ok_or(OpError::Unknown("the width of a row"))?;
        let table = [q, Dim::from(op.pairs(width)?)];
        let positions = if op.second == Second::Positions {
            Some(self.view(node.inputs[1])?)
        } else {
            None
        };
        let [cos, sin] = self.tables(op, x.dtype, table, positions);
        self.emit_for(
            node.outputs[0],
            "rope",
            kernels::Rotate {
                interleaved: op.interleaved,
            },
            vec![x, cos, sin],
        )
    }

    /// The tables of a rotation, shared by all layers that turn alike.
    fn tables(
        &mut self,
        rope: Rope,
        dtype: DType,
        shape: [Dim; 2],
        positions: Option<ViewDraft>,
    ) -> [ViewDraft; 2] {
        let same_place = |a: &Option<ViewDraft>, b: &Option<ViewDraft>| match (a, b) {
            (Some(a), Some(b)) => a.home == b.home && a.layout == b.layout,
            (None, None) => true,
            _ => false,
        };
        let alike = |t: &&Tables| {
            let rope = Rope {
                interleaved: t.rope.interleaved,
                dims: t.rope.dims,
                second: t.rope.second,
                ..rope
            };
            t.rope == rope
                && t.dtype == dtype
                && t.shape == shape
                && same_place(&t.positions, &positions)
        };
        if let Some(found) = self.rope_tables.iter().find(alike) {
            return found.tables.clone();
        }
        let new = |this: &mut Self| {
            let table = this.buffer(dtype, &shape);
            ViewDraft {
                layout: Layout::contiguous(&shape),
                ..table
            }
        };
        let tables = [new(self), new(self)];
        self.emit(
            "rope_tables",
            kernels::RopeTables(rope),
            positions.iter().cloned().collect(),
            tables.to_vec(),
        );
        self.rope_tables.push(Tables {
            rope,
            dtype,
            shape,
            positions,
            tables: tables.clone(),
        });
        tables
    }
}
