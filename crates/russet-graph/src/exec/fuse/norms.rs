//! Norms that go on: rotated as soon as they are made, or added to something.

use super::{Fusion, products};
use crate::exec::kernels;
use crate::exec::lower::What;
use crate::types::Dim;

impl Fusion {
    /// Rows that are normalised only to be rotated are both in one step.
    pub(super) fn rotate_norms(&mut self) {
        let uses = self.uses();
        for at in 0..self.steps.len() {
            self.rotate_norm(at, &uses);
        }
    }

    fn rotate_norm(&mut self, at: usize, uses: &(super::Steps, super::Steps)) -> Option<()> {
        let rope = self.steps[at].as_ref()?;
        let What::Rope { interleaved } = rope.what else {
            return None;
        };
        let maker = self.maker(uses, &rope.inputs[0], at)?;
        let norm = self.steps[maker].as_ref()?;
        let (What::RmsNorm(eps), [x, scale]) = (&norm.what, &norm.inputs[..]) else {
            return None;
        };
        // One scale for the rows of a head.
        let rank = scale.layout.shape.len();
        let shared = rank > 1 && scale.layout.strides[rank - 2] == Dim::Const(0);
        let alike = norm.outputs[0].layout.shape == rope.inputs[0].layout.shape;
        if !(shared && alike && self.unchanged(&norm.inputs, maker, at)) {
            return None;
        }
        let eps = *eps;
        let inputs = [x.clone(), scale.clone()];
        self.steps[maker] = None;
        let rope = self.steps[at].as_mut()?;
        rope.name = "norm_rope";
        rope.kernel = Box::new(kernels::NormRotate { eps, interleaved });
        rope.inputs.splice(..1, inputs);
        rope.what = What::Other;
        Some(())
    }

    /// Rows that are normalised only to be added to others are both in one step.
    pub(super) fn add_to_norms(&mut self) {
        let uses = self.uses();
        for at in 0..self.steps.len() {
            self.add_to_norm(at, &uses);
        }
    }

    fn add_to_norm(&mut self, at: usize, uses: &(super::Steps, super::Steps)) -> Option<()> {
        let sum = self.steps[at].as_ref().filter(|s| products::is_sum(s))?;
        let (of, maker) = (0..2).find_map(|i| {
            Some((1 - i, self.maker(uses, &sum.inputs[i], at)?))
                .filter(|(_, maker)| self.is_norm(*maker))
        })?;
        let (norm, other) = (self.steps[maker].as_ref()?, &sum.inputs[of]);
        let plain = other.layout.is_contiguous() && other.dtype == norm.outputs[0].dtype;
        let alike = other.layout.shape == norm.outputs[0].layout.shape;
        if !(plain && alike && self.unchanged(&norm.inputs, maker, at)) {
            return None;
        }
        let (other, outputs) = (other.clone(), sum.outputs.clone());
        let mut norm = self.steps[maker].take()?;
        norm.name = "rms_norm_add";
        norm.inputs.push(other);
        norm.outputs = outputs;
        self.steps[at] = Some(norm);
        Some(())
    }

    fn is_norm(&self, at: usize) -> bool {
        let step = self.steps[at].as_ref();
        step.is_some_and(|s| matches!(s.what, What::RmsNorm(_)))
    }
}
