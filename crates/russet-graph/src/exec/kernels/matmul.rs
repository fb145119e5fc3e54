//! Matrix products.

use std::sync::Arc;

use russet_kernels::elem::{Elem, Rounding};
use russet_kernels::linear::linear;
use russet_kernels::packed::{Bits, PackedRows, Product, packed_linear};
use russet_kernels::scratch;
use russet_kernels::sequential::{accumulate, sequential_linear};

use super::{Cx, Kernel, Touched, Weights, Work};
use crate::error::OpError;
use crate::exec::view::{Geometry, View, store, typed, typed_mut};

/// `y[m, n] = Σ_k x[m, k] · w[n, k]`. Input: x, row-major, any leading axes, of the output's kind.
#[derive(Debug)]
pub(crate) struct Linear {
    pub(crate) weights: Arc<Weights>,
    /// Whether sums are rounded at every step in order, as the reference runtime does; else they are f32, rounded once.
    pub(crate) exact: bool,
}

impl Kernel for Linear {
    fn run(&self, cx: &mut Cx<'_, '_, '_>) -> Result<(), OpError> {
        by_kind!(cx.outputs[0].dtype, T => self.multiply::<T>(cx))
    }

    fn work(&self, inputs: &[Touched], outputs: &[Touched]) -> Work {
        let (n, k, rows) = (self.weights.n(), self.weights.k(), rows(inputs));
        Work::of_elements(inputs, outputs)
            .with_operations(2 * rows * (n * k) as u64)
            .with_weights(self.weights.label(), self.weights.size())
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
        let done = self.weights.with(|w| {
            if self.exact {
                sequential_linear(cx.pool, x, w, out, m);
            } else {
                linear(cx.pool, x, w, out, m);
            }
        });
        done.ok_or(OpError::Unknown("the layout of the weights"))
    }
}

/// One product of a [`PackedLinear`] step.
#[derive(Clone, Debug)]
pub(crate) struct Packed {
    pub(crate) rows: Arc<PackedRows>,
    /// The input that is added to the result.
    pub(crate) add: Option<usize>,
}

/// Products of the same activations with packed weights, one output each. Inputs: x, row-major, then what is added.
#[derive(Debug)]
pub(crate) struct PackedLinear(pub(crate) Vec<Packed>);

impl Kernel for PackedLinear {
    fn run(&self, cx: &mut Cx<'_, '_, '_>) -> Result<(), OpError> {
        by_kind!(cx.outputs[0].dtype, T => self.multiply::<T>(cx))
    }

    fn work(&self, inputs: &[Touched], outputs: &[Touched]) -> Work {
        let mut work = Work::of_elements(inputs, outputs).with_operations(0);
        for Packed { rows: w, .. } in &self.0 {
            work.operations += 2 * rows(inputs) * (w.n() * w.k()) as u64;
            let bits = match w.bits() {
                Bits::Four => 4,
                Bits::Eight => 8,
            };
            let label = format!("packed {bits}-bit [{}, {}]", w.n(), w.k());
            work = work.with_weights(label, w.size() as u64);
        }
        work
    }
}

impl PackedLinear {
    fn multiply<T: Elem>(&self, cx: &mut Cx<'_, '_, '_>) -> Result<(), OpError> {
        let whole = |i: usize| {
            let bytes = cx.inputs[i].contiguous();
            bytes
                .map(typed::<T>)
                .ok_or(OpError::Unknown("rows without gaps"))
        };
        let (x, m) = (whole(0)?, cx.inputs[0].geometry.rows().2);
        let mut products: [Option<Product<'_, T>>; 4] = [const { None }; 4];
        let places = products.iter_mut().zip(&self.0).zip(cx.outputs.iter_mut());
        for ((place, packed), out) in places {
            *place = Some(Product {
                weights: &packed.rows,
                out: typed_mut(out.bytes()),
                add: packed.add.map(whole).transpose()?,
            });
        }
        packed_linear(cx.pool, x, m, &mut products);
        Ok(())
    }
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
        let parallel = heads * m * n * k >= 4 * super::PARALLEL;
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
