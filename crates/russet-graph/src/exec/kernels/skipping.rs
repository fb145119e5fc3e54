//! Products with matrices of several experts side by side, of which a token has weights for few: those of weight zero are not computed.

use std::sync::Arc;

use russet_kernels::elem::Elem;
use russet_kernels::linear::linear;
use russet_kernels::packed::{GROUP, PackedRows, Product, packed_linear};
use russet_kernels::scratch;
use russet_kernels::threads::Pool;

use super::{Cx, Kernel, Touched, Weights, Work};
use crate::error::OpError;
use crate::exec::view::{store, typed, typed_mut};

/// Inputs: x, row-major, then for every row a number for each expert. Where that is zero, an expert's part of the result is zero
/// (its rows of the matrix make it), or nothing is added to the result (its part of x is zero).
#[derive(Clone, Debug)]
pub(crate) struct Skipping {
    /// The matrices of the experts, one under the other.
    pub(crate) weights: Arc<Weights>,
    /// The same for integer products.
    pub(crate) packed: Option<Arc<PackedRows>>,
    pub(crate) experts: usize,
    /// Whether results of experts are summed; else they lie side by side.
    pub(crate) sums: bool,
}

impl Kernel for Skipping {
    fn run(&self, cx: &mut Cx<'_, '_, '_>) -> Result<(), OpError> {
        let (route, rows) = (cx.inputs[1], cx.inputs[1].geometry.rows().2);
        let chosen = &mut *scratch::floats(rows * self.experts);
        for (row, place) in chosen.chunks_exact_mut(self.experts.max(1)).enumerate() {
            route.load_row(row, place);
        }
        match self.sums {
            true => self.sum(cx, chosen),
            false => by_kind!(cx.outputs[0].dtype, T => self.beside::<T>(cx, chosen)),
        }
    }

    /// As much as where every expert is chosen.
    fn work(&self, inputs: &[Touched], outputs: &[Touched]) -> Work {
        let all = Work::of_elements(inputs, outputs);
        all.with_weights(self.weights.label(), self.weights.size())
    }
}

impl Skipping {
    /// Whether the matrices begin where packed rows can be taken apart.
    pub(crate) fn packable(&self) -> bool {
        self.each().is_multiple_of(GROUP)
    }

    /// Rows of an expert's matrix.
    fn each(&self) -> usize {
        self.weights.n() / self.experts.max(1)
    }

    /// Results of experts side by side.
    fn beside<T: Elem>(&self, cx: &mut Cx<'_, '_, '_>, chosen: &[f32]) -> Result<(), OpError> {
        let (k, n) = (self.weights.k(), self.each());
        let x = cx.inputs[0].contiguous().map(typed::<T>);
        let x = x.ok_or(OpError::Unknown("rows without gaps"))?;
        let out = typed_mut::<T>(cx.outputs[0].bytes());
        out.fill(T::ZERO);
        for expert in 0..self.experts {
            let rows = self.rows_of(expert, chosen);
            let (given, made) = (
                &mut *scratch::of::<T>(rows.clone().count() * k),
                &mut *scratch::of::<T>(rows.clone().count() * n),
            );
            for (row, place) in rows.clone().zip(given.chunks_exact_mut(k.max(1))) {
                place.copy_from_slice(&x[row * k..][..k]);
            }
            self.product(cx.pool, expert, given, made)?;
            for (row, made) in rows.zip(made.chunks_exact(n.max(1))) {
                out[(row * self.experts + expert) * n..][..n].copy_from_slice(made);
            }
        }
        Ok(())
    }

    /// Results of experts, each of its own part of x, summed in f32.
    fn sum(&self, cx: &mut Cx<'_, '_, '_>, chosen: &[f32]) -> Result<(), OpError> {
        let (k, n, x) = (self.weights.k(), self.each(), cx.inputs[0]);
        let sums = &mut *scratch::floats(chosen.len() / self.experts.max(1) * n);
        sums.fill(0.0);
        for expert in 0..self.experts {
            let rows = self.rows_of(expert, chosen);
            let count = rows.clone().count();
            let (given, made) = (
                &mut *scratch::floats(count * k),
                &mut *scratch::of::<f32>(count * n),
            );
            for (row, place) in rows.clone().zip(given.chunks_exact_mut(k.max(1))) {
                let at = x.geometry.row_offset(row) + expert * k;
                x.load(at, 1, place);
            }
            self.product(cx.pool, expert, given, made)?;
            for (row, made) in rows.zip(made.chunks_exact(n.max(1))) {
                let sums = sums[row * n..][..n].iter_mut();
                sums.zip(made).for_each(|(sum, x)| *sum += x);
            }
        }
        let out = &mut cx.outputs[0];
        store(out.dtype, sums, out.bytes());
        Ok(())
    }

    /// The rows that have a weight for an expert.
    fn rows_of<'a>(
        &self,
        expert: usize,
        chosen: &'a [f32],
    ) -> impl Iterator<Item = usize> + Clone + use<'a> {
        let experts = self.experts.max(1);
        let rows = 0..chosen.len() / experts;
        rows.filter(move |row| chosen[row * experts + expert] != 0.0)
    }

    fn product<T: Elem>(
        &self,
        pool: &Pool,
        expert: usize,
        x: &[T],
        out: &mut [T],
    ) -> Result<(), OpError> {
        let (n, m) = (self.each(), x.len() / self.weights.k().max(1));
        if m == 0 {
            return Ok(());
        }
        if let Some(packed) = &self.packed {
            let weights = &packed.part(expert * n, n);
            let add = None;
            packed_linear(pool, x, m, &mut [Some(Product { weights, out, add })]);
            return Ok(());
        }
        let done = self
            .weights
            .with_rows(expert * n, n, |w| linear(pool, x, w, out, m));
        done.ok_or(OpError::Unknown("the layout of the weights"))
    }
}
