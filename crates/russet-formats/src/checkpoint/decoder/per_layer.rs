//! Gemma 4's end of a layer: a second embedding, of which every layer has a row of its own, and a factor.

use russet_graph::graph::ValueId;
use russet_graph::ops::broadcasting_add::BroadcastingAdd;
use russet_graph::ops::broadcasting_mul::BroadcastingMul;

use super::super::weights::{Linear, Part, Vector};
use super::{Decoder, Result};

impl Decoder<'_> {
    /// `[1, q, layers · width]`: the second embedding, and what the first, `x`, adds to it.
    pub(super) fn per_layer_inputs(&mut self, x: ValueId) -> Result<Option<ValueId>> {
        let Some(of) = self.config.per_layer else {
            return Ok(None);
        };
        let (layers, hidden) = (self.config.layers.len(), self.config.hidden);
        let wide = layers * of.width;
        let rows = [Some(1), None, Some(layers), Some(of.width)];
        let table = self.weight(Part::PerLayerEmbedding, &[of.vocab, wide])?;
        let own = self.rows(table)?;
        let own = self.times(own, (of.width as f64).sqrt())?;
        let own = self.reshape(own, &rows)?;
        let matrix = self.weight(Part::PerLayerProjection, &[wide, hidden])?;
        let added = self.product(x, matrix)?;
        let added = self.times(added, (hidden as f64).powf(-0.5))?;
        let added = self.reshape(added, &rows)?;
        let added = self.norm(Part::PerLayerNorm, of.width, added)?;
        let sum = self.b.op(BroadcastingAdd, &[added, own])?;
        let sum = self.times(sum, 0.5f64.sqrt())?;
        Ok(Some(self.reshape(sum, &[Some(1), None, Some(wide)])?))
    }

    /// Adds the layer's own embedding to the residual stream, and scales it.
    pub(super) fn layer_end(
        &mut self,
        layer: usize,
        mut x: ValueId,
        own: Option<ValueId>,
    ) -> Result<ValueId> {
        let hidden = self.config.hidden;
        if let (Some(own), Some(of)) = (own, self.config.per_layer) {
            let own = self.columns(own, 3, layer * of.width, (layer + 1) * of.width)?;
            let gate = self.project(layer, Linear::PerLayerGate, x, [of.width, hidden])?;
            let gate = self.activate(gate)?;
            let gated = self.b.op(BroadcastingMul, &[gate, own])?;
            let out = self.project(layer, Linear::PerLayerOut, gated, [hidden, of.width])?;
            let out = self.layer_norm(layer, Vector::PerLayerOutNorm, out)?;
            x = self.b.op(BroadcastingAdd, &[x, out])?;
        }
        let scale = self.weight(Part::vector(layer, Vector::LayerScale), &[1])?;
        self.b.op(BroadcastingMul, &[x, scale])
    }
}
