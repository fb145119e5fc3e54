//! The gated delta rule, whole: inputs are widened, normalised and scaled into scratch memory, the recurrence runs there in f32,
//! outputs and state are rounded at the end.

use half::{bf16, f16};
use russet_kernels::gated_delta::{GatedDelta as Inputs, gated_delta};

use super::{Cx, Kernel, Out, Touched, Work};
use crate::error::OpError;
use crate::exec::view::{View, store};
use crate::ops::gated_delta_update::{EPSILON, GatedDeltaUpdate};
use crate::types::DType;

/// Inputs: query, key `[b, heads, s, dk]`, value `[b, heads, s, dv]`, g, beta `[b, heads, s]`, state `[b, heads, dk, dv]`.
/// Outputs: results `[b, s, heads, dv]`, state.
#[derive(Debug)]
pub(crate) struct GatedDelta(pub(crate) GatedDeltaUpdate);

impl Kernel for GatedDelta {
    fn run(&self, cx: &mut Cx<'_, '_, '_>) -> Result<(), OpError> {
        let [query, key, value, g, beta, state] = cx.inputs else {
            return Err(OpError::Unknown("the operands of a recurrence"));
        };
        let ([b, heads, s, dk], [.., dv]) = (query.shape(), value.shape()) else {
            return Err(OpError::Unknown("the shapes of a recurrence"));
        };
        let (groups, s, dk, dv) = (b * heads, *s, *dk, *dv);
        let sizes = [s * dk, s * dk, s * dv, s, s, dk * dv, s * dv].map(|n| groups * n);
        let total: usize = sizes.iter().sum();
        if cx.scratch.len() < total {
            cx.scratch.resize(total, 0.0);
        }
        let mut rest = &mut cx.scratch[..total];
        let mut parts = sizes.map(|n| {
            let (part, tail) = std::mem::take(&mut rest).split_at_mut(n);
            rest = tail;
            part
        });
        for (view, part) in [query, key, value, g, beta, state]
            .into_iter()
            .zip(&mut parts)
        {
            widen(view, part);
        }
        let [q, k, v, g, beta, state, out] = parts;
        if self.0.normalise {
            normalise(query.dtype(), q, dk);
            normalise(key.dtype(), k, dk);
        }
        let scale = (1.0 / (dk as f64).sqrt()) as f32;
        q.iter_mut().for_each(|x| *x *= scale);
        let inputs = Inputs {
            q,
            k,
            v,
            g,
            beta,
            heads: groups,
            m: s,
            dk,
            dv,
        };
        gated_delta(cx.pool, &inputs, state, out);
        let [to, after] = cx.outputs else {
            return Err(OpError::Unknown("two results"));
        };
        turned(out, (*heads, s, dv), to);
        store(after.dtype, state, after.bytes());
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

/// All elements of a view, row by row.
fn widen(view: &View<'_>, out: &mut [f32]) {
    let width = view.shape().last().copied().unwrap_or(1).max(1);
    for (row, out) in out.chunks_exact_mut(width).enumerate() {
        view.load_row(row, out);
    }
}

/// Divides every row by its length, each step rounded to `dtype`.
fn normalise(dtype: DType, rows: &mut [f32], width: usize) {
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
fn turned(from: &[f32], (heads, s, dv): (usize, usize, usize), to: &mut Out<'_>) {
    let (dtype, size) = (to.dtype, to.dtype.size().unwrap_or(1));
    if dv == 0 || s == 0 {
        return;
    }
    let bytes = to.bytes();
    for (i, row) in from.chunks_exact(dv).enumerate() {
        let (batch, head, t) = (i / s / heads, i / s % heads, i % s);
        let at = ((batch * s + t) * heads + head) * dv * size;
        store(dtype, row, &mut bytes[at..at + dv * size]);
    }
}
