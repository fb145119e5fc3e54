//! Products of matrices picked from stacks: read where they lie, never copied out.

use std::sync::Arc;

use russet_kernels::elem::{Elem, Rounding};
use russet_kernels::linear::linear;
use russet_kernels::packed::{GROUP, MAX_PRODUCTS, PackedRows, Product, packed_linear};
use russet_kernels::scratch;
use russet_kernels::sequential::sequential_linear;
use russet_kernels::threads::Pool;

use super::gather::position;
use super::matmul::{label, product};
use super::{Cx, Kernel, PARALLEL, Touched, Weights, Work};
use crate::error::OpError;
use crate::exec::view::{Geometry, View, store, typed, typed_mut};
use crate::ops::gather_mm::GatherMm;

/// `lhs[…, m, k] · rhs[…, k, n]` with the leading axes of the output. Inputs: both operands, then the indices that the operation
/// has. An axis that is picked from is a leading one.
#[derive(Debug)]
pub(crate) struct GatherMatmul {
    pub(crate) op: GatherMm,
    /// What every step of a sum is rounded to.
    pub(crate) rounding: Rounding,
}

/// An operand and how its matrices are picked.
struct Stack<'a> {
    x: Geometry,
    ids: Option<View<'a>>,
    /// The axis that indices pick from.
    axis: usize,
}

impl Stack<'_> {
    /// Whether all indices are in range.
    fn check(&self) -> Result<(), OpError> {
        let n = self.x.shape[self.axis];
        let Some(ids) = &self.ids else { return Ok(()) };
        (0..ids.len()).try_for_each(|i| position(ids.int_at(i), n).map(|_| ()))
    }

    /// The extent behind leading axis `axis` of the gathered operand, and its stride: in the operand, or in the indices.
    fn behind(&self, axis: usize) -> (usize, Step) {
        let of = |g: &Geometry, axis: usize| (g.shape[axis], g.strides[axis]);
        match &self.ids {
            Some(ids) if (self.axis..self.axis + ids.geometry.rank).contains(&axis) => {
                let (extent, stride) = of(&ids.geometry, axis - self.axis);
                (extent, Step::Indices(stride))
            }
            Some(ids) if axis >= self.axis => {
                let (extent, stride) = of(&self.x, axis + 1 - ids.geometry.rank);
                (extent, Step::Operand(stride))
            }
            _ => {
                let (extent, stride) = of(&self.x, axis);
                (extent, Step::Operand(stride))
            }
        }
    }

    /// The offset of the matrix at `batch`, counted in `lead`.
    fn offset(&self, mut batch: usize, lead: &[usize]) -> usize {
        let ids_rank = self.ids.as_ref().map_or(1, |ids| ids.geometry.rank);
        let own = self.x.rank + ids_rank - 3;
        let mut at = self.x.offset;
        let mut pick = self.ids.as_ref().map_or(0, |ids| ids.geometry.offset);
        for i in (0..lead.len()).rev() {
            let coordinate = batch % lead[i];
            batch /= lead[i];
            let Some(axis) = (i + own).checked_sub(lead.len()) else {
                continue;
            };
            match self.behind(axis) {
                (1, _) => {}
                (_, Step::Operand(stride)) => at += coordinate * stride,
                (_, Step::Indices(stride)) => pick += coordinate * stride,
            }
        }
        let picked = self.ids.as_ref().map(|ids| ids.int(pick));
        // `check` has seen all indices.
        let picked = picked.and_then(|i| position(i, self.x.shape[self.axis]).ok());
        at + picked.unwrap_or(0) * self.x.strides[self.axis]
    }
}

/// A stride and what it is in.
enum Step {
    Operand(usize),
    Indices(usize),
}

/// Leading axes and the last two extents of a product.
struct Extents<'a> {
    lead: &'a [usize],
    m: usize,
    n: usize,
    k: usize,
}

impl<'a> Extents<'a> {
    fn new(out: &'a Geometry, left: &Geometry, right: &Geometry) -> Result<Self, OpError> {
        let (lead, last) = out.shape().split_at(out.rank.saturating_sub(2));
        let k = left.rows().0;
        let (&[m, n], true) = (last, right.shape().iter().rev().nth(1) == Some(&k)) else {
            let rule = "rows of the left are as long as columns of the right";
            return Err(OpError::shapes(rule, &[left.shape(), right.shape()]));
        };
        Ok(Self { lead, m, n, k })
    }

    /// How many products there are.
    fn count(&self) -> usize {
        self.lead.iter().product()
    }
}

impl Kernel for GatherMatmul {
    fn run(&self, cx: &mut Cx<'_, '_, '_>) -> Result<(), OpError> {
        let views = [cx.inputs[0], cx.inputs[1]];
        let stacks = [0, 1].map(|i| Stack {
            x: views[i].geometry,
            ids: self.op.indices()[i].map(|at| cx.inputs[at]),
            axis: self.op.batch_axes,
        });
        stacks.iter().try_for_each(Stack::check)?;
        let out = &mut cx.outputs[0];
        let geometry = out.geometry;
        let e = Extents::new(&geometry, &views[0].geometry, &views[1].geometry)?;
        let (dtype, size) = (out.dtype, out.dtype.size().unwrap_or(1));
        let (row, each) = (e.n * size, (e.m * e.n * size).max(1));
        let work = |i: usize, o: &mut [u8]| {
            let [at, bt] = [0, 1].map(|s| stacks[s].offset(i, e.lead));
            let put = |r: usize, values: &[f32]| {
                store(dtype, values, &mut o[r * row..(r + 1) * row]);
            };
            let sizes = (e.m, e.n, e.k);
            product(&views[0], at, &views[1], bt, sizes, self.rounding, put);
        };
        if e.count() > 1 && e.count() * e.m * e.n * e.k >= 4 * PARALLEL {
            cx.pool.for_chunks_mut(out.bytes(), each, &work);
        } else {
            let parts = out.bytes().chunks_mut(each).enumerate();
            parts.for_each(|(i, o)| work(i, o));
        }
        Ok(())
    }

    /// Of a stack no more is read than one matrix a product.
    fn work(&self, inputs: &[Touched], outputs: &[Touched]) -> Work {
        let work = Work::of_elements(inputs, outputs);
        let [left, right, ..] = inputs else {
            return work;
        };
        let (k, made) = (left.geometry.rows().0 as u64, elements(outputs));
        let (bits, products) = (right.dtype.bits() as u64, products(outputs));
        let picked = products * k * right.geometry.rows().0 as u64 * bits / 8;
        let unread = right.bytes().saturating_sub(picked);
        Work {
            bytes: work.bytes.saturating_sub(unread),
            ..work.with_operations(2 * k * made)
        }
    }
}

fn elements(outputs: &[Touched]) -> u64 {
    outputs.iter().map(Touched::elements).sum()
}

/// How many products the first result holds.
fn products(outputs: &[Touched]) -> u64 {
    let shape = outputs.first().map_or(&[][..], |o| o.geometry.shape());
    let lead = shape.len().saturating_sub(2);
    shape[..lead].iter().product::<usize>() as u64
}

/// Up to this many products are done one by one.
const FEW: usize = 16;

/// `lhs[…, m, k] · rhs[…, k, n]` like [`GatherMatmul`], where the right operand is compressed. Inputs: the left operand without
/// gaps, then the indices that the operation has.
#[derive(Clone, Debug)]
pub(crate) struct GatherLinear {
    pub(crate) op: GatherMm,
    /// The matrices `[n, k]`, one under the other.
    pub(crate) weights: Arc<Weights>,
    /// Where in them the elements of the right operand lie.
    pub(crate) right: Geometry,
    /// The same matrices for integer products.
    pub(crate) packed: Option<Arc<PackedRows>>,
    /// Whether sums are rounded at every step in order; else they are f32, rounded once.
    pub(crate) exact: bool,
}

impl Kernel for GatherLinear {
    fn run(&self, cx: &mut Cx<'_, '_, '_>) -> Result<(), OpError> {
        by_kind!(cx.outputs[0].dtype, T => self.multiply::<T>(cx))
    }

    /// Of the weights no more is read than one matrix a product.
    fn work(&self, inputs: &[Touched], outputs: &[Touched]) -> Work {
        let (k, rows) = (self.weights.k() as u64, self.weights.n().max(1) as u64);
        let picked = (products(outputs) * self.right.rows().0 as u64).min(rows);
        let (label, size) = match &self.packed {
            Some(packed) => (label(packed), packed.size() as u64),
            None => (self.weights.label(), self.weights.size()),
        };
        Work::of_elements(inputs, outputs)
            .with_operations(2 * k * elements(outputs))
            .with_weights(label, size * picked / rows)
    }
}

impl GatherLinear {
    fn multiply<T: Elem>(&self, cx: &mut Cx<'_, '_, '_>) -> Result<(), OpError> {
        let [left, right] = self.op.indices();
        let stack = |x: Geometry, ids: Option<usize>| Stack {
            x,
            ids: ids.map(|at| cx.inputs[at - 1]),
            axis: self.op.batch_axes,
        };
        let x = cx.inputs[0].contiguous();
        let x = typed::<T>(x.ok_or(OpError::Unknown("rows without gaps"))?);
        let lhs = Geometry {
            offset: 0,
            ..cx.inputs[0].geometry
        };
        let (left, right) = (stack(lhs, left), stack(self.right, right));
        left.check()?;
        right.check()?;
        let out = &mut cx.outputs[0];
        let geometry = out.geometry;
        let e = Extents::new(&geometry, &lhs, &self.right)?;
        let out = typed_mut::<T>(out.bytes());
        let (take, give) = (e.m * e.k, e.m * e.n);
        if e.count() <= FEW {
            let places = |i: usize| (left.offset(i, e.lead), right.offset(i, e.lead));
            return self.few(cx.pool, x, &e, places, out);
        }
        // Products with one matrix become one.
        let matrix = |i: &u32| right.offset(*i as usize, e.lead);
        let order = &mut *scratch::of::<u32>(e.count());
        order.iter_mut().zip(0..).for_each(|(place, i)| *place = i);
        order.sort_unstable_by_key(matrix);
        for group in order.chunk_by(|a, b| matrix(a) == matrix(b)) {
            let rows = &mut *scratch::of::<T>(group.len() * take);
            for (i, row) in group.iter().zip(rows.chunks_exact_mut(take.max(1))) {
                let from = left.offset(*i as usize, e.lead);
                row.copy_from_slice(&x[from..from + take]);
            }
            let sums = &mut *scratch::of::<T>(group.len() * give);
            self.rows(cx.pool, matrix(&group[0]), rows, sums)?;
            for (i, sums) in group.iter().zip(sums.chunks_exact(give.max(1))) {
                out[*i as usize * give..][..give].copy_from_slice(sums);
            }
        }
        Ok(())
    }

    /// The products one by one, or, where they share their rows, some together. `places` says where rows and matrix are.
    fn few<T: Elem>(
        &self,
        pool: &Pool,
        x: &[T],
        e: &Extents<'_>,
        places: impl Fn(usize) -> (usize, usize),
        out: &mut [T],
    ) -> Result<(), OpError> {
        let (take, give) = (e.m * e.k, e.m * e.n);
        let mut rest = out;
        let mut first = 0;
        while first < e.count() {
            let from = places(first).0;
            let alike = |i: &usize| places(*i).0 == from && self.packed.is_some();
            let together = (first + 1..e.count())
                .take(MAX_PRODUCTS - 1)
                .take_while(alike);
            let end = first + 1 + together.count();
            let (outs, later) = std::mem::take(&mut rest).split_at_mut((end - first) * give);
            let x = &x[from..from + take];
            match &self.packed {
                Some(packed) => {
                    let parts: [Option<PackedRows>; MAX_PRODUCTS] = std::array::from_fn(|i| {
                        let at = Some(first + i).filter(|at| *at < end)?;
                        Some(packed.part(places(at).1 / e.k, e.n))
                    });
                    let outs = outs.chunks_exact_mut(give.max(1));
                    let mut products = [const { None }; MAX_PRODUCTS];
                    for ((place, weights), out) in products.iter_mut().zip(&parts).zip(outs) {
                        *place = weights.as_ref().map(|weights| Product {
                            weights,
                            out,
                            add: None,
                        });
                    }
                    packed_linear(pool, x, e.m, &mut products);
                }
                None => self.rows(pool, places(first).1, x, outs)?,
            }
            (rest, first) = (later, end);
        }
        Ok(())
    }

    /// Whether matrices begin where packed rows can be taken apart.
    pub(crate) fn packable(&self) -> bool {
        let (group, right) = (GROUP * self.weights.k(), &self.right);
        let lead = right.rank.saturating_sub(2);
        let whole = |at: &usize| group > 0 && at.is_multiple_of(group);
        whole(&right.offset) && right.strides[..lead].iter().all(whole)
    }

    /// Rows times the matrix at element `matrix` of the weights.
    fn rows<T: Elem>(
        &self,
        pool: &Pool,
        matrix: usize,
        x: &[T],
        out: &mut [T],
    ) -> Result<(), OpError> {
        let k = self.weights.k().max(1);
        let n = self.right.rows().0;
        let m = x.len() / k;
        if let Some(packed) = &self.packed {
            let product = Product {
                weights: &packed.part(matrix / k, n),
                out,
                add: None,
            };
            packed_linear(pool, x, m, &mut [Some(product)]);
            return Ok(());
        }
        let done = self.weights.with_rows(matrix / k, n, |w| {
            if self.exact {
                sequential_linear(pool, x, w, out, m);
            } else {
                linear(pool, x, w, out, m);
            }
        });
        done.ok_or(OpError::Unknown("the layout of the weights"))
    }
}
