//! Attention: queries against the keys of all positions so far, grouped, windowed, gated.

use russet_graph::attr::Attr;
use russet_graph::graph::ValueId;
use russet_graph::ops::broadcasting_mul::BroadcastingMul;
use russet_graph::ops::sigmoid::Sigmoid;

use super::super::config::{Attention, CacheShape};
use super::super::weights::{Linear, Part, Vector};
use super::cache::Which;
use super::{Decoder, Result};
use crate::builder::attributes;

impl Decoder<'_> {
    /// Of `[1, q, hidden]`, normalised.
    pub(super) fn attention(
        &mut self,
        layer: usize,
        attention: &Attention,
        x: ValueId,
    ) -> Result<ValueId> {
        let cache = self.config.caches.get(attention.cache).copied();
        let cache = cache.unwrap_or_default();
        let wide = attention.heads * cache.head_dim;
        let (query, gate) = self.query(layer, attention, cache.head_dim, x)?;
        if attention.writes {
            self.remember(layer, attention, cache, x)?;
        }
        let key = self.recall(Which::Keys(attention.cache), attention.row)?;
        let value = self.recall(Which::Values(attention.cache), attention.row)?;
        let attended = self.attend(attention, [query, key, value])?;
        let mut joined = self.join(attended, wide)?;
        if let Some(gate) = gate {
            let open = self.b.op(Sigmoid, &[gate])?;
            joined = self.b.op(BroadcastingMul, &[joined, open])?;
        }
        let out = [self.config.hidden, wide];
        self.project(layer, Linear::AttentionOut, joined, out)
    }

    fn attend(&mut self, attention: &Attention, inputs: [ValueId; 3]) -> Result<ValueId> {
        let mut values = vec![
            ("is_causal", Attr::Bool(true)),
            ("version", Attr::Int(1)),
            ("window_size", Attr::Int(attention.window as i64)),
        ];
        if let Some(scale) = attention.scale {
            values.push(("scale", Attr::float(scale)));
        }
        let roles = attributes(&["query", "key", "value"], &values);
        self.b
            .named("scaled_dot_product_attention", &roles, &inputs)
    }

    /// Queries `[1, h, q, d]`, normalised and turned, and the gate `[1, q, h · d]` of the output.
    fn query(
        &mut self,
        layer: usize,
        attention: &Attention,
        width: usize,
        x: ValueId,
    ) -> Result<(ValueId, Option<ValueId>)> {
        let (heads, hidden) = (attention.heads, self.config.hidden);
        let (query, gate) = if self.architecture.gated {
            let both = self.project(layer, Linear::Query, x, [2 * heads * width, hidden])?;
            let both = self.reshape(both, &[Some(1), None, Some(heads), Some(2 * width)])?;
            let query = self.columns(both, 4, 0, width)?;
            let gate = self.columns(both, 4, width, 2 * width)?;
            let gate = self.reshape(gate, &[Some(1), None, Some(heads * width)])?;
            (self.transpose(query, &[0, 2, 1, 3])?, Some(gate))
        } else {
            let query = self.project(layer, Linear::Query, x, [heads * width, hidden])?;
            (self.split(query, heads, width)?, None)
        };
        let query = self.head_norm(layer, Vector::QueryNorm, width, query)?;
        let query = self.stretched(&attention.rope, query, width)?;
        Ok((self.turned(&attention.rope, query, width)?, gate))
    }

    /// Writes keys and values of the call's positions to the cache.
    fn remember(
        &mut self,
        layer: usize,
        attention: &Attention,
        cache: CacheShape,
        x: ValueId,
    ) -> Result<()> {
        let (heads, width) = (cache.kv_heads, cache.head_dim);
        let narrow = [heads * width, self.config.hidden];
        let key = self.project(layer, Linear::Key, x, narrow)?;
        let raw = self.split(key, heads, width)?;
        let key = self.head_norm(layer, Vector::KeyNorm, width, raw)?;
        let key = self.turned(&attention.rope, key, width)?;
        let value = if attention.keys_are_values {
            raw
        } else {
            let value = self.project(layer, Linear::Value, x, narrow)?;
            self.split(value, heads, width)?
        };
        let value = match self.architecture.gemma4 {
            true => self.plain_norm(width, value)?,
            false => value,
        };
        self.store(Which::Keys(attention.cache), attention.row, key)?;
        self.store(Which::Values(attention.cache), attention.row, value)
    }

    fn head_norm(
        &mut self,
        layer: usize,
        vector: Vector,
        width: usize,
        x: ValueId,
    ) -> Result<ValueId> {
        match self.architecture.head_norms {
            true => self.norm(Part::vector(layer, vector), width, x),
            false => Ok(x),
        }
    }

    /// A norm without weights.
    pub(super) fn plain_norm(&mut self, width: usize, x: ValueId) -> Result<ValueId> {
        let ones = self.constant(&[width], &vec![1.0; width])?;
        self.norm_by(ones, x)
    }
}
