//! Mixtures of experts that a file evaluates densely: every expert runs, and those that were not chosen count with weight zero. The
//! products before that weight and the one behind it leave them out.

use std::sync::Arc;

use russet_kernels::elementwise::{Binary, Unary};

use super::{Fusion, Steps, buffer, experts};
use crate::exec::kernels::{Instruction, Skipping, Weights};
use crate::exec::layout::Layout;
use crate::exec::lower::{StepDraft, ViewDraft, What};
use crate::types::Dim;

/// Functions that are numbers where their operands are zero.
const TAME: [Instruction; 8] = [
    Instruction::Unary(Unary::Silu),
    Instruction::Unary(Unary::Gelu),
    Instruction::Unary(Unary::GeluTanh),
    Instruction::Unary(Unary::Sigmoid),
    Instruction::Unary(Unary::Tanh),
    Instruction::Binary(Binary::Add),
    Instruction::Binary(Binary::Sub),
    Instruction::Binary(Binary::Mul),
];

impl Fusion {
    pub(super) fn skip_experts(&mut self) {
        let uses = self.uses();
        for at in 0..self.steps.len() {
            self.skip_at(at, &uses);
        }
    }

    /// `x · weight` at step `at`, x `[…, experts, width]` with a weight for each expert, between products.
    fn skip_at(&mut self, at: usize, uses: &(Steps, Steps)) -> Option<()> {
        let step = self.steps[at].as_ref().filter(|s| experts::is_product(s))?;
        let shape = &step.inputs[0].layout.shape;
        let axis = shape.len().checked_sub(2)?;
        let number = |d: &Dim| usize::try_from(d.as_const()?).ok();
        let (count, width) = (number(&shape[axis])?, number(&shape[axis + 1])?);
        let of = (0..2).find(|&i| {
            let strides = &step.inputs[i].layout.strides;
            strides[axis + 1] == Dim::Const(0) && strides[axis] != Dim::Const(0)
        })?;
        let route = without_last_axis(&step.inputs[of]);
        let mut before = Vec::new();
        self.feeders(&step.inputs[1 - of], at, count * width, uses, &mut before)?;
        let made = buffer(&step.outputs[0])?;
        let (&[behind], true) = (&uses.0[made][..], self.is_all(&step.outputs[0])) else {
            return None;
        };
        let known = uses.1[buffer(&route)?].iter().max()?;
        if count < 2 || width < 2 || before.is_empty() || before.iter().any(|b| b < known) {
            return None;
        }
        let down = self.steps.get(behind)?.as_ref()?;
        let What::Linear(weights) = &down.what else {
            return None;
        };
        if weights.k() != count * width || !self.is_all(&down.inputs[0]) {
            return None;
        }
        if let Some(apart) = weights.columns_apart(count) {
            self.skip(behind, Arc::new(apart), count, true, &route);
        }
        for at in before {
            if let Some(What::Linear(weights)) = self.steps[at].as_ref().map(|s| &s.what) {
                let weights = weights.clone();
                self.skip(at, weights, count, false, &route);
            }
        }
        Some(())
    }

    fn skip(
        &mut self,
        at: usize,
        weights: Arc<Weights>,
        experts: usize,
        sums: bool,
        route: &ViewDraft,
    ) {
        if let Some(step) = &mut self.steps[at] {
            step.inputs.push(route.clone());
            step.name = "chosen_experts";
            step.what = What::Skipping(Skipping {
                weights,
                packed: None,
                experts,
                sums,
            });
        }
    }

    /// The products of `n` results a row that a value is a function of, element by element, and nothing else.
    fn feeders(
        &self,
        view: &ViewDraft,
        at: usize,
        n: usize,
        uses: &(Steps, Steps),
        to: &mut Vec<usize>,
    ) -> Option<()> {
        let maker = self.maker(uses, view, at)?;
        match self.steps[maker].as_ref()? {
            StepDraft {
                what: What::Linear(weights),
                ..
            } => {
                to.push(maker);
                (weights.n() == n).then_some(())
            }
            StepDraft {
                what: What::Elementwise(program),
                inputs,
                ..
            } => {
                let loads = |i: &Instruction| matches!(i, Instruction::Load(_));
                let tame = program.iter().all(|i| loads(i) || TAME.contains(i));
                let each = |v: &ViewDraft| self.feeders(v, maker, n, uses, to);
                tame.then(|| inputs.iter().try_for_each(each))?
            }
            _ => None,
        }
    }
}

fn without_last_axis(view: &ViewDraft) -> ViewDraft {
    let last = view.layout.shape.len() - 1;
    let layout = Layout {
        shape: view.layout.shape[..last].to_vec(),
        strides: view.layout.strides[..last].to_vec(),
        offset: view.layout.offset.clone(),
    };
    ViewDraft {
        layout,
        ..view.clone()
    }
}
