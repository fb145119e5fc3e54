//! Mixtures of experts: the choice of some is one step, and so is the weighted sum of what they say.

use russet_kernels::elementwise::Binary;

use super::{Fusion, Steps, buffer, products};
use crate::exec::build::Home;
use crate::exec::kernels::{Instruction, ReduceKind, Sort, WeightedSum};
use crate::exec::lower::{StepDraft, ViewDraft, What};
use crate::types::Dim;

impl Fusion {
    /// Values and positions of one sorting become one step, which goes no further than somebody reads.
    pub(super) fn join_sorts(&mut self) {
        for first in 0..self.steps.len() {
            for later in first + 1..self.steps.len() {
                self.join_sort(first, later);
            }
            self.shorten_sort(first);
        }
    }

    fn join_sort(&mut self, first: usize, later: usize) -> Option<()> {
        let [Some(a), Some(b)] = [&self.steps[first], &self.steps[later]] else {
            return None;
        };
        let (What::Sort(x), What::Sort(y)) = (&a.what, &b.what) else {
            return None;
        };
        let (from, other) = (&a.inputs[0], &b.inputs[0]);
        let alike = from.home == other.home
            && from.layout == other.layout
            && (x.axis, x.descending) == (y.axis, y.descending);
        let unlike = !x.both && !y.both && x.indices != y.indices;
        if !(alike && unlike && self.unchanged(&a.inputs, first, later)) {
            return None;
        }
        let (positions, both) = (
            x.indices,
            Sort {
                both: true,
                ..x.clone()
            },
        );
        let taken = self.steps[later].take()?;
        let step = self.steps[first].as_mut()?;
        step.outputs.extend(taken.outputs);
        if positions {
            step.outputs.reverse();
        }
        step.what = What::Sort(both);
        Some(())
    }

    /// Where only the first few of a sorting are read, no more are put in order.
    fn shorten_sort(&mut self, at: usize) -> Option<()> {
        let step = self.steps[at].as_ref()?;
        let What::Sort(sort) = &step.what else {
            return None;
        };
        let shape = &step.outputs[0].layout.shape;
        let n = shape.get(sort.axis)?.as_const()?;
        let last = sort.axis + 1 == shape.len();
        let read: Option<Vec<i64>> = step.outputs.iter().map(|v| self.read_of(v, n)).collect();
        let first = read?.into_iter().max().filter(|_| last)?;
        let (name, sort) = (
            if first < n { "top_k" } else { "sort" },
            Sort {
                first: usize::try_from(first).ok()?,
                ..sort.clone()
            },
        );
        let step = self.steps[at].as_mut()?;
        (step.name, step.what) = (name, What::Sort(sort));
        Some(())
    }

    /// How many elements of every row, of `n`, of a result are read.
    fn read_of(&self, made: &ViewDraft, n: i64) -> Option<i64> {
        let own = buffer(made)?;
        let steps = self.steps.iter().flatten();
        let views = steps.flat_map(|s| &s.inputs).chain(&self.outputs);
        let readers = views.filter(|v| v.home == Home::Buffer(own));
        let read = readers.map(|v| first_of_rows(v, n).unwrap_or(n));
        Some(read.max().unwrap_or(0))
    }

    /// `Σ x · weight`, a weight for each row of x, becomes one step, with what it is added to.
    pub(super) fn weigh(&mut self) {
        let uses = self.uses();
        for at in 0..self.steps.len() {
            self.weigh_rows(at, &uses);
        }
        let uses = self.uses();
        for at in 0..self.steps.len() {
            self.add_to_weighed(at, &uses);
        }
    }

    fn weigh_rows(&mut self, at: usize, uses: &(Steps, Steps)) -> Option<()> {
        let sum = self.steps[at].as_ref()?;
        let What::Reduce(reduce) = &sum.what else {
            return None;
        };
        let shape = &sum.inputs[0].layout.shape;
        let axis = shape.len().checked_sub(2)?;
        if reduce.kind != ReduceKind::Sum || reduce.axes != [axis] {
            return None;
        }
        let maker = self.maker(uses, &sum.inputs[0], at)?;
        let product = self.steps[maker].as_ref().filter(|s| is_product(s))?;
        let weight = product.inputs.iter().position(|v| {
            v.layout.strides.last() == Some(&Dim::Const(0)) && shape.last() != Some(&Dim::Const(1))
        })?;
        let alike = product.outputs[0].layout.shape == *shape;
        if !(alike && self.unchanged(&product.inputs, maker, at)) {
            return None;
        }
        let inputs = [1 - weight, weight].map(|i| product.inputs[i].clone());
        self.steps[maker] = None;
        let sum = self.steps[at].as_mut()?;
        sum.inputs = inputs.to_vec();
        (sum.name, sum.what) = ("weighted_sum", What::Weighted);
        sum.kernel = Box::new(WeightedSum);
        Some(())
    }

    fn add_to_weighed(&mut self, at: usize, uses: &(Steps, Steps)) -> Option<()> {
        let sum = self.steps[at].as_ref().filter(|s| products::is_sum(s))?;
        let makers = [0, 1].map(|i| self.maker(uses, &sum.inputs[i], at));
        let weighed = |i: &usize| {
            let step = makers[*i].and_then(|maker| self.steps[maker].as_ref());
            step.is_some_and(|s| matches!(s.what, What::Weighted) && s.inputs.len() == 2)
        };
        let of = (0..2).find(weighed)?;
        let (maker, other) = (makers[of]?, &sum.inputs[1 - of]);
        let step = self.steps[maker].as_ref()?;
        let plain = other.layout.is_contiguous() && self.unchanged(&step.inputs, maker, at);
        if !plain {
            return None;
        }
        let (other, outputs) = (other.clone(), sum.outputs.clone());
        let mut step = self.steps[maker].take()?;
        step.name = "weighted_sum_add";
        step.inputs.push(other);
        step.outputs = outputs;
        self.steps[at] = Some(step);
        Some(())
    }
}

/// How many elements a view shows of every row of `n`, where it shows the first ones.
fn first_of_rows(view: &ViewDraft, n: i64) -> Option<i64> {
    let ((shown, rows), (stride, strides)) = (
        view.layout.shape.split_last()?,
        view.layout.strides.split_last()?,
    );
    let whole = |(extent, stride): (&Dim, &Dim)| {
        *extent == Dim::Const(1) || stride.as_const().is_some_and(|s| s % n.max(1) == 0)
    };
    let rows = rows.iter().zip(strides).all(whole);
    let one = shown.as_const() == Some(1);
    let first = view.layout.offset == Dim::Const(0) && (one || *stride == Dim::Const(1));
    (rows && first).then(|| shown.as_const()).flatten()
}

/// Whether a step is a product of two operands and nothing else.
pub(super) fn is_product(step: &StepDraft) -> bool {
    let product = [
        Instruction::Load(0),
        Instruction::Load(1),
        Instruction::Binary(Binary::Mul),
    ];
    matches!(&step.what, What::Elementwise(program) if **program == product)
}
