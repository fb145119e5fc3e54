//! A decoder-only transformer as a graph: normalise, mix positions, add; normalise, gate, add; once a layer.
//!
//! Shapes: `q` tokens of a call, `total` positions up to and including them, `h` heads of width `d`. What an exporter would write
//! as a composite is one here: norms, rotations, attention, the delta rule and products with chosen experts.

mod attention;
mod cache;
mod delta;
mod lengths;
mod mlp;
mod moe;
mod per_layer;
mod rope;

use russet_graph::attr::Attr;
use russet_graph::graph::{ConstantData, Module, Storage, ValueId};
use russet_graph::ops::Op;
use russet_graph::ops::broadcasting_add::BroadcastingAdd;
use russet_graph::ops::broadcasting_batch_matmul::BroadcastingBatchMatmul;
use russet_graph::ops::broadcasting_mul::BroadcastingMul;
use russet_graph::ops::expand_dims::ExpandDims;
use russet_graph::ops::gather_nd::GatherNd;
use russet_graph::ops::gelu::{Approximate, Gelu};
use russet_graph::ops::silu::Silu;
use russet_graph::ops::tanh::Tanh;
use russet_graph::ops::transpose::Transpose;
use russet_graph::types::{DType, Dim, TensorType, Type};
use russet_kernels::mem::SharedBytes;

use super::config::{Activation, Layer, Mixer};
use super::weights::{LayerPart, Linear, Part, Vector, Weights, floats, narrowed};
use super::{Architecture, Builder, DecoderConfig, Result};
use crate::builder::attributes;
use cache::States;
use lengths::Lengths;

/// An end that every extent lies before.
const END: i32 = i32::MAX;

/// An extent as an integer of the graph; configs hold none that is larger.
fn extent(n: usize) -> i32 {
    i32::try_from(n).unwrap_or(END)
}

/// The module of a decoder: one function `main`.
pub(super) fn build(
    config: &DecoderConfig,
    architecture: &Architecture,
    weights: &dyn Weights,
) -> Result<Module> {
    let mut decoder = Decoder::new(config, architecture, weights)?;
    let table = decoder.weight(Part::Embedding, &[config.vocab, config.hidden])?;
    let mut x = decoder.embed(table)?;
    let own = decoder.per_layer_inputs(x)?;
    for (index, layer) in config.layers.iter().enumerate() {
        x = decoder.layer(index, layer, x, own)?;
    }
    let normed = decoder.norm(Part::Norm, config.hidden, x)?;
    let head = if config.tied {
        table
    } else {
        decoder.weight(Part::Head, &[config.vocab, config.hidden])?
    };
    let logits = decoder.product(normed, head)?;
    let logits = decoder.capped(logits)?;
    let mut outputs = decoder.states.outputs();
    outputs.push(("logits", logits));
    let graph = decoder.b.finish(&outputs);
    Ok(Module {
        graphs: vec![graph],
        attributes: Vec::new(),
    })
}

struct Decoder<'a> {
    config: &'a DecoderConfig,
    architecture: &'a Architecture,
    weights: &'a dyn Weights,
    b: Builder,
    input_ids: ValueId,
    lengths: Lengths,
    states: States,
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
        let states = States::new(&mut b, config)?;
        let lengths = Lengths::new(&mut b, input_ids, position_ids)?;
        Ok(Self {
            config,
            architecture,
            weights,
            b,
            input_ids,
            lengths,
            states,
        })
    }

    fn weight(&mut self, part: Part, shape: &[usize]) -> Result<ValueId> {
        let data = self.weights.get(part, shape, self.config.dtype)?;
        self.b.constant(data)
    }

    /// The elements of a weight, to be changed before they become a constant.
    fn elements(&self, part: Part, shape: &[usize]) -> Result<Vec<f32>> {
        Ok(floats(&self.weights.get(part, shape, DType::F32)?))
    }

    /// A constant of the program's own type.
    fn constant(&mut self, shape: &[usize], values: &[f32]) -> Result<ValueId> {
        self.constant_of(self.config.dtype, shape, values)
    }

    fn constant_of(&mut self, dtype: DType, shape: &[usize], values: &[f32]) -> Result<ValueId> {
        let bytes = narrowed(values, dtype).unwrap_or_else(|| SharedBytes::from_vec(Vec::new()));
        self.b.constant(ConstantData {
            ty: TensorType::fixed(dtype, shape),
            storage: Storage::Dense(bytes),
        })
    }

    /// One number.
    fn number(&mut self, value: f64) -> Result<ValueId> {
        self.constant(&[], &[value as f32])
    }

    fn times(&mut self, x: ValueId, by: f64) -> Result<ValueId> {
        let by = self.number(by)?;
        self.b.op(BroadcastingMul, &[x, by])
    }

    /// Rows of the table: `[1, q, hidden]`.
    fn embed(&mut self, table: ValueId) -> Result<ValueId> {
        let x = self.rows(table)?;
        match self.architecture.scaled_embedding {
            true => self.times(x, (self.config.hidden as f64).sqrt()),
            false => Ok(x),
        }
    }

    /// Rows of a table for the tokens of the call.
    fn rows(&mut self, table: ValueId) -> Result<ValueId> {
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
        linear: Linear,
        x: ValueId,
        shape: [usize; 2],
    ) -> Result<ValueId> {
        let weight = self.weight(Part::linear(layer, linear), &shape)?;
        let y = self.product(x, weight)?;
        let biases = self.config.biases;
        let biased = match linear {
            Linear::Query | Linear::Key | Linear::Value => biases.inputs,
            Linear::AttentionOut => biases.output,
            Linear::Gate | Linear::Up | Linear::Down => biases.mlp,
            _ => false,
        };
        if !biased {
            return Ok(y);
        }
        let bias = self.weight(Part::Layer(layer, LayerPart::Bias(linear)), &shape[..1])?;
        self.b.op(BroadcastingAdd, &[y, bias])
    }

    /// A norm over the last axis, of this width.
    fn norm(&mut self, part: Part, width: usize, x: ValueId) -> Result<ValueId> {
        let scale = if self.architecture.norms_from_one {
            let weights = self.elements(part, &[width])?;
            let scale: Vec<f32> = weights.iter().map(|w| 1.0 + w).collect();
            self.constant(&[width], &scale)?
        } else {
            self.weight(part, &[width])?
        };
        self.norm_by(scale, x)
    }

    /// A norm of this scale.
    fn norm_by(&mut self, scale: ValueId, x: ValueId) -> Result<ValueId> {
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

    /// A norm of the residual stream in a layer.
    fn layer_norm(&mut self, layer: usize, vector: Vector, x: ValueId) -> Result<ValueId> {
        self.norm(Part::vector(layer, vector), self.config.hidden, x)
    }

    /// A norm that only Gemma's layers have.
    fn outer_norm(&mut self, layer: usize, vector: Vector, x: ValueId) -> Result<ValueId> {
        match self.architecture.sandwich {
            true => self.layer_norm(layer, vector, x),
            false => Ok(x),
        }
    }

    fn layer(
        &mut self,
        index: usize,
        layer: &Layer,
        x: ValueId,
        own: Option<ValueId>,
    ) -> Result<ValueId> {
        let normed = self.layer_norm(index, Vector::MixerNorm, x)?;
        let mixed = match &layer.mixer {
            Mixer::Attention(attention) => self.attention(index, attention, normed)?,
            Mixer::Delta(delta) => self.delta(index, *delta, normed)?,
        };
        let mixed = self.outer_norm(index, Vector::MixerOutNorm, mixed)?;
        let x = self.b.op(BroadcastingAdd, &[x, mixed])?;
        let fed = self.mlp(index, layer.mlp, x)?;
        let fed = self.outer_norm(index, Vector::MlpOutNorm, fed)?;
        let x = self.b.op(BroadcastingAdd, &[x, fed])?;
        match self.architecture.gemma4 {
            true => self.layer_end(index, x, own),
            false => Ok(x),
        }
    }

    fn activate(&mut self, x: ValueId) -> Result<ValueId> {
        let gelu = |approximate| Op::from(Gelu { approximate });
        let op = match self.config.activation {
            Activation::Silu => Silu.into(),
            Activation::Gelu => gelu(Approximate::None),
            Activation::GeluTanh => gelu(Approximate::Tanh),
        };
        self.b.op(op, &[x])
    }

    /// Logits bent towards a cap.
    fn capped(&mut self, logits: ValueId) -> Result<ValueId> {
        let Some(cap) = self.config.logit_cap else {
            return Ok(logits);
        };
        let small = self.times(logits, 1.0 / cap)?;
        let bent = self.b.op(Tanh, &[small])?;
        self.times(bent, cap)
    }
}
