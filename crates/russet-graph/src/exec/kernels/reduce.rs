//! Reductions along axes and softmax: one after the other in f32 (softmax of f32 in f64), rounded once, as the reference
//! runtime does.

use russet_kernels::scratch;

use super::{Cx, Kernel, PARALLEL, Touched, Work};
use crate::error::OpError;
use crate::exec::view::{Geometry, store};
use crate::types::DType;

/// Which reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReduceKind {
    Sum,
    Mean,
    Max,
    Min,
    Product,
}

impl ReduceKind {
    fn start(self) -> f32 {
        match self {
            Self::Sum | Self::Mean => 0.0,
            Self::Product => 1.0,
            Self::Max => f32::NEG_INFINITY,
            Self::Min => f32::INFINITY,
        }
    }

    fn fold(self, acc: f32, values: &[f32]) -> f32 {
        match self {
            Self::Sum | Self::Mean => values.iter().fold(acc, |a, v| a + v),
            Self::Product => values.iter().fold(acc, |a, v| a * v),
            Self::Max => values
                .iter()
                .fold(acc, |a, &v| if v > a || v.is_nan() { v } else { a }),
            Self::Min => values
                .iter()
                .fold(acc, |a, &v| if v < a || v.is_nan() { v } else { a }),
        }
    }
}

/// Reduces float axes whose extents in the output are 1. The axes are told by the shapes: input and output have one rank.
#[derive(Clone, Debug)]
pub(crate) struct Reduce {
    pub(crate) kind: ReduceKind,
    pub(crate) axes: Vec<usize>,
}

impl Kernel for Reduce {
    fn run(&self, cx: &mut Cx<'_, '_, '_>) -> Result<(), OpError> {
        let x = cx.inputs[0];
        let (outer, inner) = split(&x.geometry, &self.axes);
        let (n, stride, rows) = inner.rows();
        let count = (n * rows) as f32;
        let out = &mut cx.outputs[0];
        let (dtype, size) = (out.dtype, out.dtype.size().unwrap_or(1));
        let mut values = [0f32; 256];
        for (i, o) in out.bytes().chunks_exact_mut(size).enumerate() {
            let base = outer.element_offset(i);
            let mut acc = self.kind.start();
            for row in 0..rows {
                let at = base + inner.row_offset(row);
                for first in (0..n).step_by(256) {
                    let part = &mut values[..(n - first).min(256)];
                    x.load(at + first * stride, stride, part);
                    acc = self.kind.fold(acc, part);
                }
            }
            let value = if self.kind == ReduceKind::Mean {
                acc / count
            } else {
                acc
            };
            store(dtype, &[value], o);
        }
        Ok(())
    }
}

/// The sum over the last but one axis of `x · weight`, in f32, rounded once. Inputs: x `[…, k, n]`, a weight for every one of
/// its rows, repeated to that shape, and what is added to the sum, `[…, n]` without gaps, where there is something.
#[derive(Debug)]
pub(crate) struct WeightedSum;

impl Kernel for WeightedSum {
    fn run(&self, cx: &mut Cx<'_, '_, '_>) -> Result<(), OpError> {
        let (x, weights, add) = (cx.inputs[0], cx.inputs[1], cx.inputs.get(2));
        let (n, stride, rows) = x.geometry.rows();
        let terms = x.shape()[x.geometry.rank - 2];
        if add.is_some_and(|a| !a.geometry.is_contiguous()) {
            return Err(OpError::Unknown("rows without gaps"));
        }
        let out = &mut cx.outputs[0];
        let (dtype, size) = (out.dtype, out.dtype.size().unwrap_or(1));
        let one = |row: usize, out: &mut [u8]| {
            let buffer = &mut *scratch::floats(2 * n);
            let (sums, term) = buffer.split_at_mut(n);
            match add {
                Some(add) => add.load(add.geometry.offset + row * n, 1, sums),
                None => sums.fill(0.0),
            }
            for at in row * terms..(row + 1) * terms {
                let mut weight = [0.0];
                weights.load(weights.geometry.row_offset(at), 1, &mut weight);
                x.load(x.geometry.row_offset(at), stride, term);
                let terms = sums.iter_mut().zip(&*term);
                terms.for_each(|(sum, term)| *sum += weight[0] * term);
            }
            store(dtype, sums, out);
        };
        let row = (n * size).max(1);
        if n * rows >= PARALLEL {
            cx.pool.for_chunks_mut(out.bytes(), row, &one);
        } else {
            let rows = out.bytes().chunks_mut(row).enumerate();
            rows.for_each(|(i, o)| one(i, o));
        }
        Ok(())
    }

    fn work(&self, inputs: &[Touched], outputs: &[Touched]) -> Work {
        let work = Work::of_elements(inputs, outputs);
        let operations = 2 * work.operations;
        work.with_operations(operations)
    }
}

/// The axes that stay and the axes that go, as two geometries; the offset stays with the first.
fn split(g: &Geometry, axes: &[usize]) -> (Geometry, Geometry) {
    let (mut outer, mut inner) = (
        Geometry { rank: 0, ..*g },
        Geometry {
            rank: 0,
            offset: 0,
            ..*g
        },
    );
    for i in 0..g.rank {
        let to = if axes.contains(&i) {
            &mut inner
        } else {
            &mut outer
        };
        to.shape[to.rank] = g.shape[i];
        to.strides[to.rank] = g.strides[i];
        to.rank += 1;
    }
    (outer, inner)
}

/// `exp(x - max) / Σ exp(x - max)` along an axis.
#[derive(Debug)]
pub(crate) struct Softmax {
    pub(crate) axis: usize,
}

impl Kernel for Softmax {
    fn run(&self, cx: &mut Cx<'_, '_, '_>) -> Result<(), OpError> {
        let x = cx.inputs[0];
        let n = x.geometry.shape[self.axis];
        let (outer, inner) = split(&x.geometry, &[self.axis]);
        let (to_outer, to_inner) = split(&cx.outputs[0].geometry, &[self.axis]);
        cx.scratch_len(n);
        let (scratch, out) = (&mut cx.scratch[..n], &mut cx.outputs[0]);
        let (dtype, size) = (out.dtype, out.dtype.size().unwrap_or(1));
        if n * outer.len() >= PARALLEL && to_inner.strides[0] == 1 {
            let bytes = &mut out.data[out.geometry.offset * size..][..n * outer.len() * size];
            cx.pool.for_chunks_mut(bytes, n * size, &|i, o: &mut [u8]| {
                let row = &mut *scratch::floats(n);
                x.load(outer.element_offset(i), inner.strides[0], row);
                softmax(x.dtype, row);
                store(dtype, row, o);
            });
            return Ok(());
        }
        for i in 0..outer.len() {
            x.load(outer.element_offset(i), inner.strides[0], scratch);
            softmax(x.dtype, scratch);
            let at = to_outer.element_offset(i);
            for (k, v) in scratch.iter().enumerate() {
                let at = (at + k * to_inner.strides[0]) * size;
                store(dtype, &[*v], &mut out.data[at..at + size]);
            }
        }
        Ok(())
    }
}

/// Softmax of one row of elements of a kind, in place.
pub(super) fn softmax(dtype: DType, row: &mut [f32]) {
    let max = row.iter().fold(f32::NEG_INFINITY, |a, &v| a.max(v));
    if dtype == DType::F32 {
        let exp = |v: f32| f64::from(v - max).exp();
        let sum: f64 = row.iter().map(|&v| exp(v)).sum();
        row.iter_mut().for_each(|v| *v = (exp(*v) / sum) as f32);
        return;
    }
    row.iter_mut().for_each(|v| *v = (*v - max).exp());
    let sum = row.iter().fold(0.0, |a, v| a + v);
    row.iter_mut().for_each(|v| *v /= sum);
}
