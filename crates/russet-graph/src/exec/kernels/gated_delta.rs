//! The gated delta rule, whole: heads are shared out; operands are widened, normalised and scaled some positions at a time, the
//! recurrence runs in f32, outputs and state are rounded at the end.

use half::{bf16, f16};
use russet_kernels::gated_delta::{self as rule, chunked, recurrent, unit_rows};
use russet_kernels::scratch;
use russet_kernels::threads::Pool;

use super::{Cx, Kernel, Out, PARALLEL, Touched, Work};
use crate::error::OpError;
use crate::exec::view::{View, store};
use crate::ops::gated_delta_update::{EPSILON, GatedDeltaUpdate};
use crate::types::DType;

/// Inputs: query, key `[b, heads, s, dk]`, value `[b, heads, s, dv]`, g, beta `[b, heads, s]`, state `[b, heads, dk, dv]`.
/// Outputs: results `[b, s, heads, dv]`, state.
#[derive(Debug)]
pub(crate) struct GatedDelta {
    pub(crate) op: GatedDeltaUpdate,
    /// Whether queries and keys are rounded where the decomposed form does, and positions are taken one by one.
    pub(crate) exact: bool,
}

/// Positions that are widened at a time.
const BLOCK: usize = 128;
/// Up to this many positions are taken one by one.
const FEW: usize = 8;

/// Extents of a call.
#[derive(Clone, Copy)]
struct Extents {
    heads: usize,
    s: usize,
    dk: usize,
    dv: usize,
}

impl Kernel for GatedDelta {
    fn run(&self, cx: &mut Cx<'_, '_, '_>) -> Result<(), OpError> {
        let ([b, heads, s, dk], [.., dv]) = (cx.inputs[0].shape(), cx.inputs[2].shape()) else {
            return Err(OpError::Unknown("the shapes of a recurrence"));
        };
        let (groups, e) = (
            b * heads,
            Extents {
                heads: *heads,
                s: *s,
                dk: *dk,
                dv: *dv,
            },
        );
        let (cells, made) = (e.dk * e.dv, e.s * e.dv);
        cx.scratch_len(groups * (cells + made));
        let (states, rest) = cx.scratch.split_at_mut(groups * cells);
        let results = &mut rest[..groups * made];
        let inputs = cx.inputs;
        if cells == 0 || made == 0 {
            results.fill(0.0);
            widen(&inputs[5], 0, states);
        } else {
            let parts = ((&mut *states, cells), (&mut *results, made));
            cx.pool
                .for_chunks_mut2(parts.0, parts.1, |group, state, out| {
                    self.head(inputs, e, group, (state, out));
                });
        }
        let [to, after] = cx.outputs else {
            return Err(OpError::Unknown("two results"));
        };
        turned(cx.pool, results, e, to);
        let (dtype, size) = (after.dtype, after.dtype.size().unwrap_or(1));
        cx.pool
            .for_chunks_mut(after.bytes(), PARALLEL * size, &|i, out| {
                let from = i * PARALLEL;
                store(dtype, &states[from..from + out.len() / size], out);
            });
        Ok(())
    }

    /// A position decays the state, reads it twice and adds a product to it.
    fn work(&self, inputs: &[Touched], outputs: &[Touched]) -> Work {
        let positions = inputs.get(3).map_or(0, Touched::elements);
        let state = inputs.last().map_or(&[][..], |s| s.geometry.shape());
        let cells = state.iter().rev().take(2).product::<usize>() as u64;
        Work::of_elements(inputs, outputs).with_operations(7 * positions * cells)
    }
}

impl GatedDelta {
    /// One head of one of the batch.
    fn head(
        &self,
        inputs: &[View<'_>],
        e: Extents,
        group: usize,
        (state, out): (&mut [f32], &mut [f32]),
    ) {
        widen(&inputs[5], group * e.dk, state);
        let most = BLOCK.min(e.s);
        let buffer = &mut *scratch::floats(most * (2 * e.dk + e.dv + 2));
        for (i, out) in out.chunks_mut(BLOCK * e.dv).enumerate() {
            let (first, m) = (i * BLOCK, out.len() / e.dv);
            let (q, rest) = buffer.split_at_mut(m * e.dk);
            let (k, rest) = rest.split_at_mut(m * e.dk);
            let (v, rest) = rest.split_at_mut(m * e.dv);
            let (g, rest) = rest.split_at_mut(m);
            let beta = &mut rest[..m];
            let row = group * e.s + first;
            for (input, part) in inputs.iter().zip([&mut *q, &mut *k, &mut *v]) {
                widen(input, row, part);
            }
            for (input, part) in inputs[3..].iter().zip([&mut *g, &mut *beta]) {
                let stride = input.geometry.rows().1;
                let at = input.geometry.row_offset(group) + first * stride;
                input.load(at, stride, part);
            }
            self.normalise(inputs[0].dtype(), (&mut *q, &mut *k), e.dk);
            let (dk, dv) = (e.dk, e.dv);
            let positions = rule::GatedDelta {
                q,
                k,
                v,
                g,
                beta,
                dk,
                dv,
            };
            if self.exact || m <= FEW {
                recurrent(&positions, state, out);
            } else {
                chunked(&positions, state, out);
            }
        }
    }

    /// Queries and keys divided by their lengths where asked for, queries by the root of their width.
    fn normalise(&self, dtype: DType, (q, k): (&mut [f32], &mut [f32]), dk: usize) {
        let scale = (1.0 / (dk as f64).sqrt()) as f32;
        if self.op.normalise && !self.exact {
            unit_rows(q, dk, EPSILON as f32, scale);
            return unit_rows(k, dk, EPSILON as f32, 1.0);
        }
        if self.op.normalise {
            divide_by_lengths(dtype, q, dk);
            divide_by_lengths(dtype, k, dk);
        }
        q.iter_mut().for_each(|x| *x *= scale);
    }
}

/// Rows of a view from row `first` on.
pub(super) fn widen(view: &View<'_>, first: usize, out: &mut [f32]) {
    let width = view.shape().last().copied().unwrap_or(1).max(1);
    if view.geometry.is_contiguous() {
        return view.load(view.geometry.offset + first * width, 1, out);
    }
    for (row, out) in out.chunks_exact_mut(width).enumerate() {
        view.load_row(first + row, out);
    }
}

/// Divides every row by its length, each step rounded to `dtype`.
fn divide_by_lengths(dtype: DType, rows: &mut [f32], width: usize) {
    match dtype {
        DType::F16 => lengths(rows, width, |x| f16::from_f32(x).to_f32()),
        DType::BF16 => lengths(rows, width, |x| bf16::from_f32(x).to_f32()),
        _ => lengths(rows, width, |x| x),
    }
}

fn lengths(rows: &mut [f32], width: usize, round: impl Fn(f32) -> f32) {
    let epsilon = round(EPSILON as f32);
    for row in rows.chunks_exact_mut(width.max(1)) {
        let square = round(row.iter().map(|&v| round(v * v)).sum());
        let factor = round(1.0 / round(square + epsilon).sqrt());
        row.iter_mut().for_each(|v| *v = round(*v * factor));
    }
}

/// `[b, heads, s, dv]` as `[b, s, heads, dv]`.
fn turned(pool: &Pool, from: &[f32], e: Extents, to: &mut Out<'_>) {
    let (dtype, size) = (to.dtype, to.dtype.size().unwrap_or(1));
    let row = (e.dv * size).max(1);
    pool.for_chunks_mut(to.bytes(), e.heads * row, &|i, heads| {
        let (batch, t) = (i / e.s, i % e.s);
        for (head, out) in heads.chunks_exact_mut(row).enumerate() {
            let at = ((batch * e.heads + head) * e.s + t) * e.dv;
            store(dtype, &from[at..at + e.dv], out);
        }
    });
}
