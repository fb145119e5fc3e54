//! Gathers and scatters.

use std::sync::Arc;

use russet_kernels::scratch;

use super::{Cx, Kernel, Touched, Weights, Work};
use crate::error::OpError;
use crate::exec::view::{View, store};

/// Position `index` of an axis of `n`; negative ones count from the end.
pub(super) fn position(index: i64, n: usize) -> Result<usize, OpError> {
    let at = if index < 0 { index + n as i64 } else { index };
    if (0..n as i64).contains(&at) {
        return Ok(at as usize);
    }
    Err(OpError::Range {
        what: "an index",
        value: index,
        allowed: format!("0..{n}"),
    })
}

/// Rows of compressed weights. Input: indices, any shape; output: `[…, k]`.
#[derive(Debug)]
pub(crate) struct GatherRows(pub(crate) Arc<Weights>);

impl Kernel for GatherRows {
    fn run(&self, cx: &mut Cx<'_, '_, '_>) -> Result<(), OpError> {
        let k = self.0.k();
        cx.scratch_len(k);
        let ids = cx.inputs[0];
        let out = &mut cx.outputs[0];
        let (dtype, size) = (out.dtype, out.dtype.size().unwrap_or(1));
        for (i, o) in out.bytes().chunks_exact_mut(k.max(1) * size).enumerate() {
            let row = position(ids.int_at(i), self.0.n())?;
            self.0.row(row, &mut cx.scratch[..k]);
            store(dtype, &cx.scratch[..k], o);
        }
        Ok(())
    }

    fn work(&self, inputs: &[Touched], outputs: &[Touched]) -> Work {
        let rows = outputs.first().map_or(0, |o| o.geometry.rows().2 as u64);
        let read = self.0.size().div_ceil(self.0.n().max(1) as u64) * rows;
        Work::of_elements(inputs, outputs).with_weights(self.0.label(), read)
    }
}

/// Rows of a table of integers times one scale. Inputs: table `[n, …]`, indices of any shape, scale, of which the first element
/// counts.
#[derive(Debug)]
pub(crate) struct GatherScaled;

impl Kernel for GatherScaled {
    fn run(&self, cx: &mut Cx<'_, '_, '_>) -> Result<(), OpError> {
        let (table, ids, scale) = (cx.inputs[0], cx.inputs[1], cx.inputs[2]);
        let mut by = [0.0];
        if !scale.is_empty() {
            scale.load(scale.geometry.offset, 1, &mut by);
        } else if !ids.is_empty() {
            return Err(OpError::Unknown("the scale of a table"));
        }
        let n = table.geometry.shape[0];
        let mut cell = table.geometry;
        cell.shape[0] = 1;
        let (width, stride, lines) = cell.rows();
        let (line, out) = (&mut *scratch::floats(width), &mut cx.outputs[0]);
        let (dtype, size) = (out.dtype, out.dtype.size().unwrap_or(1));
        let rows = out.bytes().chunks_exact_mut((width * size).max(1));
        for (i, row) in rows.enumerate() {
            let at = position(ids.int_at(i / lines.max(1)), n)? * table.geometry.strides[0];
            table.load(at + cell.row_offset(i % lines.max(1)), stride, line);
            line.iter_mut().for_each(|x| *x *= by[0]);
            store(dtype, line, row);
        }
        Ok(())
    }
}

/// `out[i…] = x[indices[i…, 0], indices[i…, 1], …]` (contract of `gather_nd`).
#[derive(Debug)]
pub(crate) struct GatherNd;

impl Kernel for GatherNd {
    fn run(&self, cx: &mut Cx<'_, '_, '_>) -> Result<(), OpError> {
        let (x, ids) = (cx.inputs[0], cx.inputs[1]);
        let size = x
            .dtype
            .size()
            .ok_or(OpError::Unknown("the size of an element"))?;
        let depth = ids.geometry.shape().last().copied().unwrap_or(0);
        let mut cell = x.geometry;
        cell.rank -= depth;
        cell.shape.copy_within(depth.., 0);
        cell.strides.copy_within(depth.., 0);
        let len = cell.len();
        let out = cx.outputs[0].bytes();
        for (i, o) in out.chunks_exact_mut((len * size).max(1)).enumerate() {
            cell.offset = x.geometry.offset;
            for d in 0..depth {
                cell.offset += position(ids.int_at(i * depth + d), x.geometry.shape[d])?
                    * x.geometry.strides[d];
            }
            copy_cell(
                &View {
                    geometry: cell,
                    ..x
                },
                size,
                o,
            );
        }
        Ok(())
    }

    /// Of the tensor only what is gathered is read.
    fn work(&self, inputs: &[Touched], outputs: &[Touched]) -> Work {
        let mut work = Work::of_elements(inputs.get(1..).unwrap_or_default(), outputs);
        work.bytes += outputs.iter().map(Touched::bytes).sum::<u64>();
        work
    }
}

fn copy_cell(cell: &View<'_>, size: usize, out: &mut [u8]) {
    if let Some(bytes) = cell.contiguous() {
        out.copy_from_slice(bytes);
        return;
    }
    for (i, o) in out.chunks_exact_mut(size).enumerate() {
        let at = cell.geometry.element_offset(i) * size;
        o.copy_from_slice(&cell.data[at..at + size]);
    }
}

/// `out[.., i, ..] = x[.., indices[.., i, ..], ..]` along an axis.
#[derive(Debug)]
pub(crate) struct GatherAlong {
    pub(crate) axis: usize,
}

impl Kernel for GatherAlong {
    fn run(&self, cx: &mut Cx<'_, '_, '_>) -> Result<(), OpError> {
        let (x, ids) = (cx.inputs[0], cx.inputs[1]);
        let size = x
            .dtype
            .size()
            .ok_or(OpError::Unknown("the size of an element"))?;
        let (n, stride) = (x.geometry.shape[self.axis], x.geometry.strides[self.axis]);
        let mut from = x.geometry;
        from.shape = ids.geometry.shape;
        from.strides[self.axis] = 0;
        // Where the index is the same for a whole row and the row is not the gathered axis, rows are copied.
        let (row, id_stride, rows) = ids.geometry.rows();
        let last = from.rank.saturating_sub(1);
        let whole = self.axis != last && id_stride == 0 && from.strides[last] == 1;
        let out = cx.outputs[0].bytes();
        for (r, o) in out
            .chunks_exact_mut((row * size).max(1))
            .enumerate()
            .take(rows)
        {
            let (base, id) = (from.row_offset(r), ids.geometry.row_offset(r));
            if whole {
                let at = (base + position(ids.int(id), n)? * stride) * size;
                o.copy_from_slice(&x.data[at..at + row * size]);
                continue;
            }
            for (i, o) in o.chunks_exact_mut(size).enumerate() {
                let at = base
                    + i * from.strides[last]
                    + position(ids.int(id + i * id_stride), n)? * stride;
                o.copy_from_slice(&x.data[at * size..(at + 1) * size]);
            }
        }
        Ok(())
    }
}

/// A copy of the first input with the updates written at the indices. Inputs: tensor, indices, updates.
#[derive(Debug)]
pub(crate) struct ScatterAlong {
    pub(crate) axis: usize,
}

impl Kernel for ScatterAlong {
    fn run(&self, cx: &mut Cx<'_, '_, '_>) -> Result<(), OpError> {
        let (ids, updates) = (cx.inputs[1], cx.inputs[2]);
        super::copy::copy(&cx.inputs[0], &mut cx.outputs[0]);
        let out = &mut cx.outputs[0];
        let (g, size) = (out.geometry, out.dtype.size().unwrap_or(1));
        let mut at = g;
        at.shape = ids.geometry.shape;
        at.strides[self.axis] = 0;
        for i in 0..ids.len() {
            let index = position(ids.int_at(i), g.shape[self.axis])?;
            let to = (at.element_offset(i) + index * g.strides[self.axis]) * size;
            let from = updates.geometry.element_offset(i) * size;
            out.data[to..to + size].copy_from_slice(&updates.data[from..from + size]);
        }
        Ok(())
    }
}
