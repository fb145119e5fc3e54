//! Elementwise steps: inputs are views of the output's shape (broadcasts have stride 0). Floats are computed in f32 and rounded
//! once to the output's kind; integers are computed in i64 and wrapped.

use std::fmt;

use russet_kernels::elem::Elem;
use russet_kernels::elementwise::silu_mul;

use super::copy::collapse;
use super::{Cx, Kernel, PARALLEL};
use crate::error::OpError;
use crate::exec::view::{Geometry, View, store, store_int, typed, typed_mut};
use crate::types::{Class, DType};

/// Elements that are worked on at a time.
const CHUNK: usize = 256;

/// `f` on floats, `g` on integers.
pub(crate) struct Unary<F, G> {
    float: F,
    int: G,
}

/// `f` on floats, `g` on integers.
pub(crate) struct Binary<F, G> {
    float: F,
    int: G,
}

impl<F: Fn(f32) -> f32, G: Fn(i64) -> i64> Unary<F, G> {
    pub(crate) fn new(float: F, int: G) -> Self {
        Self { float, int }
    }
}

impl<F: Fn(f32, f32) -> f32, G: Fn(i64, i64) -> i64> Binary<F, G> {
    pub(crate) fn new(float: F, int: G) -> Self {
        Self { float, int }
    }
}

impl<F, G> fmt::Debug for Unary<F, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Unary")
    }
}

impl<F, G> fmt::Debug for Binary<F, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Binary")
    }
}

/// Calls `each(chunk of output bytes, input offsets and strides)` for every run of at most [`CHUNK`] elements of a row.
fn chunks<const N: usize>(
    cx: &mut Cx<'_, '_, '_>,
    each: impl Fn([View<'_>; N], [(usize, usize); N], usize, &mut [u8]) + Sync,
) -> Result<(), OpError> {
    let out = &mut cx.outputs[0];
    let size = out
        .dtype
        .size()
        .ok_or(OpError::Unknown("the size of an element"))?;
    let mut geometry = out.geometry;
    let mut views: [View<'_>; N] = std::array::from_fn(|i| cx.inputs[i]);
    let mut all: Vec4<'_> = Vec4::new(&mut geometry);
    views.iter_mut().for_each(|v| all.push(&mut v.geometry));
    all.collapse();
    let (n, _, rows) = geometry.rows();
    let row_bytes = n * size;
    if n == 0 {
        return Ok(());
    }
    let row = |row: usize, out: &mut [u8]| {
        let starts: [(usize, usize); N] = std::array::from_fn(|i| {
            (
                views[i].geometry.row_offset(row),
                views[i].geometry.rows().1,
            )
        });
        for (k, part) in out.chunks_mut(CHUNK * size).enumerate() {
            let at = std::array::from_fn(|i| (starts[i].0 + k * CHUNK * starts[i].1, starts[i].1));
            each(views, at, part.len() / size, part);
        }
    };
    let bytes = out.bytes();
    if n * rows < PARALLEL {
        bytes
            .chunks_mut(row_bytes)
            .enumerate()
            .for_each(|(i, o)| row(i, o));
    } else if rows > 1 {
        let per = rows.div_ceil(4 * cx.pool.threads()).max(1);
        cx.pool
            .for_chunks_mut(bytes, per * row_bytes, &|i, part: &mut [u8]| {
                part.chunks_mut(row_bytes)
                    .enumerate()
                    .for_each(|(k, o)| row(i * per + k, o));
            });
    } else {
        cx.pool
            .for_chunks_mut(bytes, CHUNK * 16 * size, &|i, part: &mut [u8]| {
                for (k, part) in part.chunks_mut(CHUNK * size).enumerate() {
                    let first = (i * 16 + k) * CHUNK;
                    let at = std::array::from_fn(|j| {
                        let stride = views[j].geometry.rows().1;
                        (views[j].geometry.row_offset(0) + first * stride, stride)
                    });
                    each(views, at, part.len() / size, part);
                }
            });
    }
    Ok(())
}

/// Up to four geometries to collapse together.
struct Vec4<'a> {
    all: [Option<&'a mut Geometry>; 4],
    len: usize,
}

impl<'a> Vec4<'a> {
    fn new(first: &'a mut Geometry) -> Self {
        Self {
            all: [Some(first), None, None, None],
            len: 1,
        }
    }

    fn push(&mut self, g: &'a mut Geometry) {
        if self.len < 4 {
            self.all[self.len] = Some(g);
            self.len += 1;
        }
    }

    fn collapse(self) {
        match self.all {
            [Some(a), None, ..] => collapse(&mut [a]),
            [Some(a), Some(b), None, _] => collapse(&mut [a, b]),
            [Some(a), Some(b), Some(c), None] => collapse(&mut [a, b, c]),
            [Some(a), Some(b), Some(c), Some(d)] => collapse(&mut [a, b, c, d]),
            [None, ..] => {}
        }
    }
}

impl<F: Fn(f32) -> f32 + Send + Sync, G: Fn(i64) -> i64 + Send + Sync> Kernel for Unary<F, G> {
    fn run(&self, cx: &mut Cx<'_, '_, '_>) -> Result<(), OpError> {
        let dtype = cx.outputs[0].dtype;
        if !cx.inputs[0].dtype.is_float() {
            return chunks(cx, |[x], [(at, stride)], n, out| {
                for (i, o) in out.chunks_exact_mut(out_size(dtype)).enumerate().take(n) {
                    store_int(dtype, (self.int)(x.int(at + i * stride)), o);
                }
            });
        }
        chunks(cx, |[x], [(at, stride)], n, out| {
            let mut values = [0f32; CHUNK];
            let values = &mut values[..n];
            x.load(at, stride, values);
            values.iter_mut().for_each(|v| *v = (self.float)(*v));
            store(dtype, values, out);
        })
    }
}

fn out_size(dtype: DType) -> usize {
    dtype.size().unwrap_or(1)
}

impl<F: Fn(f32, f32) -> f32 + Send + Sync, G: Fn(i64, i64) -> i64 + Send + Sync> Kernel
    for Binary<F, G>
{
    fn run(&self, cx: &mut Cx<'_, '_, '_>) -> Result<(), OpError> {
        let dtype = cx.outputs[0].dtype;
        if !cx.inputs[0].dtype.is_float() {
            return chunks(cx, |[x, y], [(a, s), (b, t)], n, out| {
                for (i, o) in out.chunks_exact_mut(out_size(dtype)).enumerate().take(n) {
                    store_int(dtype, (self.int)(x.int(a + i * s), y.int(b + i * t)), o);
                }
            });
        }
        chunks(cx, |[x, y], [(a, s), (b, t)], n, out| {
            let (mut left, mut right) = ([0f32; CHUNK], [0f32; CHUNK]);
            let (left, right) = (&mut left[..n], &mut right[..n]);
            x.load(a, s, left);
            y.load(b, t, right);
            left.iter_mut()
                .zip(right)
                .for_each(|(l, r)| *l = (self.float)(*l, *r));
            store(dtype, left, out);
        })
    }
}

/// `silu(gate) * up`, both row-major.
#[derive(Debug)]
pub(crate) struct SiluMul;

impl Kernel for SiluMul {
    fn run(&self, cx: &mut Cx<'_, '_, '_>) -> Result<(), OpError> {
        by_kind!(cx.outputs[0].dtype, T => silu_product::<T>(cx))
    }
}

fn silu_product<T: Elem>(cx: &mut Cx<'_, '_, '_>) -> Result<(), OpError> {
    let [gate, up] = [cx.inputs[0], cx.inputs[1]].map(|v| v.contiguous());
    let (Some(gate), Some(up)) = (gate, up) else {
        return Err(OpError::Unknown("rows without gaps"));
    };
    let (gate, up) = (typed::<T>(gate), typed::<T>(up));
    let out = typed_mut::<T>(cx.outputs[0].bytes());
    cx.pool.for_chunks_mut(out, PARALLEL, &|i, out: &mut [T]| {
        let part = i * PARALLEL..i * PARALLEL + out.len();
        silu_mul(&gate[part.clone()], &up[part], out);
    });
    Ok(())
}

/// Another element kind.
#[derive(Debug)]
pub(crate) struct Cast;

impl Kernel for Cast {
    fn run(&self, cx: &mut Cx<'_, '_, '_>) -> Result<(), OpError> {
        let (from, to) = (cx.inputs[0].dtype, cx.outputs[0].dtype);
        chunks(cx, |[x], [(at, stride)], n, out| {
            if from.is_float() && to.is_float() {
                let mut values = [0f32; CHUNK];
                x.load(at, stride, &mut values[..n]);
                store(to, &values[..n], out);
                return;
            }
            for (i, o) in out.chunks_exact_mut(out_size(to)).enumerate().take(n) {
                if from.is_float() {
                    let mut value = [0f32];
                    x.load(at + i * stride, 1, &mut value);
                    store_int(to, float_to_int(value[0], to), o);
                } else {
                    store_int(to, saturate(from, x.int(at + i * stride), to), o);
                }
            }
        })
    }
}

/// An integer held to the range of the kind.
fn saturate(from: DType, value: i64, to: DType) -> i64 {
    let (low, high) = match (to.class(), to.bits()) {
        (Class::Signed, bits @ 1..=63) => (-(1i64 << (bits - 1)), (1i64 << (bits - 1)) - 1),
        (Class::Unsigned, bits @ 1..=62) => (0, (1i64 << bits) - 1),
        (Class::Unsigned, _) if from != DType::U64 => (0, i64::MAX),
        _ => return value,
    };
    if from == DType::U64 && value < 0 {
        high
    } else {
        value.clamp(low, high)
    }
}

/// Truncated and saturated to the kind, NaN to 0; bools are "not zero".
fn float_to_int(value: f32, to: DType) -> i64 {
    match to {
        DType::Bool => i64::from(value != 0.0),
        DType::I32 => (value as i32).into(),
        DType::U32 => (value as u32).into(),
        DType::I16 => (value as i16).into(),
        DType::U16 => (value as u16).into(),
        DType::I8 => (value as i8).into(),
        DType::U8 => (value as u8).into(),
        DType::U64 => (value as u64).cast_signed(),
        _ => value as i64,
    }
}

/// Inputs: condition, value where it holds, value where it does not.
#[derive(Debug)]
pub(crate) struct Where;

impl Kernel for Where {
    fn run(&self, cx: &mut Cx<'_, '_, '_>) -> Result<(), OpError> {
        let size = out_size(cx.outputs[0].dtype);
        chunks(cx, |[c, x, y], [(k, u), (a, s), (b, t)], n, out| {
            for (i, o) in out.chunks_exact_mut(size).enumerate().take(n) {
                let (from, at) = if c.int(k + i * u) != 0 {
                    (x.data, a + i * s)
                } else {
                    (y.data, b + i * t)
                };
                o.copy_from_slice(&from[at * size..(at + 1) * size]);
            }
        })
    }
}
