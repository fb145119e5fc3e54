//! Composites run whole.

use russet_kernels::attention::{Attention, CachedFor, Heads, HeadsMut, attention};
use russet_kernels::elem::Elem;
use russet_kernels::mem::Pod;
use russet_kernels::norm::{Norm, rms_norm};
use russet_kernels::rope::{Pairs, RowsOf, Tables, rotate_normalised, rotate_rows};
use russet_kernels::scratch;

use super::edges::Seen;
use super::{Cx, Kernel, PARALLEL, Touched, Work};
use crate::error::OpError;
use crate::exec::view::{Geometry, View, store, typed, typed_mut};
use crate::ops::rope::{Part, Rope};
use crate::ops::scaled_dot_product_attention::{HIDDEN, ScaledDotProductAttention};
use crate::types::DType;

/// Rows of x without gaps, with a scale that is a view of the same shape; then, where something is added to the result, that.
#[derive(Debug)]
pub(crate) struct RmsNorm {
    pub(crate) eps: f32,
    /// Whether the squares are summed one after the other, as the reference runtime does.
    pub(crate) exact: bool,
}

impl Kernel for RmsNorm {
    fn run(&self, cx: &mut Cx<'_, '_, '_>) -> Result<(), OpError> {
        let dtype = cx.outputs[0].dtype;
        by_kind!(dtype, T => norm::<T>(self, cx))
    }
}

/// How many rows at a time lie evenly in every one of the views, and how far apart.
fn even_rows<const N: usize>(views: &[Geometry; N]) -> (usize, [usize; N]) {
    let (mut rows, mut apart) = (1, [0; N]);
    for axis in (0..views[0].rank.saturating_sub(1)).rev() {
        let (n, strides) = (views[0].shape[axis], views.map(|g| g.strides[axis]));
        if n == 1 {
            continue;
        }
        if rows > 1 && (0..N).any(|i| strides[i] != rows * apart[i]) {
            break;
        }
        if rows == 1 {
            apart = strides;
        }
        rows *= n;
    }
    (rows.max(1), apart)
}

/// The distance of the rows of a head.
fn row_stride(g: &Geometry) -> usize {
    g.rank.checked_sub(2).map_or(0, |i| g.strides[i])
}

fn without_gaps(views: &[View<'_>]) -> Result<(), OpError> {
    let gaps = views.iter().any(|v| {
        let (width, stride, _) = v.geometry.rows();
        stride != 1 && width > 1
    });
    match gaps {
        true => Err(OpError::Unknown("rows without gaps")),
        false => Ok(()),
    }
}

fn norm<T: Elem>(op: &RmsNorm, cx: &mut Cx<'_, '_, '_>) -> Result<(), OpError> {
    without_gaps(cx.inputs)?;
    let (x, scale) = (cx.inputs[0].geometry, cx.inputs[1].geometry);
    let add = cx.inputs.get(2).map(|v| v.contiguous());
    let add = match add {
        Some(None) => return Err(OpError::Unknown("rows without gaps")),
        Some(Some(bytes)) => Some(typed::<T>(bytes)),
        None => None,
    };
    let out = typed_mut::<T>(cx.outputs[0].bytes());
    let [from, scales] = [0, 1].map(|i| typed::<T>(cx.inputs[i].data));
    let (width, _, rows) = x.rows();
    // Rows that share their scale are one call.
    let (even, [apart, scales_apart]) = even_rows(&[x, scale]);
    let run = if scales_apart == 0 { even } else { 1 };
    for first in (0..rows).step_by(run) {
        let part = first * width..(first + run) * width;
        let at = scale.row_offset(first);
        let norm = Norm {
            x: RowsOf {
                data: &from[x.row_offset(first)..],
                stride: apart,
                width,
            },
            scale: &scales[at..at + width],
            eps: op.eps,
            in_order: op.exact,
            add: add.map(|add| &add[part.clone()]),
        };
        rms_norm(cx.pool, &norm, &mut out[part]);
    }
    Ok(())
}

/// Cosines and sines `[batch, …, q, pairs]`, all axes between of extent 1. Inputs, where the rotation has them: positions
/// `[1 or batch, q]`, the first position (one, or one for each of the batch), frequencies `[pairs]`.
#[derive(Debug)]
pub(crate) struct RopeTables(pub(crate) Rope);

impl Kernel for RopeTables {
    fn run(&self, cx: &mut Cx<'_, '_, '_>) -> Result<(), OpError> {
        let mut given = cx.inputs.iter();
        let [positions, offset, turns] = [Part::Positions, Part::Offset, Part::Frequencies]
            .map(|part| self.0.parts.place(part).and_then(|_| given.next()));
        let [cos, sin] = cx.outputs else {
            return Err(OpError::Unknown("two tables"));
        };
        let (pairs, _, rows) = cos.geometry.rows();
        let q = cos.geometry.shape[cos.geometry.rank - 2].max(1);
        if positions.is_some_and(|p| p.geometry.rows().0 != q && rows > 0) {
            let shapes = [cos.geometry.shape(), positions.map_or(&[], |p| p.shape())];
            return Err(OpError::shapes("every row has a position", &shapes));
        }
        // One for all, or one for each of the batch.
        let first = |p: &View<'_>, each: usize, row: usize| match p.len() > each {
            true => row / q * each,
            false => 0,
        };
        let position = |row: usize| match (positions, offset) {
            (Some(p), _) => p.int_at(first(p, q, row) + row % q) as f32,
            (None, Some(o)) => (o.int_at(first(o, 1, row)) + (row % q) as i64) as f32,
            (None, None) => (row % q) as f32,
        };
        let (dtype, size) = (cos.dtype, cos.dtype.size().unwrap_or(1));
        let turn = &mut *scratch::floats(pairs);
        if let Some(t) = turns {
            t.load_row(0, turn);
            turn.iter_mut().for_each(|x| *x *= self.0.scale as f32);
        } else {
            let each = turn.iter_mut().enumerate();
            each.for_each(|(i, x)| *x = self.0.frequency(i, pairs));
        }
        let row = (pairs * size).max(1);
        let tables = cos.bytes().chunks_exact_mut(row);
        for (i, (cos, sin)) in tables.zip(sin.bytes().chunks_exact_mut(row)).enumerate() {
            let position = position(i);
            let parts = cos.chunks_exact_mut(size).zip(sin.chunks_exact_mut(size));
            for ((cos, sin), turn) in parts.zip(turn.iter()) {
                let angle = position * turn;
                store(dtype, &[angle.cos()], cos);
                store(dtype, &[angle.sin()], sin);
            }
        }
        Ok(())
    }
}

/// Inputs: x `[…, q, width]`, cosines and sines repeated to `[…, q, pairs]`, all with rows without gaps.
#[derive(Debug)]
pub(crate) struct Rotate {
    pub(crate) interleaved: bool,
}

impl Kernel for Rotate {
    fn run(&self, cx: &mut Cx<'_, '_, '_>) -> Result<(), OpError> {
        let dtype = cx.outputs[0].dtype;
        by_kind!(dtype, T => rotate::<T>(self.interleaved, cx))
    }
}

/// The rows of a table for head `head` of `rows` rows: one a row, or one for all.
fn table<'a, T: Elem>(view: &View<'a>, rows: usize, head: usize) -> &'a [T] {
    let g = &view.geometry;
    let shared = g.strides[g.rank - 2] == 0;
    let rows_held = if shared { rows.min(1) } else { rows };
    let from = g.row_offset(head * rows);
    &typed::<T>(view.data)[from..from + rows_held * g.rows().0]
}

fn rotate<T: Elem>(interleaved: bool, cx: &mut Cx<'_, '_, '_>) -> Result<(), OpError> {
    heads_of(cx, 0, |_, x, tables, out: &mut [T]| {
        rotate_rows(pairing(interleaved), x, tables, out);
    })
}

fn pairing(interleaved: bool) -> Pairs {
    if interleaved {
        Pairs::Interleaved
    } else {
        Pairs::Halves
    }
}

/// Calls `one(head, rows of x, tables, result)` for every head; the tables are the two inputs after input `behind`.
fn heads_of<T: Elem>(
    cx: &mut Cx<'_, '_, '_>,
    behind: usize,
    one: impl Fn(usize, RowsOf<'_, T>, Tables<'_, T>, &mut [T]) + Sync,
) -> Result<(), OpError> {
    without_gaps(cx.inputs)?;
    let [x, cos, sin] = [0, behind + 1, behind + 2].map(|i| cx.inputs[i]);
    let (width, pairs) = (x.geometry.rows().0, cos.geometry.rows().0);
    let rows = x.shape()[x.geometry.rank - 2];
    let step = |v: &View<'_>| row_stride(&v.geometry);
    if rows > 1 && (step(&cos) != step(&sin) || ![0, pairs].contains(&step(&cos))) {
        return Err(OpError::Unknown("rows without gaps"));
    }
    let data = typed::<T>(x.data);
    let out = typed_mut::<T>(cx.outputs[0].bytes());
    let head = (rows * width).max(1);
    let one = |h: usize, out: &mut [T]| {
        let from = x.geometry.row_offset(h * rows);
        let tables = Tables {
            cos: table(&cos, rows, h),
            sin: table(&sin, rows, h),
            pairs,
        };
        let x = RowsOf {
            data: &data[from..],
            stride: step(&x),
            width,
        };
        one(h, x, tables, out);
    };
    if out.len() >= PARALLEL {
        cx.pool.for_chunks_mut(out, head, &one);
    } else {
        let heads = out.chunks_mut(head).enumerate();
        heads.for_each(|(h, o)| one(h, o));
    }
    Ok(())
}

/// Rows that are normalised, then turned; in f32 until the result. Inputs: x `[…, q, width]`, a scale of that shape that the
/// rows of a head share, cosines and sines as for [`Rotate`].
#[derive(Debug)]
pub(crate) struct NormRotate {
    pub(crate) eps: f32,
    pub(crate) interleaved: bool,
}

impl Kernel for NormRotate {
    fn run(&self, cx: &mut Cx<'_, '_, '_>) -> Result<(), OpError> {
        by_kind!(cx.outputs[0].dtype, T => self.turn::<T>(cx))
    }
}

impl NormRotate {
    fn turn<T: Elem>(&self, cx: &mut Cx<'_, '_, '_>) -> Result<(), OpError> {
        let scale = cx.inputs[1];
        let (scales, rows) = (
            typed::<T>(scale.data),
            scale.shape()[scale.geometry.rank - 2],
        );
        heads_of(cx, 1, |head, x, tables, out: &mut [T]| {
            let at = scale.geometry.row_offset(head * rows);
            let scale = (&scales[at..at + x.width], self.eps);
            rotate_normalised(pairing(self.interleaved), x, scale, tables, out);
        })
    }
}

/// What is added to scores: 0 where a key is seen, else -10000. Output: `[…, q, s]`. Input: the bools that say what is seen,
/// repeated to that shape; or nothing where positions say it.
#[derive(Debug)]
pub(crate) struct ScoreMask(pub(crate) ScaledDotProductAttention);

impl Kernel for ScoreMask {
    fn run(&self, cx: &mut Cx<'_, '_, '_>) -> Result<(), OpError> {
        let out = &mut cx.outputs[0];
        let (s, _, _) = out.geometry.rows();
        let q = out.geometry.shape[out.geometry.rank - 2];
        let (dtype, size) = (out.dtype, out.dtype.size().unwrap_or(1));
        for (at, place) in out.bytes().chunks_exact_mut(size).enumerate() {
            let seen = cx.inputs.first().map_or_else(
                || self.0.sees(at / s % q, q, at % s, s),
                |mask| mask.int_at(at) != 0,
            );
            let value = if seen { 0.0 } else { HIDDEN as f32 };
            store(dtype, &[value], place);
        }
        Ok(())
    }
}

/// Attention read straight from views whose rows have no gaps. Inputs: queries, keys, values, then where the operation has them
/// what is added to scores, repeated from `[…, q, s]` without gaps, sinks, and what [`super::MaskEdges`] found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sdpa {
    pub(crate) op: ScaledDotProductAttention,
    /// Whether to round where the decomposed form does.
    pub(crate) exact: bool,
    /// Whether the last input says which keys the mask leaves.
    pub(crate) edges: bool,
}

impl Kernel for Sdpa {
    fn run(&self, cx: &mut Cx<'_, '_, '_>) -> Result<(), OpError> {
        let dtype = cx.outputs[0].dtype;
        match cx.inputs[1].dtype {
            DType::I8 => by_kind!(dtype, T => attend::<T, u8>(self, dtype, cx)),
            _ => by_kind!(dtype, T => attend::<T, T>(self, dtype, cx)),
        }
    }

    /// Two products with every key and value that a query sees.
    fn work(&self, inputs: &[Touched], outputs: &[Touched]) -> Work {
        let work = Work::of_elements(inputs, outputs);
        let [q, k, v, ..] = inputs else {
            return work;
        };
        let (q, k, dv) = (q.geometry.shape(), k.geometry.shape(), v.geometry.rows().0);
        let ([batch, heads, m, d], [_, _, s, _]) = (q, k) else {
            return work;
        };
        let window = match (self.op.window, self.op.causal) {
            (0, _) => *s,
            (n, true) => n,
            (n, false) => 2 * n + 1,
        };
        let behind = |row: usize| if self.op.causal { m - row - 1 } else { 0 };
        let seen = |row: usize| s.saturating_sub(behind(row)).min(window);
        let pairs: usize = (0..*m).map(seen).sum();
        // Keys and values that no query sees are not read.
        let unread = s.saturating_sub(window.saturating_add(m.saturating_sub(1))) as u64;
        let cache = inputs[1].bytes() + inputs[2].bytes();
        Work {
            bytes: work.bytes - cache * unread / (*s).max(1) as u64,
            ..work.with_operations((2 * batch * heads * pairs * (d + dv)) as u64)
        }
    }
}

fn from<'a, T: Pod>(view: &View<'a>, at: usize) -> &'a [T] {
    let data = typed::<T>(view.data);
    &data[(view.geometry.offset + at).min(data.len())..]
}

/// The heads of one of the batch, from one on.
fn heads<'a, T: Pod>(view: &View<'a>, batch: usize, head: usize) -> Heads<'a, T> {
    let strides = view.geometry.strides;
    Heads {
        data: from(view, batch * strides[0] + head * strides[1]),
        head_stride: strides[1],
        row_stride: strides[2],
    }
}

/// Whether shapes that are only known now fit together.
fn check(op: &ScaledDotProductAttention, cx: &Cx<'_, '_, '_>) -> Result<(), OpError> {
    let shapes = [0, 1, 2].map(|i| cx.inputs[i].shape());
    let (q, k, v) = (shapes[0], shapes[1], shapes[2]);
    let alike = (v[0], v[1], v[2]) == (k[0], k[1], k[2]) && (q[0], q[3]) == (k[0], k[3]);
    let mask = op.optional(cx.inputs).0;
    let masked = mask.is_none_or(|m| m.shape() == [q[0], q[1], q[2], k[2]]);
    if !alike || !masked {
        let rule = "queries, keys, values and the mask fit together";
        return Err(OpError::shapes(rule, &shapes));
    }
    if op.causal && q[2] > k[2] {
        let rule = "there are as many keys as queries, or more";
        return Err(OpError::shapes(rule, &shapes[..2]));
    }
    Ok(())
}

/// Attention of queries of kind `T` over a cache of kind `C`.
fn attend<T: Elem, C: CachedFor<T>>(
    kernel: &Sdpa,
    dtype: DType,
    cx: &mut Cx<'_, '_, '_>,
) -> Result<(), OpError> {
    let op = &kernel.op;
    check(op, cx)?;
    let (q, k, v) = (cx.inputs[0], cx.inputs[1], cx.inputs[2]);
    let (mask, sinks) = op.optional(cx.inputs);
    let ([batches, all, m, d], s) = ([0, 1, 2, 3].map(|i| q.geometry.shape[i]), k.shape()[2]);
    let seen = match cx.inputs.last().filter(|_| kernel.edges) {
        Some(found) => Seen::read(found, s),
        None => Seen::all(op, s),
    };
    let group = (all / k.shape()[1].max(1)).max(1);
    // A mask of its own for every head makes every head a call of its own.
    let apart = mask.is_some_and(|m| m.geometry.strides[1] != 0) && all > 1;
    let together = if apart { 1 } else { all };
    let logits = &mut *scratch::floats(all);
    if let Some(sinks) = sinks {
        sinks.load_row(0, logits);
    }
    let out = &mut cx.outputs[0];
    let (strides, offset) = (out.geometry.strides, out.geometry.offset);
    let data = typed_mut::<T>(out.data);
    for (batch, head) in
        (0..batches).flat_map(|b| (0..all).step_by(together.max(1)).map(move |h| (b, h)))
    {
        let part = head..head + together;
        let masked = |m: &View<'_>| batch * m.geometry.strides[0] + head * m.geometry.strides[1];
        let a = Attention {
            q: heads::<T>(&q, batch, head),
            k: heads::<C>(&k, batch, head / group).from_row(seen.first),
            v: heads::<C>(&v, batch, head / group).from_row(seen.first),
            heads: together,
            kv_heads: together.div_ceil(group),
            m,
            s: seen.keys,
            d,
            dv: v.shape()[3],
            scale: op.factor(d, dtype) as f32,
            causal: seen.causal,
            window: seen.window,
            mask: mask.filter(|_| seen.added).map(|x| {
                let row = x.geometry.strides[2];
                (from(x, masked(x) + seen.first), row)
            }),
            sinks: sinks.map(|_| &logits[part]),
            exact: kernel.exact,
        };
        let at = offset + batch * strides[0] + head * strides[1];
        let out = HeadsMut {
            data: &mut data[at..],
            head_stride: strides[1],
            row_stride: strides[2],
        };
        attention(cx.pool, &a, out);
    }
    Ok(())
}
