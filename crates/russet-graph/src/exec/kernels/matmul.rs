//! Matrix products.

use std::sync::Arc;

use russet_kernels::elem::{Elem, Rounding};
use russet_kernels::elementwise::{Binary, binary_in_place};
use russet_kernels::linear::linear;
use russet_kernels::packed::{Addend, Bits, MAX_PRODUCTS, PackedRows, Product, packed_linear};
use russet_kernels::scratch;
use russet_kernels::sequential::{accumulate, sequential_linear};
use russet_kernels::threads::Pool;

use super::{Cx, Kernel, PARALLEL, Touched, Weights, Work};
use crate::error::OpError;
use crate::exec::view::{Geometry, View, store, typed, typed_mut};

/// `y[m, n] = Σ_k x[m, k] · w[n, k]`, rounded at every step in order, as the reference runtime does. Input: x, row-major, any
/// leading axes, of the output's kind.
#[derive(Debug)]
pub(crate) struct Linear(pub(crate) Arc<Weights>);

impl Kernel for Linear {
    fn run(&self, cx: &mut Cx<'_, '_, '_>) -> Result<(), OpError> {
        by_kind!(cx.outputs[0].dtype, T => self.multiply::<T>(cx))
    }

    fn work(&self, inputs: &[Touched], outputs: &[Touched]) -> Work {
        let (n, k, rows) = (self.0.n(), self.0.k(), rows(inputs));
        Work::of_elements(inputs, outputs)
            .with_operations(2 * rows * (n * k) as u64)
            .with_weights(self.0.label(), self.0.size())
    }
}

/// The same with sums in f32, in order, rounded once: a row is the same whatever rows are computed with it.
#[derive(Debug)]
pub(crate) struct LinearOnce(pub(crate) Arc<Weights>);

impl Kernel for LinearOnce {
    fn run(&self, cx: &mut Cx<'_, '_, '_>) -> Result<(), OpError> {
        let (x, out) = (cx.inputs[0], &mut cx.outputs[0]);
        let (n, k, m) = (self.0.n(), self.0.k(), x.geometry.rows().2);
        let buffer = &mut *scratch::floats(m * (n + k));
        let (wide, sums) = buffer.split_at_mut(m * k);
        x.load(x.geometry.offset, 1, wide);
        let done = self
            .0
            .with(|w| sequential_linear(cx.pool, wide, w, sums, m));
        done.ok_or(OpError::Unknown("the layout of the weights"))?;
        store(out.dtype, sums, out.bytes());
        Ok(())
    }

    fn work(&self, inputs: &[Touched], outputs: &[Touched]) -> Work {
        Linear(self.0.clone()).work(inputs, outputs)
    }
}

/// Rows of the first operand.
fn rows(inputs: &[Touched]) -> u64 {
    inputs.first().map_or(0, |x| x.geometry.rows().2 as u64)
}

impl Linear {
    fn multiply<T: Elem>(&self, cx: &mut Cx<'_, '_, '_>) -> Result<(), OpError> {
        let (x, m) = (cx.inputs[0].contiguous(), cx.inputs[0].geometry.rows().2);
        let x = typed::<T>(x.ok_or(OpError::Unknown("rows without gaps"))?);
        let out = typed_mut::<T>(cx.outputs[0].bytes());
        let done = self.0.with(|w| sequential_linear(cx.pool, x, w, out, m));
        done.ok_or(OpError::Unknown("the layout of the weights"))
    }
}

/// The weights of a product.
#[derive(Clone, Debug)]
pub(crate) enum Matrix {
    /// Packed for integer products.
    Packed(Arc<PackedRows>),
    /// As they are in the file.
    Plain(Arc<Weights>),
}

impl Matrix {
    /// Whether one step can do both products.
    pub(crate) fn goes_with(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Packed(a), Self::Packed(b)) => a.shares_activations(b),
            (Self::Plain(a), Self::Plain(b)) => a.k() == b.k(),
            _ => false,
        }
    }

    /// Rows, columns, kind and shape in words, and bytes.
    fn facts(&self) -> (usize, usize, String, u64) {
        match self {
            Self::Packed(w) => (w.n(), w.k(), label(w), w.size() as u64),
            Self::Plain(w) => (w.n(), w.k(), w.label(), w.size()),
        }
    }
}

/// One product of a [`Products`] step.
#[derive(Clone, Debug)]
pub(crate) struct Factor {
    pub(crate) rows: Matrix,
    /// The input that is added to the result.
    pub(crate) add: Option<usize>,
}

/// Products of the same activations, one output each, in f32 or exact until the result. Inputs: x, row-major, then what is added.
#[derive(Debug)]
pub(crate) struct Products(pub(crate) Vec<Factor>);

impl Kernel for Products {
    fn run(&self, cx: &mut Cx<'_, '_, '_>) -> Result<(), OpError> {
        by_kind!(cx.outputs[0].dtype, T => self.multiply::<T>(cx))
    }

    fn work(&self, inputs: &[Touched], outputs: &[Touched]) -> Work {
        let mut work = Work::of_elements(inputs, outputs).with_operations(0);
        for Factor { rows: w, .. } in &self.0 {
            let (n, k, label, size) = w.facts();
            work.operations += 2 * rows(inputs) * (n * k) as u64;
            work = work.with_weights(label, size);
        }
        work
    }
}

impl Products {
    fn multiply<T: Elem>(&self, cx: &mut Cx<'_, '_, '_>) -> Result<(), OpError> {
        let gaps = OpError::Unknown("rows without gaps");
        let x = cx.inputs[0].contiguous().map(typed::<T>);
        let (x, m) = (x.ok_or(gaps)?, cx.inputs[0].geometry.rows().2);
        let mut products: [Option<Product<'_, T>>; MAX_PRODUCTS] = [const { None }; MAX_PRODUCTS];
        let places = products.iter_mut().zip(&self.0).zip(cx.outputs.iter_mut());
        for ((place, factor), out) in places {
            let add = factor.add.map(|i| addend(&cx.inputs[i])).transpose()?;
            let out = typed_mut(out.bytes());
            match &factor.rows {
                Matrix::Packed(weights) => *place = Some(Product { weights, out, add }),
                Matrix::Plain(weights) => plain(cx.pool, (x, m), weights, out, add)?,
            }
        }
        packed_linear(cx.pool, x, m, &mut products);
        Ok(())
    }
}

/// A product with weights as they are, and what is added to it.
fn plain<T: Elem>(
    pool: &Pool,
    (x, m): (&[T], usize),
    weights: &Weights,
    out: &mut [T],
    add: Option<Addend<'_, T>>,
) -> Result<(), OpError> {
    let done = weights.with(|w| linear(pool, x, w, out, m));
    done.ok_or(OpError::Unknown("the layout of the weights"))?;
    let n = weights.n().max(1);
    if let Some(add) = add {
        let per = PARALLEL.div_ceil(n);
        pool.for_chunks_mut(out, per * n, &|i, rows| {
            for (k, row) in rows.chunks_exact_mut(n).enumerate() {
                binary_in_place(Binary::Add, row, add.row(i * per + k, n));
            }
        });
    }
    Ok(())
}

/// Kind and shape of packed weights.
pub(super) fn label(w: &PackedRows) -> String {
    let bits = match w.bits() {
        Bits::Four => 4,
        Bits::Eight => 8,
    };
    format!("packed {bits}-bit [{}, {}]", w.n(), w.k())
}

/// What is added to a product: as large as that, or one row, repeated.
fn addend<'a, T: Elem>(view: &View<'a>) -> Result<Addend<'a, T>, OpError> {
    let g = &view.geometry;
    let (n, stride, rows) = g.rows();
    let axes = g.shape().iter().zip(g.strides());
    let repeats = |(&extent, &stride): (&usize, &usize)| extent == 1 || stride == 0;
    if rows > 1 && (stride == 1 || n == 1) && axes.take(g.rank - 1).all(repeats) {
        return Ok(Addend::Row(&typed::<T>(view.data)[g.offset..g.offset + n]));
    }
    let bytes = view.contiguous();
    let rows = bytes.ok_or(OpError::Unknown("rows without gaps"))?;
    Ok(Addend::Rows(typed(rows)))
}

/// A product of two views `[…, m, k] · […, k, n]` whose leading axes are those of the output.
#[derive(Debug)]
pub(crate) struct Matmul {
    /// What every step of a sum is rounded to: half precision where the reference runtime is followed.
    pub(crate) rounding: Rounding,
}

impl Kernel for Matmul {
    fn run(&self, cx: &mut Cx<'_, '_, '_>) -> Result<(), OpError> {
        let (a, b) = (cx.inputs[0], cx.inputs[1]);
        let out = &mut cx.outputs[0];
        let rank = out.geometry.rank;
        let (m, n) = (out.geometry.shape[rank - 2], out.geometry.shape[rank - 1]);
        let k = a.geometry.shape[rank - 1];
        let batch = Geometry {
            rank: rank - 2,
            ..out.geometry
        };
        let (dtype, size) = (out.dtype, out.dtype.size().unwrap_or(1));
        let heads = batch.len();
        let offset = |v: &View<'_>, i: usize| {
            Geometry {
                rank: rank - 2,
                ..v.geometry
            }
            .element_offset(i)
        };
        let bytes = out.bytes();
        let parallel = heads * m * n * k >= 4 * PARALLEL;
        let work = |i: usize, o: &mut [u8]| {
            product(
                &a,
                offset(&a, i),
                &b,
                offset(&b, i),
                (m, n, k),
                self.rounding,
                |row, values| {
                    store(dtype, values, &mut o[row * n * size..(row + 1) * n * size]);
                },
            );
        };
        if parallel && heads > 1 {
            cx.pool.for_chunks_mut(bytes, (m * n * size).max(1), &work);
        } else {
            bytes
                .chunks_mut((m * n * size).max(1))
                .enumerate()
                .for_each(|(i, o)| work(i, o));
        }
        Ok(())
    }

    fn work(&self, inputs: &[Touched], outputs: &[Touched]) -> Work {
        let work = Work::of_elements(inputs, outputs);
        let k = inputs.first().map_or(0, |a| a.geometry.rows().0 as u64);
        let made: u64 = outputs.iter().map(Touched::elements).sum();
        work.with_operations(2 * k * made)
    }
}

/// One matrix product; `put` gets each finished row.
pub(super) fn product(
    a: &View<'_>,
    at: usize,
    b: &View<'_>,
    bt: usize,
    (m, n, k): (usize, usize, usize),
    rounding: Rounding,
    mut put: impl FnMut(usize, &[f32]),
) {
    let steps = |v: &View<'_>| {
        let last = v.geometry.rank - 1;
        (v.geometry.strides[last - 1], v.geometry.strides[last])
    };
    let ((sa, ta), (sb, tb)) = (steps(a), steps(b));
    let buffer = &mut *scratch::floats(k * n + k + n);
    let (right, rest) = buffer.split_at_mut(k * n);
    let (left, row) = rest.split_at_mut(k);
    for i in 0..k {
        b.load(bt + i * sb, tb, &mut right[i * n..(i + 1) * n]);
    }
    for i in 0..m {
        a.load(at + i * sa, ta, left);
        row.fill(0.0);
        accumulate(left, right, n, rounding, row);
        put(i, row);
    }
}
