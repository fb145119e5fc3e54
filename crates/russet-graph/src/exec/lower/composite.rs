//! Composites: one step each, and the tables that they share.

use std::sync::Arc;

use russet_kernels::elem::Rounding;

use super::{Lower, Lowering, Value, ViewDraft, What};
use crate::error::OpError;
use crate::exec::build::Home;
use crate::exec::kernels::{self, Instruction, Weights};
use crate::exec::layout::Layout;
use crate::exec::view::{Geometry, MAX_RANK};
use crate::graph::{Node, ValueId};
use crate::ops::Op;
use crate::ops::gather_mm::GatherMm;
use crate::ops::rms_norm::RmsNorm;
use crate::ops::rope::{Part, Rope};
use crate::ops::scaled_dot_product_attention::ScaledDotProductAttention;
use crate::types::{DType, Dim};

/// A pair of cosine and sine tables and what they were made for.
#[derive(Debug)]
pub(super) struct Tables {
    rope: Rope,
    dtype: DType,
    shape: Vec<Dim>,
    /// Positions and frequencies.
    given: Vec<ViewDraft>,
    tables: [ViewDraft; 2],
}

impl Lowering<'_> {
    /// Lowers a whole composite; `false` for anything else.
    pub(super) fn composite_node(&mut self, node: &Node) -> Lower<bool> {
        match &node.op {
            Op::RmsNorm(op) => self.norm(*op, node)?,
            Op::Rope(op) => self.rope(*op, node)?,
            Op::ScaledDotProductAttention(op) => self.attention(*op, node)?,
            Op::GatedDeltaUpdate(op) => {
                let views = self.views(&node.inputs)?;
                let mut outputs = Vec::with_capacity(2);
                for &id in &node.outputs {
                    let (dtype, shape) = self.ty(id)?;
                    let out = self.buffer(dtype, &shape);
                    self.set(id, out.clone());
                    outputs.push(out);
                }
                let kernel = kernels::GatedDelta {
                    op: *op,
                    exact: true,
                };
                self.emit("gated_delta", kernel, views, outputs);
                self.mark(What::GatedDelta(*op));
            }
            Op::UnitLowerInverse(_) => {
                let views = self.views(&node.inputs)?;
                let (id, name) = (node.outputs[0], "unit_lower_inverse");
                self.emit_for(id, name, kernels::UnitLowerInverse, views)?;
            }
            Op::GatherMm(op) => self.gather_mm(*op, node)?,
            Op::RopeCachedCosSinGather(_) => {
                let ids = self.view(node.inputs[0])?;
                let mut shape = ids.layout.shape.clone();
                shape.push(Dim::Const(1));
                let ids = self.contiguous(ids);
                let layout = ids.layout.reshape(&shape);
                let layout = layout.ok_or(OpError::Unknown("a reshape"))?;
                let deep = ViewDraft { layout, ..ids };
                for (&table, &id) in node.inputs[1..].iter().zip(&node.outputs) {
                    let table = self.view(table)?;
                    let inputs = vec![table, deep.clone()];
                    self.emit_for(id, "gather_nd", kernels::GatherNd, inputs)?;
                }
            }
            Op::FusedInterleavedEmbeddingGatherDequantReshape(_) => {
                let views = self.views(&node.inputs[..3])?;
                self.emit_for(
                    node.outputs[0],
                    "gather_scaled",
                    kernels::GatherScaled,
                    views,
                )?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn norm(&mut self, op: RmsNorm, node: &Node) -> Lower<()> {
        let x = self.view(node.inputs[0])?;
        let x = self.in_rows(x);
        let scale = self.view(node.inputs[1])?;
        let scale = self.contiguous(scale);
        let layout = scale
            .layout
            .broadcast(&x.layout.shape)
            .ok_or(OpError::Unknown("a broadcast"))?;
        let (id, eps, kind) = (node.outputs[0], op.eps as f32, scale.dtype);
        let kernel = kernels::RmsNorm { eps, exact: true };
        if x.dtype == kind {
            self.emit_for(
                id,
                "rms_norm",
                kernel,
                vec![x, ViewDraft { layout, ..scale }],
            )?;
            self.mark(What::RmsNorm(eps));
            return Ok(());
        }
        // A wide scale multiplies wide rows, which are rounded once.
        let shape = x.layout.shape.clone();
        let (wide, normal) = (self.buffer(kind, &shape), self.buffer(kind, &shape));
        self.emit("cast", kernels::Cast, vec![x], vec![wide.clone()]);
        self.mark(What::Elementwise(vec![Instruction::Load(0)]));
        let inputs = vec![wide, ViewDraft { layout, ..scale }];
        self.emit("rms_norm", kernel, inputs, vec![normal.clone()]);
        self.mark(What::RmsNorm(eps));
        self.emit_for(id, "cast", kernels::Cast, vec![normal])?;
        self.mark(What::Elementwise(vec![Instruction::Load(0)]));
        Ok(())
    }

    fn attention(&mut self, op: ScaledDotProductAttention, node: &Node) -> Lower<()> {
        let mut views = self.views(&node.inputs[..3])?;
        for view in &mut views {
            *view = self.in_rows(view.clone());
        }
        let mut kernel_op = op;
        let (mask, sinks) = op.optional(&node.inputs);
        // Kernels follow the edge of causal attention where there are as many keys as queries, or more.
        let extent = |v: &ViewDraft| v.layout.shape[2].as_const();
        let few_keys = op.causal && extent(&views[0]) > extent(&views[1]);
        let (q, k) = (&views[0].layout.shape, &views[1].layout.shape);
        let full = [q[0].clone(), q[1].clone(), q[2].clone(), k[2].clone()];
        let (dtype, mut edges) = (views[0].dtype, None);
        if let Some(&mask) = mask.filter(|&&id| self.ty(id).is_ok_and(|t| t.0 == dtype)) {
            let (mask, found) = self.added_mask(mask, &full)?;
            views.push(mask);
            edges = found;
        } else if op.needs_mask() || few_keys {
            views.push(self.score_mask(op, mask.copied(), &full, dtype)?);
            kernel_op.mask = true;
            kernel_op.window = 0;
            kernel_op.causal &= !few_keys;
        }
        if let Some(&id) = sinks {
            views.push(self.view(id)?);
        }
        let kernel = kernels::Sdpa {
            op: kernel_op,
            exact: true,
            edges: edges.is_some(),
        };
        views.extend(edges);
        self.emit_for(node.outputs[0], "attention", kernel, views)?;
        self.mark(What::Attention(kernel));
        Ok(())
    }

    /// A mask that is added to scores of shape `full`, and, where it is the same for all heads, a step's findings on its edges,
    /// one step for all layers.
    fn added_mask(
        &mut self,
        mask: ValueId,
        full: &[Dim; 4],
    ) -> Lower<(ViewDraft, Option<ViewDraft>)> {
        let given = self.view(mask)?;
        let given = self.in_rows(given);
        let layout = given.layout.broadcast(full);
        let layout = layout.ok_or(OpError::Unknown("a broadcast"))?;
        let (shape, two) = (&given.layout.shape, given.layout.shape.len().checked_sub(2));
        let one = two.is_some_and(|two| {
            shape[..two].iter().all(|d| *d == Dim::Const(1)) && shape[two..] == full[2..]
        });
        let view = ViewDraft {
            layout,
            ..given.clone()
        };
        if !one {
            return Ok((view, None));
        }
        let same =
            |(m, _): &&(ViewDraft, ViewDraft)| m.home == given.home && m.layout == given.layout;
        if let Some((_, edges)) = self.edges.iter().find(same) {
            return Ok((view, Some(edges.clone())));
        }
        let edges = self.buffer(DType::I32, &[Dim::from(kernels::MaskEdges::FOUND)]);
        let kernel = kernels::MaskEdges;
        self.emit(
            "mask_edges",
            kernel,
            vec![given.clone()],
            vec![edges.clone()],
        );
        self.edges.push((given, edges.clone()));
        Ok((view, Some(edges)))
    }

    /// What is added to scores of shape `full` to hide keys; the same for all of the batch, or all heads, is written once.
    fn score_mask(
        &mut self,
        op: ScaledDotProductAttention,
        mask: Option<ValueId>,
        full: &[Dim; 4],
        dtype: DType,
    ) -> Lower<ViewDraft> {
        let mut shape = full.clone();
        let mut inputs = Vec::new();
        let given = mask.map(|id| self.view(id)).transpose()?;
        let lead = 4 - given.as_ref().map_or(2, |m| m.layout.shape.len());
        for (axis, d) in shape[..2].iter_mut().enumerate() {
            let own = given
                .as_ref()
                .and_then(|m| m.layout.shape.get(axis.checked_sub(lead)?));
            if own.is_none_or(|own| *own == Dim::Const(1)) {
                *d = Dim::Const(1);
            }
        }
        if let Some(mask) = given {
            let layout = mask.layout.broadcast(&shape);
            let layout = layout.ok_or(OpError::Unknown("a broadcast"))?;
            inputs.push(ViewDraft { layout, ..mask });
        }
        let out = self.buffer(dtype, &shape);
        self.emit(
            "attention_mask",
            kernels::ScoreMask(op),
            inputs,
            vec![out.clone()],
        );
        let layout = out.layout.broadcast(full);
        let layout = layout.ok_or(OpError::Unknown("a broadcast"))?;
        Ok(ViewDraft { layout, ..out })
    }

    fn gather_mm(&mut self, op: GatherMm, node: &Node) -> Lower<()> {
        if self.experts(op, node)? {
            return Ok(());
        }
        let views = self.views(&node.inputs)?;
        let stacked = |(i, ids): (usize, &Option<usize>)| {
            ids.is_none() || op.batch_axes + 2 < views[i].layout.shape.len()
        };
        let (dtype, _) = self.ty(node.outputs[0])?;
        let plain = matches!(dtype, DType::F32 | DType::F16 | DType::BF16);
        if !plain || !op.indices().iter().enumerate().all(stacked) {
            return self.reference(node);
        }
        // The body repeats operands before the product, so that bf16 is summed in f32.
        let rounding = match dtype {
            DType::F16 => Rounding::F16,
            _ => Rounding::F32,
        };
        let kernel = kernels::GatherMatmul { op, rounding };
        self.emit_for(node.outputs[0], "gather_mm", kernel, views)?;
        self.mark(What::Gathered(op));
        Ok(())
    }

    /// A stack of constant matrices, and where their elements lie.
    fn stack(&self, id: ValueId) -> Option<(Arc<Weights>, Layout)> {
        match self.values.get(&id)? {
            Value::Stack { weights, layout } => Some((weights.clone(), layout.clone())),
            Value::View(ViewDraft {
                home: Home::Constant(c),
                layout,
                ..
            }) if c.ty.dtype != DType::BF16 => {
                // Exact products of bf16 that are picked are summed in f32, unlike those that `GatherLinear` does.
                Some((Arc::new(Weights::dense(c)?), layout.clone()))
            }
            _ => None,
        }
    }

    /// A product with a stack whose matrices can be read row by row; `false` for any other.
    fn experts(&mut self, op: GatherMm, node: &Node) -> Lower<bool> {
        let Some((weights, layout)) = self.stack(node.inputs[1]) else {
            return Ok(false);
        };
        let left = self.view(node.inputs[0])?;
        let stacked = |ids: Option<usize>, rank: usize| ids.is_none() || op.batch_axes + 2 < rank;
        let ids = op.indices();
        let Some(right) = by_rows(&layout, weights.k()).filter(|right| {
            stacked(ids[0], left.layout.shape.len()) && stacked(ids[1], right.rank)
        }) else {
            return Ok(false);
        };
        let mut inputs = vec![self.contiguous(left)];
        for at in ids.into_iter().flatten() {
            inputs.push(self.view(node.inputs[at])?);
        }
        let kernel = kernels::GatherLinear {
            op,
            weights,
            right,
            packed: None,
            exact: true,
        };
        self.emit_for(node.outputs[0], "gather_linear", kernel.clone(), inputs)?;
        self.mark(What::Experts(kernel));
        Ok(true)
    }

    /// A view whose rows have no gaps.
    fn in_rows(&mut self, view: ViewDraft) -> ViewDraft {
        match view.layout.strides.last() {
            Some(stride) if *stride != Dim::Const(1) => self.copied(&view),
            _ => view,
        }
    }

    fn rope(&mut self, op: Rope, node: &Node) -> Lower<()> {
        let x = self.view(node.inputs[0])?;
        let x = self.in_rows(x);
        let shape = x.layout.shape.clone();
        let (rows, width) = shape.split_at(shape.len() - 1);
        let width = width[0].as_const().and_then(|w| usize::try_from(w).ok());
        let pairs = op.pairs(width.ok_or(OpError::Unknown("the width of a row"))?)?;
        let full = [rows, &[Dim::from(pairs)]].concat();
        let given = |part| op.parts.place(part).map(|at| node.inputs[at]);
        let tables = if let [Some(cos), Some(sin)] = [Part::Cos, Part::Sin].map(given) {
            let tables = [self.view(cos)?, self.view(sin)?];
            self.given_tables(tables, &full)?
        } else {
            let parts = [Part::Positions, Part::Offset, Part::Frequencies].map(given);
            let given: Vec<ValueId> = parts.into_iter().flatten().collect();
            let given = self.views(&given)?;
            self.tables(op, x.dtype, &full, given)
        };
        let mut inputs = vec![x];
        for table in tables {
            let layout = table.layout.broadcast(&full);
            let layout = layout.ok_or(OpError::Unknown("a broadcast"))?;
            inputs.push(ViewDraft { layout, ..table });
        }
        let kernel = kernels::Rotate {
            interleaved: op.interleaved,
        };
        self.emit_for(node.outputs[0], "rope", kernel, inputs)?;
        self.mark(What::Rope {
            interleaved: op.interleaved,
        });
        Ok(())
    }

    /// Tables of the caller without gaps, both in one shape.
    fn given_tables(&mut self, tables: [ViewDraft; 2], full: &[Dim]) -> Lower<[ViewDraft; 2]> {
        let alike = tables[0].layout.shape == tables[1].layout.shape;
        let mut own = tables.map(|t| self.contiguous(t));
        for table in own.iter_mut().filter(|_| !alike) {
            let layout = table.layout.broadcast(full);
            let layout = layout.ok_or(OpError::Unknown("a broadcast"))?;
            *table = self.copied(&ViewDraft {
                layout,
                ..table.clone()
            });
        }
        Ok(own)
    }

    /// The shape of the tables for rows of shape `full`: one for all of the batch, unless they differ by what is `given`.
    fn table_shape(op: &Rope, full: &[Dim], given: &[ViewDraft]) -> Vec<Dim> {
        let mut shape = full.to_vec();
        let last = shape.len() - 2;
        shape[..last].fill(Dim::Const(1));
        let leads = op
            .parts
            .place(Part::Positions)
            .or(op.parts.place(Part::Offset));
        let lead = leads.and_then(|_| given[0].layout.shape.first());
        if let (Some(lead), true) = (lead, last > 0) {
            shape[0] = lead.clone();
        }
        shape
    }

    /// The tables of a rotation of rows of shape `full`, shared by all layers that turn alike.
    fn tables(
        &mut self,
        rope: Rope,
        dtype: DType,
        full: &[Dim],
        given: Vec<ViewDraft>,
    ) -> [ViewDraft; 2] {
        let shape = Self::table_shape(&rope, full, &given);
        let same = |a: &ViewDraft, b: &ViewDraft| a.home == b.home && a.layout == b.layout;
        let alike = |t: &&Tables| {
            let rope = Rope {
                interleaved: t.rope.interleaved,
                dims: t.rope.dims,
                ..rope
            };
            t.rope == rope
                && t.dtype == dtype
                && t.shape == shape
                && t.given.len() == given.len()
                && t.given.iter().zip(&given).all(|(a, b)| same(a, b))
        };
        if let Some(found) = self.rope_tables.iter().find(alike) {
            return found.tables.clone();
        }
        let tables = [self.buffer(dtype, &shape), self.buffer(dtype, &shape)];
        let kernel = kernels::RopeTables(rope);
        self.emit("rope_tables", kernel, given.clone(), tables.to_vec());
        self.rope_tables.push(Tables {
            rope,
            dtype,
            shape,
            given,
            tables: tables.clone(),
        });
        tables
    }
}

/// The geometry of matrices `[…, k, n]` that lie as rows `[n, k]`; none where they lie otherwise.
fn by_rows(layout: &Layout, k: usize) -> Option<Geometry> {
    let numbers = |dims: &[Dim]| -> Option<Vec<usize>> {
        let number = |d: &Dim| d.as_const().and_then(|c| usize::try_from(c).ok());
        dims.iter().map(number).collect()
    };
    let (shape, strides) = (numbers(&layout.shape)?, numbers(&layout.strides)?);
    let offset = numbers(std::slice::from_ref(&layout.offset))?[0];
    let rank = shape.len();
    let lead = rank.checked_sub(2).filter(|_| rank <= MAX_RANK)?;
    let whole = |n: &usize| n.checked_rem(k) == Some(0);
    let rows = shape[lead] == k && strides[lead..] == [1, k];
    if !rows || !whole(&offset) || !strides[..lead].iter().all(whole) {
        return None;
    }
    let mut geometry = Geometry {
        rank,
        shape: [1; MAX_RANK],
        strides: [0; MAX_RANK],
        offset,
    };
    geometry.shape[..rank].copy_from_slice(&shape);
    geometry.strides[..rank].copy_from_slice(&strides);
    Some(geometry)
}
