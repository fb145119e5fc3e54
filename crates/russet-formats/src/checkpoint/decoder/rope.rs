//! Rotary embedding of heads.

use russet_graph::attr::Attr;
use russet_graph::graph::ValueId;
use russet_graph::ops::broadcasting_greater::BroadcastingGreater;
use russet_graph::ops::broadcasting_mul::BroadcastingMul;
use russet_graph::ops::broadcasting_where::BroadcastingWhere;
use russet_graph::ops::reduce_max::ReduceMax;
use russet_graph::ops::reshape::Reshape;
use russet_graph::types::DType;

use super::super::config::{Frequencies, Rope};
use super::{Decoder, Result, extent};
use crate::builder::attributes;

impl Decoder<'_> {
    /// Turns `[1, h, q, d]`.
    pub(super) fn turned(&mut self, rope: &Rope, x: ValueId, width: usize) -> Result<ValueId> {
        let (base, scale) = match rope.frequencies {
            Frequencies::Base { base, scale } => (base, scale),
            _ => (1e4, 1.0),
        };
        let mut values = vec![
            ("base", Attr::float(base)),
            ("interleaved", Attr::Bool(self.config.rope_interleaved)),
            ("scale", Attr::float(scale)),
            ("version", Attr::Int(1)),
        ];
        if rope.dims < width {
            values.push(("dims", Attr::Int(rope.dims as i64)));
        }
        // Bundles call the positions `cos`.
        let mut roles = vec!["input", "position_ids"];
        let mut inputs = vec![x, self.lengths.positions];
        if let Some(frequencies) = self.frequencies(&rope.frequencies)? {
            roles.push("freqs");
            inputs.push(frequencies);
        }
        self.b.named("rope", &attributes(&roles, &values), &inputs)
    }

    /// Queries of `[1, h, q, d]` before they are turned. What turned elements of queries and keys are multiplied by comes to its
    /// square in their products; keys are cached without it.
    pub(super) fn stretched(&mut self, rope: &Rope, x: ValueId, width: usize) -> Result<ValueId> {
        if rope.factor == 1.0 {
            return Ok(x);
        }
        let square = (rope.factor * rope.factor) as f32;
        let one = |i| if i < rope.dims { square } else { 1.0 };
        let by: Vec<f32> = (0..width).map(one).collect();
        let by = self.constant(&[width], &by)?;
        self.b.op(BroadcastingMul, &[x, by])
    }

    /// `[pairs]` of f32, where they are listed.
    fn frequencies(&mut self, of: &Frequencies) -> Result<Option<ValueId>> {
        Ok(match of {
            Frequencies::Base { .. } => None,
            Frequencies::Each(list) => Some(self.constant_of(DType::F32, &[list.len()], list)?),
            Frequencies::ByLength { short, long, limit } => {
                Some(self.by_length(short, long, *limit)?)
            }
        })
    }

    /// The second list where the last position is none of the first `limit`.
    fn by_length(&mut self, short: &[f32], long: &[f32], limit: usize) -> Result<ValueId> {
        let axis = self.b.ints(&[1])?;
        let last = self.b.op(ReduceMax, &[self.lengths.all, axis])?;
        let one = self.b.ints(&[1])?;
        let last = self.b.op(Reshape, &[last, one])?;
        let limit = self.b.ints(&[extent(limit) - 1])?;
        let beyond = self.b.op(BroadcastingGreater, &[last, limit])?;
        let short = self.constant_of(DType::F32, &[short.len()], short)?;
        let long = self.constant_of(DType::F32, &[long.len()], long)?;
        self.b.op(BroadcastingWhere, &[beyond, long, short])
    }
}
