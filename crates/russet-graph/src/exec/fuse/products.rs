//! Products: their weights packed, what is added to them done by the same step, those of the same activations one step.

use std::sync::Arc;

use russet_kernels::elementwise::Binary;
use russet_kernels::packed::{MAX_PRODUCTS, PackedRows};
use russet_kernels::threads::Pool;

use super::{Fusion, Steps, buffer, is_whole};
use crate::error::OpError;
use crate::exec::build::Home;
use crate::exec::kernels::{Factor, Instruction, Matrix, Weights};
use crate::exec::lower::{StepDraft, ViewDraft, What};
use crate::types::Dim;

impl Fusion {
    /// Gives every product whose weights allow it packed weights; weights used twice are packed once.
    pub(super) fn pack(&mut self, pool: Option<&Pool>) -> Result<(), OpError> {
        let mut all: Vec<Arc<Weights>> = Vec::new();
        let steps = self.steps.iter().flatten().filter(|_| pool.is_some());
        for step in steps {
            let weights = match &step.what {
                What::Linear(weights) => weights,
                What::Experts(kernel) if kernel.packable() => &kernel.weights,
                What::Skipping(kernel) if kernel.packable() => &kernel.weights,
                _ => continue,
            };
            if !all.iter().any(|w| Arc::ptr_eq(w, weights)) && weights.source().is_some() {
                all.push(weights.clone());
            }
        }
        let sources: Vec<_> = all.iter().filter_map(|w| w.source()).collect();
        let sources: Vec<_> = sources.iter().map(|s| &**s).collect();
        let packed = pool.map_or(Ok(Vec::new()), |pool| PackedRows::pack(pool, &sources));
        let packed = packed.map_err(|e| OpError::TooLarge {
            shape: vec![e.bytes],
        })?;
        let packed: Vec<_> = packed.into_iter().map(Arc::new).collect();
        all.iter().for_each(|w| w.unload());
        for step in self.steps.iter_mut().flatten() {
            let of = |weights: &Arc<Weights>| {
                let at = all.iter().position(|w| Arc::ptr_eq(w, weights));
                at.map(|at| packed[at].clone())
            };
            match &mut step.what {
                What::Linear(weights) => {
                    let plain = || Matrix::Plain(weights.clone());
                    let rows = of(weights).map_or_else(plain, Matrix::Packed);
                    step.what = What::Products(vec![Factor { rows, add: None }]);
                }
                What::Experts(kernel) if kernel.packable() => kernel.packed = of(&kernel.weights),
                What::Skipping(kernel) if kernel.packable() => kernel.packed = of(&kernel.weights),
                _ => {}
            }
        }
        Ok(())
    }

    /// `product + y` in the product's own step, which moves to where the sum was; y is as large as the product, or one row.
    fn add_residuals_to(&mut self, at: usize, uses: &(Steps, Steps)) -> Option<()> {
        let (readers, writers) = uses;
        let plain = |v: &ViewDraft| {
            buffer(v).is_some_and(|b| writers[b].len() == 1) && v.layout.is_contiguous()
        };
        let step = self.steps[at].as_ref()?;
        let alone = step.products().len() == 1 && step.products()[0].add.is_none();
        let (&[reader], true) = (&readers[buffer(&step.outputs[0])?][..], alone) else {
            return None;
        };
        let sum = self.steps.get(reader)?.as_ref()?;
        let of = operand_beside(sum, buffer(&step.outputs[0])?).filter(|_| is_sum(sum))?;
        let (product, other) = (&sum.inputs[1 - of], &sum.inputs[of]);
        let row = matches!(other.home, Home::Constant(_)) && is_row(other);
        let fits = plain(other) || row;
        let moves = self.unchanged(&step.inputs, at, reader);
        if !(fits && moves && self.is_all(product) && self.is_all(&sum.outputs[0])) {
            return None;
        }
        let (other, outputs) = (other.clone(), sum.outputs.clone());
        let mut step = self.steps[at].take()?;
        step.name = "linear_add";
        if let What::Products(products) = &mut step.what {
            products[0].add = Some(step.inputs.len());
        }
        step.inputs.push(other);
        step.outputs = outputs;
        self.steps[reader] = Some(step);
        Some(())
    }

    /// What products are added to becomes theirs to add.
    pub(super) fn add_residuals(&mut self) {
        let uses = self.uses();
        for at in 0..self.steps.len() {
            self.add_residuals_to(at, &uses);
        }
    }

    /// Products of the same activations become one step, at the first one's place.
    pub(super) fn merge_products(&mut self) {
        for first in 0..self.steps.len() {
            for later in first + 1..self.steps.len() {
                if !self.mergeable(first, later) {
                    continue;
                }
                let Some(taken) = self.steps[later].take() else {
                    continue;
                };
                if let Some(step) = &mut self.steps[first] {
                    step.name = "linears";
                    if let What::Products(products) = &mut step.what {
                        products.extend_from_slice(taken.products());
                    }
                    step.outputs.extend(taken.outputs);
                }
            }
        }
    }

    /// Whether two steps are products of the same activations and nothing else.
    fn mergeable(&self, first: usize, later: usize) -> bool {
        let [Some(a), Some(b)] = [&self.steps[first], &self.steps[later]] else {
            return false;
        };
        let ([x, ..], [y, ..]) = (a.products(), b.products()) else {
            return false;
        };
        let alone = a
            .products()
            .iter()
            .chain(b.products())
            .all(|p| p.add.is_none());
        let room = a.products().len() + b.products().len() <= MAX_PRODUCTS;
        alone && room && same(&a.inputs[0], &b.inputs[0]) && x.rows.goes_with(&y.rows)
    }
}

/// Whether two views are the same elements in the same order.
fn same(a: &ViewDraft, b: &ViewDraft) -> bool {
    let rows = is_whole(a) && is_whole(b) && a.layout.shape.last() == b.layout.shape.last();
    a.home == b.home && a.dtype == b.dtype && (rows || a.layout == b.layout)
}

/// The other operand of a step of two operands of one shape, one of which is all of buffer `b`.
pub(super) fn operand_beside(step: &StepDraft, b: usize) -> Option<usize> {
    let [left, right] = &step.inputs[..] else {
        return None;
    };
    let one_shape = left.layout.shape == right.layout.shape && left.dtype == right.dtype;
    let (at, other) = if buffer(left) == Some(b) {
        (left, right)
    } else {
        (right, left)
    };
    let fits = one_shape && is_whole(at) && buffer(at) == Some(b) && buffer(other) != Some(b);
    fits.then(|| if std::ptr::eq(other, right) { 1 } else { 0 })
}

/// Whether a step is a sum of two operands and nothing else.
pub(super) fn is_sum(step: &StepDraft) -> bool {
    let sum = [
        Instruction::Load(0),
        Instruction::Load(1),
        Instruction::Binary(Binary::Add),
    ];
    matches!(&step.what, What::Elementwise(program) if **program == sum)
}

/// Whether a view is one row without gaps, repeated.
fn is_row(view: &ViewDraft) -> bool {
    let axes = view.layout.shape.iter().zip(&view.layout.strides).rev();
    let mut axes = axes.map(|(d, s)| (*d == Dim::Const(1), s.as_const()));
    let row = axes.next().is_some_and(|(one, s)| one || s == Some(1));
    row && axes.all(|(one, s)| one || s == Some(0))
}
