//! A decoder-only transformer as a graph: normalise, attend, add; normalise, gate, add; once a layer.
//!
//! Shapes: `q` tokens of a call, `total` positions up to and including them, `h` heads of width `d`.

use std::sync::Arc;

use russet_graph::attr::Attr;
use russet_graph::graph::{Module, ValueId};
use russet_graph::ops::broadcasting_add::BroadcastingAdd;
use russet_graph::ops::broadcasting_batch_matmul::BroadcastingBatchMatmul;
use russet_graph::ops::broadcasting_mul::BroadcastingMul;
use russet_graph::ops::broadcasting_sub::BroadcastingSub;
use russet_graph::ops::cast::Cast;
use russet_graph::ops::concat::Concat;
use russet_graph::ops::create_token::CreateToken;
use russet_graph::ops::expand_dims::ExpandDims;
use russet_graph::ops::gather_nd::GatherNd;
use russet_graph::ops::get_shape::GetShape;
use russet_graph::ops::read_handle::ReadHandle;
use russet_graph::ops::reshape::Reshape;
use russet_graph::ops::shrink_dims::ShrinkDims;
use russet_graph::ops::silu::Silu;
use russet_graph::ops::slice::Slice;
use russet_graph::ops::slice_update::SliceUpdate;
use russet_graph::ops::transpose::Transpose;
use russet_graph::ops::write_handle::WriteHandle;
use russet_graph::types::{DType, Dim, TensorType, Type};

use super::weights::{LayerPart, Part, Weights};
use super::{Architecture, Builder, DecoderConfig, Result};
use crate::builder::attributes;

/// An end that every extent lies before.
const END: i32 = i32::MAX;

/// The module of a decoder: one function `main`.
pub(super) fn build(
    config: &DecoderConfig,
    architecture: &Architecture,
    weights: &dyn Weights,
) -> Result<Module> {
    let mut decoder = Decoder::new(config, architecture, weights)?;
    let table = decoder.weight(Part::Embedding, &[config.vocab, config.hidden])?;
    let mut x = decoder.embed(table)?;
    for layer in 0..config.layers {
        x = decoder.layer(layer, x)?;
    }
    let normed = decoder.norm(Part::Norm, x)?;
    let head = if config.tied {
        table
    } else {
        decoder.weight(Part::Head, &[config.vocab, config.hidden])?
    };
    let logits = decoder.product(normed, head)?;
    let (keys, values) = (decoder.keys.token, decoder.values.token);
    let graph = decoder.b.finish(&[
        ("keyCache", keys),
        ("valueCache", values),
        ("logits", logits),
    ]);
    Ok(Module {
        graphs: vec![graph],
        attributes: Vec::new(),
    })
}

/// A cache: its handle, its present value and the token after which that is so.
#[derive(Clone, Copy)]
struct Cache {
    handle: ValueId,
    value: ValueId,
    token: ValueId,
}

/// Integers that every layer needs.
#[derive(Clone, Copy)]
struct Lengths {
    /// `[q]`.
    query: ValueId,
    /// `[total - q]`.
    past: ValueId,
    /// `[total]`.
    total: ValueId,
    /// The positions of the tokens of this call, `[1, q]`.
    positions: ValueId,
}

struct Decoder<'a> {
    config: &'a DecoderConfig,
    architecture: &'a Architecture,
    weights: &'a dyn Weights,
    b: Builder,
    input_ids: ValueId,
    lengths: Lengths,
    keys: Cache,
    values: Cache,
}

impl<'a> Decoder<'a> {
    fn new(
        config: &'a DecoderConfig,
        architecture: &'a Architecture,
        weights: &'a dyn Weights,
    ) -> Result<Self> {
        let mut b = Builder::new("main");
        let ids = || Type::Tensor(TensorType::new(DType::I32, [Dim::Const(1), Dim::Unknown]));
        let input_ids = b.input("input_ids", ids(), Vec::new());
        let position_ids = b.input("position_ids", ids(), Vec::new());
        let handles = [
            cache_input(&mut b, config, "keyCache"),
            cache_input(&mut b, config, "valueCache"),
        ];
        let start = b.op(CreateToken, &[])?;
        let [keys, values] = handles.map(|handle| read(&mut b, handle, start));
        let lengths = lengths(&mut b, input_ids, position_ids)?;
        Ok(Self {
            config,
            architecture,
            weights,
            b,
            input_ids,
            lengths,
            keys: keys?,
            values: values?,
        })
    }

    fn weight(&mut self, part: Part, shape: &[usize]) -> Result<ValueId> {
        let data = self.weights.get(part, shape, self.config.dtype)?;
        self.b.constant(data)
    }

    /// Rows of the table: `[1, q, hidden]`.
    fn embed(&mut self, table: ValueId) -> Result<ValueId> {
        let axis = self.b.ints(&[2])?;
        let index = self.b.op(ExpandDims, &[self.input_ids, axis])?;
        self.b.op(GatherNd, &[table, index])
    }

    /// `x · wᵀ` for a weight `[n, k]`.
    fn product(&mut self, x: ValueId, weight: ValueId) -> Result<ValueId> {
        let order = self.b.ints(&[1, 0])?;
        let turned = self.b.op(Transpose, &[weight, order])?;
        self.b.op(BroadcastingBatchMatmul, &[x, turned])
    }

    fn project(
        &mut self,
        layer: usize,
        part: LayerPart,
        x: ValueId,
        shape: [usize; 2],
    ) -> Result<ValueId> {
        let weight = self.weight(Part::Layer(layer, part), &shape)?;
        self.product(x, weight)
    }

    fn norm(&mut self, part: Part, x: ValueId) -> Result<ValueId> {
        let scale = self.weight(part, &[self.config.hidden])?;
        let values = [
            ("axes", Attr::Int(-1)),
            ("eps", Attr::float(self.config.norm_eps)),
            ("version", Attr::Int(1)),
        ];
        self.b.named(
            "rms_norm",
            &attributes(&["input", "scale"], &values),
            &[x, scale],
        )
    }

    fn layer(&mut self, layer: usize, x: ValueId) -> Result<ValueId> {
        let normed = self.norm(Part::Layer(layer, LayerPart::AttentionNorm), x)?;
        let attended = self.attention(layer, normed)?;
        let x = self.b.op(BroadcastingAdd, &[x, attended])?;
        let normed = self.norm(Part::Layer(layer, LayerPart::MlpNorm), x)?;
        let gated = self.mlp(layer, normed)?;
        self.b.op(BroadcastingAdd, &[x, gated])
    }

    fn mlp(&mut self, layer: usize, x: ValueId) -> Result<ValueId> {
        let (hidden, wide) = (self.config.hidden, self.config.intermediate);
        let gate = self.project(layer, LayerPart::Gate, x, [wide, hidden])?;
        let gate = self.b.op(Silu, &[gate])?;
        let up = self.project(layer, LayerPart::Up, x, [wide, hidden])?;
        let gated = self.b.op(BroadcastingMul, &[gate, up])?;
        self.project(layer, LayerPart::Down, gated, [hidden, wide])
    }

    fn attention(&mut self, layer: usize, x: ValueId) -> Result<ValueId> {
        let (hidden, heads, kv_heads) =
            (self.config.hidden, self.config.heads, self.config.kv_heads);
        let (wide, narrow) = (
            heads * self.config.head_dim,
            kv_heads * self.config.head_dim,
        );
        let query = self.project(layer, LayerPart::Query, x, [wide, hidden])?;
        let key = self.project(layer, LayerPart::Key, x, [narrow, hidden])?;
        let value = self.project(layer, LayerPart::Value, x, [narrow, hidden])?;
        let query = self.split(query, heads)?;
        let query = self.rope(query)?;
        let key = self.split(key, kv_heads)?;
        let key = self.rope(key)?;
        let value = self.split(value, kv_heads)?;
        self.keys = self.store(self.keys, layer, key)?;
        self.values = self.store(self.values, layer, value)?;
        let (key, value) = (
            self.recall(self.keys, layer)?,
            self.recall(self.values, layer)?,
        );
        let values = [
            ("is_causal", Attr::Bool(true)),
            ("version", Attr::Int(1)),
            ("window_size", Attr::Int(0)),
        ];
        let roles = attributes(&["query", "key", "value"], &values);
        let attended =
            self.b
                .named("scaled_dot_product_attention", &roles, &[query, key, value])?;
        let joined = self.join(attended, wide)?;
        self.project(layer, LayerPart::AttentionOut, joined, [hidden, wide])
    }

    /// `[1, q, h · d]` to `[1, h, q, d]`.
    fn split(&mut self, x: ValueId, heads: usize) -> Result<ValueId> {
        let shape = self.shape(&[None, Some(heads), Some(self.config.head_dim)])?;
        let x = self.b.op(Reshape, &[x, shape])?;
        let order = self.b.ints(&[0, 2, 1, 3])?;
        self.b.op(Transpose, &[x, order])
    }

    /// `[1, h, q, d]` to `[1, q, h · d]`.
    fn join(&mut self, x: ValueId, wide: usize) -> Result<ValueId> {
        let order = self.b.ints(&[0, 2, 1, 3])?;
        let x = self.b.op(Transpose, &[x, order])?;
        let shape = self.shape(&[None, Some(wide)])?;
        self.b.op(Reshape, &[x, shape])
    }

    /// The shape `[1, …]` where `None` is q.
    fn shape(&mut self, rest: &[Option<usize>]) -> Result<ValueId> {
        let mut parts = vec![self.b.int(0)?, self.b.ints(&[1])?];
        for extent in rest {
            parts.push(match extent {
                None => self.lengths.query,
                Some(n) => self.b.ints(&[i32::try_from(*n).unwrap_or(END)])?,
            });
        }
        self.b.op(Concat, &parts)
    }

    fn rope(&mut self, x: ValueId) -> Result<ValueId> {
        let values = [
            ("base", Attr::float(self.config.rope_base)),
            (
                "interleaved",
                Attr::Bool(self.architecture.rope_interleaved),
            ),
            ("scale", Attr::float(self.config.rope_scale)),
            ("version", Attr::Int(1)),
        ];
        // Bundles call the positions `cos`.
        self.b.named(
            "rope",
            &attributes(&["input", "position_ids"], &values),
            &[x, self.lengths.positions],
        )
    }

    /// Writes `[1, h, q, d]` to the positions of this call in a layer of a cache, and reads the cache again.
    fn store(&mut self, cache: Cache, layer: usize, x: ValueId) -> Result<Cache> {
        let layer = i32::try_from(layer).unwrap_or(END);
        let zero = self.b.ints(&[0])?;
        let x = self.b.op(ExpandDims, &[x, zero])?;
        let begin = self.bounds(&[layer, 0, 0], self.lengths.past, 0)?;
        let end = self.bounds(
            &[layer.saturating_add(1), END, END],
            self.lengths.total,
            END,
        )?;
        let steps = self.b.ints(&[1; 5])?;
        let updated = self
            .b
            .op(SliceUpdate, &[cache.value, begin, end, steps, x])?;
        let token = self
            .b
            .op(WriteHandle, &[cache.handle, updated, cache.token])?;
        read(&mut self.b, cache.handle, token)
    }

    /// The positions so far of a layer of a cache: `[1, h, total, d]`.
    fn recall(&mut self, cache: Cache, layer: usize) -> Result<ValueId> {
        let layer = i32::try_from(layer).unwrap_or(END);
        let (steps, begin) = (self.b.ints(&[1; 5])?, self.b.ints(&[layer, 0, 0, 0, 0])?);
        let end = self.bounds(
            &[layer.saturating_add(1), END, END],
            self.lengths.total,
            END,
        )?;
        let part = self.b.op(Slice, &[cache.value, begin, end, steps])?;
        let zero = self.b.ints(&[0])?;
        self.b.op(ShrinkDims, &[part, zero])
    }

    /// Bounds of five axes: three integers, a length, an integer.
    fn bounds(&mut self, first: &[i32; 3], length: ValueId, last: i32) -> Result<ValueId> {
        let parts = [
            self.b.int(0)?,
            self.b.ints(first)?,
            length,
            self.b.ints(&[last])?,
        ];
        self.b.op(Concat, &parts)
    }
}

/// The input of a cache `[layers, 1, h, context, d]`.
fn cache_input(b: &mut Builder, config: &DecoderConfig, name: &str) -> ValueId {
    let shape = [
        config.layers,
        1,
        config.kv_heads,
        config.context,
        config.head_dim,
    ];
    let mutated = (Arc::from("MutableBuffers.buffer_mutation"), Attr::str(name));
    b.input(
        name,
        Type::Handle(TensorType::fixed(config.dtype, &shape)),
        vec![mutated],
    )
}

/// The value of a cache after `token`.
fn read(b: &mut Builder, handle: ValueId, token: ValueId) -> Result<Cache> {
    let [value, token] = b.ops(ReadHandle, &[handle, token])?;
    Ok(Cache {
        handle,
        value,
        token,
    })
}

fn lengths(b: &mut Builder, input_ids: ValueId, position_ids: ValueId) -> Result<Lengths> {
    let (query, total) = (length(b, input_ids)?, length(b, position_ids)?);
    let past = b.op(BroadcastingSub, &[total, query])?;
    let parts = [b.int(0)?, b.ints(&[0])?, past];
    let begin = b.op(Concat, &parts)?;
    let (end, steps) = (b.ints(&[END; 2])?, b.ints(&[1; 2])?);
    let positions = b.op(Slice, &[position_ids, begin, end, steps])?;
    Ok(Lengths {
        query,
        past,
        total,
        positions,
    })
}

/// The second extent of `[1, n]` as `[n]`.
fn length(b: &mut Builder, x: ValueId) -> Result<ValueId> {
    let shape = b.op(GetShape, &[x])?;
    let (one, two) = (b.ints(&[1])?, b.ints(&[2])?);
    let extent = b.op(Slice, &[shape, one, two, one])?;
    b.op(Cast { to: DType::I32 }, &[extent])
}
