//! Composites run whole.

use half::{bf16, f16};
use russet_kernels::attention::{Attention, Heads, HeadsMut, attention};
use russet_kernels::elem::Elem;
use russet_kernels::norm::rms_norm;
use russet_kernels::rope::{Pairs, RowsOf, Tables, rotate_rows};

use super::{Cx, Kernel, PARALLEL};
use crate::error::OpError;
use crate::exec::view::{View, store, typed, typed_mut};
use crate::ops::rope::Rope;
use crate::ops::scaled_dot_product_attention::ScaledDotProductAttention;
use crate::types::DType;

/// Runs `$run::<T>` for the element kind of the output.
macro_rules! by_kind {
    ($dtype:expr, $run:ident($($arg:expr),*)) => {
        match $dtype {
            DType::F16 => $run::<f16>($($arg),*),
            DType::BF16 => $run::<bf16>($($arg),*),
            _ => $run::<f32>($($arg),*),
        }
    };
}

/// Rows of x, row-major, with a scale that is a view of the same shape.
#[derive(Debug)]
pub(crate) struct RmsNorm {
    pub(crate) eps: f32,
    /// Whether the squares are summed one after the other, as the reference runtime does.
    pub(crate) exact: bool,
}

impl Kernel for RmsNorm {
    fn run(&self, cx: &mut Cx<'_, '_, '_>) -> Result<(), OpError> {
        let dtype = cx.outputs[0].dtype;
        by_kind!(dtype, norm(self, cx))
    }
}

fn norm<T: Elem>(op: &RmsNorm, cx: &mut Cx<'_, '_, '_>) -> Result<(), OpError> {
    let (x, scale) = (cx.inputs[0], cx.inputs[1]);
    let (width, stride, rows) = scale.geometry.rows();
    let x = typed::<T>(
        x.contiguous()
            .ok_or(OpError::Unknown("rows without gaps"))?,
    );
    if width > 0 && stride != 1 && width != 1 {
        return Err(OpError::Unknown("a scale without gaps"));
    }
    let out = typed_mut::<T>(cx.outputs[0].bytes());
    let scales = typed::<T>(scale.data);
    // Rows that share their scale are one call.
    let rank = scale.geometry.rank;
    let shared = (0..rank.saturating_sub(1))
        .rev()
        .take_while(|&i| scale.geometry.strides[i] == 0 || scale.geometry.shape[i] == 1);
    let run: usize = shared
        .map(|i| scale.geometry.shape[i])
        .product::<usize>()
        .max(1);
    for first in (0..rows).step_by(run) {
        let part = first * width..(first + run) * width;
        let at = scale.geometry.row_offset(first);
        rms_norm(
            cx.pool,
            &x[part.clone()],
            (&scales[at..at + width], op.eps),
            op.exact,
            &mut out[part],
        );
    }
    Ok(())
}

/// Cosines and sines `[q, pairs]`. Input: positions, or nothing for `0..q`.
#[derive(Debug)]
pub(crate) struct RopeTables(pub(crate) Rope);

impl Kernel for RopeTables {
    fn run(&self, cx: &mut Cx<'_, '_, '_>) -> Result<(), OpError> {
        let [cos, sin] = cx.outputs else {
            return Err(OpError::Unknown("two tables"));
        };
        let (pairs, dtype, size) = (
            cos.geometry.shape[1],
            cos.dtype,
            cos.dtype.size().unwrap_or(1),
        );
        let positions = cx.inputs.first();
        let rows = cos
            .bytes()
            .chunks_exact_mut(pairs * size)
            .zip(sin.bytes().chunks_exact_mut(pairs * size));
        for (row, (cos, sin)) in rows.enumerate() {
            let position = positions.map_or(row as f32, |p| p.int_at(row) as f32);
            let parts = cos.chunks_exact_mut(size).zip(sin.chunks_exact_mut(size));
            for (i, (cos, sin)) in parts.enumerate() {
                let angle = position * self.0.frequency(i, pairs);
                store(dtype, &[angle.cos()], cos);
                store(dtype, &[angle.sin()], sin);
            }
        }
        Ok(())
    }
}

/// Inputs: x `[…, q, width]` with rows without gaps, cosines and sines `[q, pairs]`.
#[derive(Debug)]
pub(crate) struct Rotate {
    pub(crate) interleaved: bool,
}

impl Kernel for Rotate {
    fn run(&self, cx: &mut Cx<'_, '_, '_>) -> Result<(), OpError> {
        let dtype = cx.outputs[0].dtype;
        by_kind!(dtype, rotate(self.interleaved, cx))
    }
}

fn contiguous<'a, T: Elem>(view: &View<'a>) -> Result<&'a [T], OpError> {
    Ok(typed(
        view.contiguous()
            .ok_or(OpError::Unknown("rows without gaps"))?,
    ))
}

fn rotate<T: Elem>(interleaved: bool, cx: &mut Cx<'_, '_, '_>) -> Result<(), OpError> {
    let x = cx.inputs[0];
    let (cos, sin) = (
        contiguous::<T>(&cx.inputs[1])?,
        contiguous::<T>(&cx.inputs[2])?,
    );
    let (width, stride, _) = x.geometry.rows();
    if stride != 1 && width > 1 {
        return Err(OpError::Unknown("rows without gaps"));
    }
    let [rows, pairs] = [0, 1].map(|axis| cx.inputs[1].geometry.shape[axis]);
    let pairing = if interleaved {
        Pairs::Interleaved
    } else {
        Pairs::Halves
    };
    let data = typed::<T>(x.data);
    let out = typed_mut::<T>(cx.outputs[0].bytes());
    let head = (rows * width).max(1);
    let rank = x.geometry.rank;
    let row = x.geometry.strides[..rank].get(rank.wrapping_sub(2));
    let tables = Tables { cos, sin, pairs };
    let one = |h: usize, out: &mut [T]| {
        let from = x.geometry.row_offset(h * rows);
        let x = RowsOf {
            data: &data[from..],
            stride: row.copied().unwrap_or(0),
            width,
        };
        rotate_rows(pairing, x, tables, out);
    };
    if out.len() >= PARALLEL {
        cx.pool.for_chunks_mut(out, head, &one);
    } else {
        out.chunks_mut(head)
            .enumerate()
            .for_each(|(h, o)| one(h, o));
    }
    Ok(())
}

/// Attention read straight from views whose rows have no gaps.
#[derive(Debug)]
pub(crate) struct Sdpa {
    pub(crate) op: ScaledDotProductAttention,
    /// Whether to round where the decomposed form does.
    pub(crate) exact: bool,
}

impl Kernel for Sdpa {
    fn run(&self, cx: &mut Cx<'_, '_, '_>) -> Result<(), OpError> {
        let dtype = cx.outputs[0].dtype;
        by_kind!(dtype, attend(&self.op, self.exact, dtype, cx))
    }
}

fn heads<'a, T: Elem>(view: &View<'a>) -> Heads<'a, T> {
    let g = view.geometry;
    let data = typed::<T>(view.data);
    Heads {
        data: &data[g.offset.min(data.len())..],
        head_stride: g.strides[1],
        row_stride: g.strides[2],
    }
}

fn attend<T: Elem>(
    op: &ScaledDotProductAttention,
    exact: bool,
    dtype: DType,
    cx: &mut Cx<'_, '_, '_>,
) -> Result<(), OpError> {
    let (q, k, v) = (cx.inputs[0], cx.inputs[1], cx.inputs[2]);
    let (shape, keys) = (q.geometry.shape, k.geometry.shape);
    if v.geometry.shape[2] != keys[2] || (op.causal && shape[2] > keys[2]) {
        return Err(OpError::shapes(
            "there are as many keys as queries, or more",
            &[q.shape(), k.shape()],
        ));
    }
    let dv = v.geometry.shape[3];
    let a = Attention {
        q: heads::<T>(&q),
        k: heads(&k),
        v: heads(&v),
        heads: shape[1],
        kv_heads: keys[1],
        m: shape[2],
        s: keys[2],
        d: shape[3],
        dv,
        scale: op.factor(shape[3], dtype) as f32,
        causal: op.causal,
        window: (op.window > 0).then_some(op.window),
        mask: None,
        sinks: None,
        exact,
    };
    let out = &mut cx.outputs[0];
    let (strides, offset) = (out.geometry.strides, out.geometry.offset);
    let data = typed_mut::<T>(out.data);
    let offset = offset.min(data.len());
    let out = HeadsMut {
        data: &mut data[offset..],
        head_stride: strides[1],
        row_stride: strides[2],
    };
    attention(cx.pool, &a, out);
    Ok(())
}
