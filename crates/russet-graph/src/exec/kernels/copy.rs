//! Moving elements: copies between views, contents that inference followed, ranges, slices with bounds of the run.

use russet_kernels::threads::Pool;

use super::{Cx, Kernel, Out, PARALLEL, Touched, Work};
use crate::error::OpError;
use crate::exec::view::{Geometry, MAX_RANK, View, store, store_int};
use crate::ops::slice::resolve;

/// Copies a view into a view of the same shape and element size.
#[derive(Debug)]
pub(crate) struct Copy;

impl Kernel for Copy {
    fn run(&self, cx: &mut Cx<'_, '_, '_>) -> Result<(), OpError> {
        let (from, to) = (&cx.inputs[0], &mut cx.outputs[0]);
        let (n, large) = (from.geometry.rows().0, to.geometry.len() >= 4 * PARALLEL);
        if large && n >= 32 && to.geometry.is_contiguous() {
            copy_in_parallel(cx.pool, from, to);
        } else {
            copy(from, to);
        }
        Ok(())
    }
}

/// Many rows to where there are no gaps, shared out.
fn copy_in_parallel(pool: &Pool, from: &View<'_>, to: &mut Out<'_>) {
    let (n, _, rows) = from.geometry.rows();
    let (bytes, row) = (to.bytes(), n * from.dtype.size().unwrap_or(1));
    let per = rows.div_ceil(4 * pool.threads()).max(1);
    let whole = Geometry {
        rank: 1,
        shape: [n; MAX_RANK],
        strides: [1; MAX_RANK],
        offset: 0,
    };
    pool.for_chunks_mut(bytes, per * row, &|i, data| {
        for (k, data) in data.chunks_exact_mut(row.max(1)).enumerate() {
            let mut line = from.geometry;
            line.offset = from.geometry.row_offset(i * per + k);
            line.strides[0] = from.geometry.rows().1;
            line.rank = 1;
            line.shape[0] = n;
            let mut to = Out {
                dtype: from.dtype,
                geometry: whole,
                data,
            };
            copy_rows(from, [line, whole], &mut to);
        }
    });
}

/// Copies row by row.
pub(super) fn copy(from: &View<'_>, to: &mut Out<'_>) {
    let mut both = [from.geometry, to.geometry];
    collapse(&mut both);
    copy_rows(from, both, to);
}

/// Copies from one geometry into another of the same shape; rows without gaps as bytes.
fn copy_rows(from: &View<'_>, [a, b]: [Geometry; 2], to: &mut Out<'_>) {
    let size = from.dtype.size().unwrap_or(1);
    let (n, stride, rows) = a.rows();
    let out_stride = b.rows().1;
    for row in 0..rows {
        let (x, y) = (a.row_offset(row), b.row_offset(row));
        if n == 1 || (stride == 1 && out_stride == 1) {
            to.data[y * size..(y + n) * size].copy_from_slice(&from.data[x * size..(x + n) * size]);
        } else {
            match size {
                1 => strided::<1>(from.data, to.data, (x, stride), (y, out_stride), n),
                2 => strided::<2>(from.data, to.data, (x, stride), (y, out_stride), n),
                4 => strided::<4>(from.data, to.data, (x, stride), (y, out_stride), n),
                _ => strided::<8>(from.data, to.data, (x, stride), (y, out_stride), n),
            }
        }
    }
}

fn strided<const N: usize>(
    from: &[u8],
    to: &mut [u8],
    (x, s): (usize, usize),
    (y, t): (usize, usize),
    n: usize,
) {
    for i in 0..n {
        let (x, y) = ((x + i * s) * N, (y + i * t) * N);
        to[y..y + N].copy_from_slice(&from[x..x + N]);
    }
}

/// Merges neighbouring axes that are one axis in every geometry, and drops axes of extent 1.
pub(super) fn collapse(all: &mut [Geometry]) {
    let Some(rank) = all.first().map(|g| g.rank) else {
        return;
    };
    let mut kept = 0;
    for i in 0..rank {
        let extent = all[0].shape[i];
        if extent == 1 {
            continue;
        }
        let joins = kept > 0
            && all
                .iter()
                .all(|g| g.strides[kept - 1] == g.strides[i] * extent);
        for g in all.iter_mut() {
            if joins {
                g.shape[kept - 1] *= extent;
                g.strides[kept - 1] = g.strides[i];
            } else {
                g.shape[kept] = extent;
                g.strides[kept] = g.strides[i];
            }
        }
        kept += usize::from(!joins);
    }
    for g in all.iter_mut() {
        g.rank = kept;
    }
}

/// Writes the numbers of the step.
#[derive(Debug)]
pub(crate) struct Contents;

impl Kernel for Contents {
    fn run(&self, cx: &mut Cx<'_, '_, '_>) -> Result<(), OpError> {
        let out = &mut cx.outputs[0];
        let (dtype, size) = (out.dtype, out.dtype.size().unwrap_or(1));
        for (&v, o) in cx.numbers.iter().zip(out.bytes().chunks_exact_mut(size)) {
            store_int(dtype, v, o);
        }
        Ok(())
    }
}

/// `start, start + step, …` Inputs: start, end, step, of one element each.
#[derive(Debug)]
pub(crate) struct Range;

impl Kernel for Range {
    fn run(&self, cx: &mut Cx<'_, '_, '_>) -> Result<(), OpError> {
        let out = &mut cx.outputs[0];
        let (dtype, size) = (out.dtype, out.dtype.size().unwrap_or(1));
        let floats = dtype.is_float();
        let (mut start, mut step) = ([0f32], [0f32]);
        cx.inputs[0].load(cx.inputs[0].geometry.offset, 1, &mut start);
        cx.inputs[2].load(cx.inputs[2].geometry.offset, 1, &mut step);
        let (first, by) = (cx.inputs[0].int_at(0), cx.inputs[2].int_at(0));
        for (i, o) in out.bytes().chunks_exact_mut(size).enumerate() {
            if floats {
                store(dtype, &[start[0] + i as f32 * step[0]], o);
            } else {
                store_int(dtype, first.wrapping_add(by.wrapping_mul(i as i64)), o);
            }
        }
        Ok(())
    }
}

/// A bound of a box: a number, or an element of an input of the step and a number more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bound {
    pub(crate) of: Option<(usize, usize)>,
    pub(crate) plus: i64,
}

/// Begin, end and stride for every axis.
pub(crate) type Bounds = Vec<[Bound; 3]>;

/// The box of `whole` that bounds of the run name.
fn boxed(whole: &Geometry, bounds: &Bounds, inputs: &[View<'_>]) -> Result<Geometry, OpError> {
    let mut g = *whole;
    for (i, bound) in bounds.iter().enumerate().take(whole.rank) {
        let number = |b: &Bound| {
            let of = b.of.map_or(0, |(input, at)| inputs[input].int_at(at));
            of.saturating_add(b.plus)
        };
        let [begin, end, stride] = [0, 1, 2].map(|k| number(&bound[k]));
        let (begin, count, stride) = resolve(begin, end, stride, whole.shape[i])?;
        g.offset += begin * whole.strides[i];
        g.shape[i] = count;
        g.strides[i] = whole.strides[i] * stride;
    }
    Ok(g)
}

/// A slice whose bounds are computed in the run. Inputs: tensor, then where bounds come from.
#[derive(Debug)]
pub(crate) struct SliceCopy(pub(crate) Bounds);

impl Kernel for SliceCopy {
    fn run(&self, cx: &mut Cx<'_, '_, '_>) -> Result<(), OpError> {
        let geometry = boxed(&cx.inputs[0].geometry, &self.0, cx.inputs)?;
        let out = &mut cx.outputs[0];
        if geometry.shape() != out.geometry.shape() {
            return Err(OpError::shapes(
                "a slice has the planned shape",
                &[geometry.shape(), out.geometry.shape()],
            ));
        }
        copy(
            &View {
                geometry,
                ..cx.inputs[0]
            },
            out,
        );
        Ok(())
    }
}

/// An update whose bounds are computed in the run. Inputs: update, then where bounds come from; the output is updated in place.
#[derive(Debug)]
pub(crate) struct SliceWrite(pub(crate) Bounds);

impl Kernel for SliceWrite {
    fn run(&self, cx: &mut Cx<'_, '_, '_>) -> Result<(), OpError> {
        let update = cx.inputs[0];
        let out = &mut cx.outputs[0];
        let geometry = boxed(&out.geometry, &self.0, cx.inputs)?;
        if geometry.shape() != update.geometry.shape() {
            return Err(OpError::shapes(
                "an update fills its box",
                &[update.geometry.shape(), geometry.shape()],
            ));
        }
        copy(
            &update,
            &mut Out {
                dtype: out.dtype,
                geometry,
                data: out.data,
            },
        );
        Ok(())
    }

    fn work(&self, inputs: &[Touched], _: &[Touched]) -> Work {
        // As much as the update is written, not the whole.
        Work::of_elements(&inputs[..1], &inputs[..1])
    }
}
