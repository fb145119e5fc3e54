//! Products of matrices picked from stacks: read where they lie, never copied out.

use russet_kernels::elem::Rounding;

use super::gather::position;
use super::matmul::product;
use super::{Cx, Kernel, PARALLEL};
use crate::error::OpError;
use crate::exec::view::{Geometry, View, store};
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
    view: View<'a>,
    ids: Option<View<'a>>,
    /// The axis that indices pick from.
    axis: usize,
}

impl Stack<'_> {
    /// Whether all indices are in range.
    fn check(&self) -> Result<(), OpError> {
        let n = self.view.geometry.shape[self.axis];
        let Some(ids) = &self.ids else { return Ok(()) };
        (0..ids.len()).try_for_each(|i| position(ids.int_at(i), n).map(|_| ()))
    }

    /// The geometry and the axis behind leading axis `axis` of the gathered operand.
    fn behind(&self, axis: usize) -> (&Geometry, usize) {
        let x = &self.view.geometry;
        match &self.ids {
            Some(ids) if (self.axis..self.axis + ids.geometry.rank).contains(&axis) => {
                (&ids.geometry, axis - self.axis)
            }
            Some(ids) if axis >= self.axis => (x, axis + 1 - ids.geometry.rank),
            _ => (x, axis),
        }
    }

    /// The offset of the matrix at `batch`, counted in `lead`.
    fn offset(&self, mut batch: usize, lead: &[usize]) -> usize {
        let ids_rank = self.ids.as_ref().map_or(1, |ids| ids.geometry.rank);
        let own = self.view.geometry.rank + ids_rank - 3;
        let mut at = self.view.geometry.offset;
        let mut pick = self.ids.as_ref().map_or(0, |ids| ids.geometry.offset);
        for i in (0..lead.len()).rev() {
            let coordinate = batch % lead[i];
            batch /= lead[i];
            let Some(axis) = (i + own).checked_sub(lead.len()) else {
                continue;
            };
            let (geometry, axis) = self.behind(axis);
            if geometry.shape[axis] == 1 {
                continue;
            }
            let step = coordinate * geometry.strides[axis];
            if std::ptr::eq(geometry, &self.view.geometry) {
                at += step;
            } else {
                pick += step;
            }
        }
        let x = &self.view.geometry;
        let picked = self.ids.as_ref().map(|ids| ids.int(pick));
        // `check` has seen all indices.
        let picked = picked.and_then(|i| position(i, x.shape[self.axis]).ok());
        at + picked.unwrap_or(0) * x.strides[self.axis]
    }
}

impl Kernel for GatherMatmul {
    fn run(&self, cx: &mut Cx<'_, '_, '_>) -> Result<(), OpError> {
        let [left, right] = self.op.indices();
        let stack = |i: usize, ids: Option<usize>| Stack {
            view: cx.inputs[i],
            ids: ids.map(|at| cx.inputs[at]),
            axis: self.op.batch_axes,
        };
        let (left, right) = (stack(0, left), stack(1, right));
        left.check()?;
        right.check()?;
        let out = &mut cx.outputs[0];
        let (rank, shape) = (out.geometry.rank, out.geometry.shape);
        let (lead, m, n) = (&shape[..rank - 2], shape[rank - 2], shape[rank - 1]);
        let k = left.view.geometry.rows().0;
        let inner = right.view.geometry;
        if inner.shape[inner.rank - 2] != k {
            let rule = "rows of the left are as long as columns of the right";
            return Err(OpError::shapes(rule, &[left.view.shape(), inner.shape()]));
        }
        let (dtype, size) = (out.dtype, out.dtype.size().unwrap_or(1));
        let work = |i: usize, o: &mut [u8]| {
            let (at, bt) = (left.offset(i, lead), right.offset(i, lead));
            let put = |row: usize, values: &[f32]| {
                store(dtype, values, &mut o[row * n * size..(row + 1) * n * size]);
            };
            product(&left.view, at, &right.view, bt, (m, n, k), self.rounding, put);
        };
        let (bytes, each) = (out.bytes(), (m * n * size).max(1));
        let heads = lead.iter().product::<usize>();
        if heads > 1 && heads * m * n * k >= 4 * PARALLEL {
            cx.pool.for_chunks_mut(bytes, each, &work);
        } else {
            let parts = bytes.chunks_mut(each).enumerate();
            parts.for_each(|(i, o)| work(i, o));
        }
        Ok(())
    }
}
