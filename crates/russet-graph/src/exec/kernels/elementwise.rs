//! Elementwise steps: inputs are views of the output's shape (broadcasts have stride 0). Floats are computed in f32 and rounded
//! once to the output's kind; integers are computed in i64 and wrapped.

use std::fmt;

use russet_kernels::elem::Elem;
use russet_kernels::elementwise::{self, Activation, gated};

use super::copy::collapse;
use super::{Cx, Kernel, PARALLEL, Touched, Work};
use crate::error::OpError;
use crate::exec::view::{View, store, store_int, typed, typed_mut};
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

/// The most operands of a step.
pub(crate) const MAX_OPERANDS: usize = 12;

/// Where a run of elements of every operand begins, and its stride.
struct Runs<'a, 'b> {
    views: &'b [View<'a>],
    at: [(usize, usize); MAX_OPERANDS],
}

impl Runs<'_, '_> {
    /// Elements of operand `i` as f32.
    fn load(&self, i: usize, out: &mut [f32]) {
        let (at, stride) = self.at[i];
        self.views[i].load(at, stride, out);
    }

    /// Integer `k` of operand `i`.
    fn int(&self, i: usize, k: usize) -> i64 {
        self.views[i].int(self.place(i, k))
    }

    fn place(&self, i: usize, k: usize) -> usize {
        let (at, stride) = self.at[i];
        at + k * stride
    }
}

/// Calls `each(where operands begin, number of elements, output bytes)` for every run of at most [`CHUNK`] elements of a row;
/// one element costs about as much as `cost` operations.
fn chunks(
    cx: &mut Cx<'_, '_, '_>,
    cost: usize,
    each: impl Fn(&Runs<'_, '_>, usize, &mut [u8]) + Sync,
) -> Result<(), OpError> {
    let (views, out) = (cx.inputs, &mut cx.outputs[0]);
    let size = out.dtype.size();
    let size = size.ok_or(OpError::Unknown("the size of an element"))?;
    if views.len() > MAX_OPERANDS {
        return Err(OpError::Unknown("so many operands"));
    }
    let mut all = [out.geometry; MAX_OPERANDS + 1];
    for (place, view) in all[1..].iter_mut().zip(views) {
        *place = view.geometry;
    }
    let all = &mut all[..=views.len()];
    collapse(all);
    let (n, _, rows) = all[0].rows();
    if n == 0 {
        return Ok(());
    }
    // Elements `first..` of a row.
    let part = |row: usize, first: usize, out: &mut [u8]| {
        let mut at = [(0, 0); MAX_OPERANDS];
        for (place, g) in at.iter_mut().zip(&all[1..]) {
            let stride = g.rows().1;
            *place = (g.row_offset(row) + first * stride, stride);
        }
        for part in out.chunks_mut(CHUNK * size) {
            let runs = Runs { views, at };
            each(&runs, part.len() / size, part);
            at.iter_mut()
                .for_each(|(at, stride)| *at += CHUNK * *stride);
        }
    };
    let (bytes, row_bytes) = (out.bytes(), n * size);
    if n * rows * cost < PARALLEL {
        let all = bytes.chunks_mut(row_bytes).enumerate();
        all.for_each(|(i, o)| part(i, 0, o));
    } else if rows > 1 {
        let per = rows.div_ceil(4 * cx.pool.threads()).max(1);
        cx.pool.for_chunks_mut(bytes, per * row_bytes, &|i, rows| {
            let rows = rows.chunks_mut(row_bytes).enumerate();
            rows.for_each(|(k, o)| part(i * per + k, 0, o));
        });
    } else {
        let per = CHUNK * 16;
        let pieces = &|i, o: &mut [u8]| part(0, i * per, o);
        cx.pool.for_chunks_mut(bytes, per * size, pieces);
    }
    Ok(())
}

impl<F: Fn(f32) -> f32 + Send + Sync, G: Fn(i64) -> i64 + Send + Sync> Kernel for Unary<F, G> {
    fn run(&self, cx: &mut Cx<'_, '_, '_>) -> Result<(), OpError> {
        let dtype = cx.outputs[0].dtype;
        if !cx.inputs[0].dtype.is_float() {
            return chunks(cx, 1, |x, n, out| {
                for (i, o) in out.chunks_exact_mut(out_size(dtype)).enumerate().take(n) {
                    store_int(dtype, (self.int)(x.int(0, i)), o);
                }
            });
        }
        chunks(cx, 1, |x, n, out| {
            let mut values = [0f32; CHUNK];
            let values = &mut values[..n];
            x.load(0, values);
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
            return chunks(cx, 1, |x, n, out| {
                for (i, o) in out.chunks_exact_mut(out_size(dtype)).enumerate().take(n) {
                    store_int(dtype, (self.int)(x.int(0, i), x.int(1, i)), o);
                }
            });
        }
        chunks(cx, 1, |x, n, out| {
            let (mut left, mut right) = ([0f32; CHUNK], [0f32; CHUNK]);
            let (left, right) = (&mut left[..n], &mut right[..n]);
            x.load(0, left);
            x.load(1, right);
            left.iter_mut()
                .zip(right)
                .for_each(|(l, r)| *l = (self.float)(*l, *r));
            store(dtype, left, out);
        })
    }
}

/// `activation(gate) * up`, both row-major.
#[derive(Debug)]
pub(crate) struct Gated(pub(crate) Activation);

impl Kernel for Gated {
    fn run(&self, cx: &mut Cx<'_, '_, '_>) -> Result<(), OpError> {
        by_kind!(cx.outputs[0].dtype, T => gated_product::<T>(self.0, cx))
    }
}

fn gated_product<T: Elem>(activation: Activation, cx: &mut Cx<'_, '_, '_>) -> Result<(), OpError> {
    let [gate, up] = [cx.inputs[0], cx.inputs[1]].map(|v| v.contiguous());
    let (Some(gate), Some(up)) = (gate, up) else {
        return Err(OpError::Unknown("rows without gaps"));
    };
    let (gate, up) = (typed::<T>(gate), typed::<T>(up));
    let out = typed_mut::<T>(cx.outputs[0].bytes());
    cx.pool.for_chunks_mut(out, PARALLEL, &|i, out: &mut [T]| {
        let part = i * PARALLEL..i * PARALLEL + out.len();
        gated(activation, &gate[part.clone()], &up[part], out);
    });
    Ok(())
}

/// One thing that a [`Chain`] does with the values on top of its stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Instruction {
    /// Pushes an operand.
    Load(usize),
    Unary(elementwise::Unary),
    Binary(elementwise::Binary),
    /// The second from the top where the third is not zero, else the top.
    Select,
}

impl Instruction {
    /// How many values it takes.
    pub(crate) fn takes(self) -> usize {
        match self {
            Self::Load(_) => 0,
            Self::Unary(_) => 1,
            Self::Binary(_) => 2,
            Self::Select => 3,
        }
    }
}

/// The most values on the stack of a [`Chain`].
pub(crate) const MAX_DEPTH: usize = 5;

/// Several operations on floats at once, in postfix order: computed in f32, rounded once. The program fits: it leaves one value
/// and never has more than [`MAX_DEPTH`].
#[derive(Debug)]
pub(crate) struct Chain(pub(crate) Vec<Instruction>);

impl Kernel for Chain {
    fn run(&self, cx: &mut Cx<'_, '_, '_>) -> Result<(), OpError> {
        let dtype = cx.outputs[0].dtype;
        chunks(cx, self.0.len(), |x, n, out| {
            let mut stack = [[0f32; CHUNK]; MAX_DEPTH];
            let mut depth = 0;
            for instruction in &self.0 {
                depth = depth + 1 - instruction.takes();
                compute(*instruction, x, n, &mut stack[depth - 1..]);
            }
            store(dtype, &stack[0][..n], out);
        })
    }

    fn work(&self, inputs: &[Touched], outputs: &[Touched]) -> Work {
        let operations = self.0.iter().filter(|i| i.takes() > 0).count() as u64;
        let made: u64 = outputs.iter().map(Touched::elements).sum();
        Work::of_elements(inputs, outputs).with_operations(operations * made)
    }
}

/// One instruction whose operands, then result, begin at the front of `stack`.
fn compute(instruction: Instruction, x: &Runs<'_, '_>, n: usize, stack: &mut [[f32; CHUNK]]) {
    let Some((a, rest)) = stack.split_first_mut() else {
        return;
    };
    let a = &mut a[..n];
    match (instruction, rest) {
        (Instruction::Load(i), _) => x.load(i, a),
        (Instruction::Unary(op), _) => elementwise::unary_in_place(op, a),
        (Instruction::Binary(op), [b, ..]) => elementwise::binary_in_place(op, a, &b[..n]),
        (Instruction::Select, [b, c, ..]) => {
            for (a, (b, c)) in a.iter_mut().zip(b.iter().zip(&*c)) {
                *a = if *a != 0.0 { *b } else { *c };
            }
        }
        _ => {}
    }
}

/// Another element kind.
#[derive(Debug)]
pub(crate) struct Cast;

impl Kernel for Cast {
    fn run(&self, cx: &mut Cx<'_, '_, '_>) -> Result<(), OpError> {
        let (from, to) = (cx.inputs[0].dtype, cx.outputs[0].dtype);
        chunks(cx, 1, |x, n, out| {
            if from.is_float() && to.is_float() {
                let mut values = [0f32; CHUNK];
                x.load(0, &mut values[..n]);
                store(to, &values[..n], out);
                return;
            }
            for (i, o) in out.chunks_exact_mut(out_size(to)).enumerate().take(n) {
                if from.is_float() {
                    let mut value = [0f32];
                    x.views[0].load(x.place(0, i), 1, &mut value);
                    store_int(to, float_to_int(value[0], to), o);
                } else {
                    store_int(to, saturate(from, x.int(0, i), to), o);
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
        chunks(cx, 1, |x, n, out| {
            for (i, o) in out.chunks_exact_mut(size).enumerate().take(n) {
                let chosen = if x.int(0, i) != 0 { 1 } else { 2 };
                let at = x.place(chosen, i) * size;
                o.copy_from_slice(&x.views[chosen].data[at..at + size]);
            }
        })
    }
}
