//! The gated part of a layer.

use russet_graph::graph::ValueId;
use russet_graph::ops::broadcasting_add::BroadcastingAdd;
use russet_graph::ops::broadcasting_mul::BroadcastingMul;

use super::super::config::Mlp;
use super::super::weights::{Linear, Vector};
use super::{Decoder, Result};

/// The three matrices of a gated part.
const DENSE: [Linear; 3] = [Linear::Gate, Linear::Up, Linear::Down];

impl Decoder<'_> {
    /// What is added to the residual stream `x`.
    pub(super) fn mlp(&mut self, layer: usize, mlp: Mlp, x: ValueId) -> Result<ValueId> {
        let normed = self.layer_norm(layer, Vector::MlpNorm, x)?;
        match mlp {
            Mlp::Dense(width) => self.gated(layer, DENSE, width, normed),
            Mlp::Experts(experts) => {
                let scores = self.router_scores(layer, experts, normed)?;
                let chosen = self.chosen(layer, experts, scores)?;
                let answer = self.experts(layer, experts, normed, chosen)?;
                self.with_shared(layer, experts, normed, answer)
            }
            Mlp::Both(width, experts) => {
                let dense = self.gated(layer, DENSE, width, normed)?;
                let dense = self.layer_norm(layer, Vector::DenseOutNorm, dense)?;
                let scores = self.scaled_router_scores(layer, experts, x)?;
                let chosen = self.chosen(layer, experts, scores)?;
                let normed = self.layer_norm(layer, Vector::ExpertsNorm, x)?;
                let answer = self.experts(layer, experts, normed, chosen)?;
                let answer = self.layer_norm(layer, Vector::ExpertsOutNorm, answer)?;
                self.b.op(BroadcastingAdd, &[dense, answer])
            }
        }
    }

    /// `(act(x · gateᵀ) ⊙ x · upᵀ) · downᵀ`.
    pub(super) fn gated(
        &mut self,
        layer: usize,
        [gate, up, down]: [Linear; 3],
        width: usize,
        x: ValueId,
    ) -> Result<ValueId> {
        let hidden = self.config.hidden;
        let gate = self.project(layer, gate, x, [width, hidden])?;
        let gate = self.activate(gate)?;
        let up = self.project(layer, up, x, [width, hidden])?;
        let both = self.b.op(BroadcastingMul, &[gate, up])?;
        self.project(layer, down, both, [hidden, width])
    }
}
