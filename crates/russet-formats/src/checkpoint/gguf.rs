//! Checkpoints in GGUF files: numbers from the metadata, weights as the file keeps them.

use std::cell::RefCell;
use std::collections::HashSet;
use std::sync::Arc;

use russet_graph::graph::{ConstantData, Storage};
use russet_graph::types::{DType, TensorType};

use super::config::{
    Activation, Attention, CacheShape, Frequencies, HasBiases, LARGEST, Layer, Mixer, Mlp, Rope,
};
use super::weights::{LayerPart, Linear, Part, Vector, Weights, converted};
use super::{Architecture, CheckpointError, DEFAULT_CONTEXT, DecoderConfig, Options, Result};
use crate::gguf::{Decoding, Gguf, GgufError, Metadata, Problem, TensorInfo};

/// Reads `ARCHITECTURE.name` keys.
struct Keys<'a> {
    metadata: &'a Metadata,
    prefix: &'static str,
}

impl Keys<'_> {
    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.prefix)
    }

    fn error(&self, name: &str, why: String) -> GgufError {
        self.metadata.error(&self.key(name), Problem::Value(why))
    }

    /// A number from 1 to [`LARGEST`], where the key is there.
    fn optional(&self, name: &str) -> Result<Option<usize>> {
        let Some(value) = self.metadata.u64(&self.key(name))? else {
            return Ok(None);
        };
        let fits = usize::try_from(value)
            .ok()
            .filter(|v| (1..=LARGEST).contains(&(*v as u64)));
        Ok(Some(fits.ok_or_else(|| {
            self.error(name, format!("is {value}, which is outside 1 to {LARGEST}"))
        })?))
    }

    fn required(&self, name: &str) -> Result<usize> {
        let value = self.optional(name)?;
        Ok(self.metadata.required(&self.key(name), value)?)
    }

    fn float(&self, name: &str) -> Result<Option<f64>> {
        let Some(value) = self.metadata.f64(&self.key(name))? else {
            return Ok(None);
        };
        let usable = value.is_finite() && value > 0.0;
        if usable {
            Ok(Some(value))
        } else {
            Err(self.error(name, format!("is {value}")).into())
        }
    }

    /// Fails where the key is there with a value other than zero: it asks for something that is not built.
    fn absent(&self, name: &str) -> Result<()> {
        match self.metadata.u64(&self.key(name))? {
            None | Some(0) => Ok(()),
            Some(v) => Err(self
                .error(name, format!("is {v}, which is not supported"))
                .into()),
        }
    }
}

/// The numbers of a file.
pub(super) fn config(
    file: &Gguf,
    architecture: &Architecture,
    options: Options,
) -> Result<DecoderConfig> {
    let keys = Keys {
        metadata: file.metadata(),
        prefix: architecture.name,
    };
    for name in ["expert_count", "attention.sliding_window"] {
        keys.absent(name)?;
    }
    let (hidden, heads) = (
        keys.required("embedding_length")?,
        keys.required("attention.head_count")?,
    );
    let cache = cache(&keys, hidden, heads)?;
    let longest = keys.required("context_length")?;
    let epsilon = "attention.layer_norm_rms_epsilon";
    Ok(DecoderConfig {
        dtype: options.dtype.unwrap_or_else(|| dtype(file)),
        vocab: vocab(file, &keys)?,
        hidden,
        layers: layers(&keys, cache, heads)?,
        caches: vec![cache],
        context: options.context.unwrap_or(DEFAULT_CONTEXT).clamp(1, longest),
        norm_eps: keys
            .metadata
            .required(&keys.key(epsilon), keys.float(epsilon)?)?,
        activation: Activation::Silu,
        tied: file.tensor(&name_of(Part::Head)).is_none(),
        logit_cap: None,
        per_layer: None,
        biases: HasBiases::default(),
        rope_interleaved: true,
    })
}

/// The cache that all layers share.
fn cache(keys: &Keys<'_>, hidden: usize, heads: usize) -> Result<CacheShape> {
    let kv_heads = keys.optional("attention.head_count_kv")?.unwrap_or(heads);
    if !heads.is_multiple_of(kv_heads) {
        let why = format!("{heads} heads cannot share {kv_heads}");
        return Err(keys.error("attention.head_count_kv", why).into());
    }
    Ok(CacheShape {
        rows: keys.required("block_count")?,
        kv_heads,
        head_dim: head_dim(keys, hidden, heads)?,
    })
}

/// Layers that all do the same.
fn layers(keys: &Keys<'_>, cache: CacheShape, heads: usize) -> Result<Vec<Layer>> {
    let rope = Arc::new(Rope {
        dims: cache.head_dim,
        frequencies: Frequencies::Base {
            base: keys.float("rope.freq_base")?.unwrap_or(10_000.0),
            scale: rope_scale(keys)?,
        },
        factor: 1.0,
    });
    let width = keys.required("feed_forward_length")?;
    let layer = |row| Layer {
        mixer: Mixer::Attention(Attention {
            heads,
            cache: 0,
            row,
            writes: true,
            window: 0,
            rope: rope.clone(),
            scale: None,
            keys_are_values: false,
        }),
        mlp: Mlp::Dense(width),
    };
    Ok((0..cache.rows).map(layer).collect())
}

/// The width of a head; all of it must be rotated, and values must be as wide as keys.
fn head_dim(keys: &Keys<'_>, hidden: usize, heads: usize) -> Result<usize> {
    let width = match keys.optional("attention.key_length")? {
        Some(width) => width,
        None if hidden.is_multiple_of(heads) => hidden / heads,
        None => {
            return Err(keys
                .error("attention.head_count", format!("{heads} heads in {hidden}"))
                .into());
        }
    };
    for name in [
        "attention.key_length",
        "attention.value_length",
        "rope.dimension_count",
    ] {
        match keys.optional(name)? {
            Some(other) if other != width => {
                return Err(keys
                    .error(
                        name,
                        format!("is {other}; only the width of a head, {width}, is supported"),
                    )
                    .into());
            }
            _ => {}
        }
    }
    if width.is_multiple_of(2) {
        Ok(width)
    } else {
        Err(keys
            .error("rope.dimension_count", format!("{width} is odd"))
            .into())
    }
}

/// Linear position scaling; other kinds change the frequencies and are refused.
fn rope_scale(keys: &Keys<'_>) -> Result<f64> {
    let name = "rope.scaling.type";
    match keys.metadata.text(&keys.key(name))?.map(|s| &**s) {
        None | Some("none") => Ok(1.0),
        Some("linear") => Ok(1.0 / keys.float("rope.scaling.factor")?.unwrap_or(1.0)),
        Some(other) => Err(keys
            .error(name, format!("is {other:?}, which is not supported"))
            .into()),
    }
}

/// The rows of the embedding, which the config must agree with.
fn vocab(file: &Gguf, keys: &Keys<'_>) -> Result<usize> {
    let name = name_of(Part::Embedding);
    let tensor = file.tensor(&name);
    let tensor = tensor.ok_or_else(|| file.metadata().error(&name, Problem::Missing))?;
    let rows = tensor.shape().next().unwrap_or(0);
    let fits = usize::try_from(rows)
        .ok()
        .filter(|_| (1..=LARGEST).contains(&rows));
    let rows = fits.ok_or_else(|| tensor.error(Problem::Value(format!("has {rows} rows"))))?;
    match keys.optional("vocab_size")? {
        Some(said) if said != rows => Err(keys
            .error(
                "vocab_size",
                format!("is {said}, the embedding has {rows} rows"),
            )
            .into()),
        _ => Ok(rows),
    }
}

/// The type the program computes in: that of the matrices where they are plain f32 or bf16, f16 otherwise.
fn dtype(file: &Gguf) -> DType {
    let first = file.tensor(&name_of(Part::linear(0, Linear::Query)));
    match first.and_then(|t| t.kind().decoding()) {
        Some(Decoding::Dense(d @ (DType::F32 | DType::BF16))) => d,
        _ => DType::F16,
    }
}

/// The parts of a layer by their names.
const NAMES: [(LayerPart, &str); 9] = [
    (LayerPart::Vector(Vector::MixerNorm), "attn_norm"),
    (LayerPart::Linear(Linear::Query), "attn_q"),
    (LayerPart::Linear(Linear::Key), "attn_k"),
    (LayerPart::Linear(Linear::Value), "attn_v"),
    (LayerPart::Linear(Linear::AttentionOut), "attn_output"),
    (LayerPart::Vector(Vector::MlpNorm), "ffn_norm"),
    (LayerPart::Linear(Linear::Gate), "ffn_gate"),
    (LayerPart::Linear(Linear::Up), "ffn_up"),
    (LayerPart::Linear(Linear::Down), "ffn_down"),
];

/// The name of the tensor that plays a part.
fn name_of(part: Part) -> String {
    match part {
        Part::Embedding => "token_embd.weight".into(),
        Part::Norm => "output_norm.weight".into(),
        Part::Head => "output.weight".into(),
        Part::Layer(layer, part) => {
            let known = NAMES.iter().find(|(p, _)| *p == part);
            format!("blk.{layer}.{}.weight", known.map_or("?", |(_, name)| name))
        }
        Part::PerLayerEmbedding | Part::PerLayerProjection | Part::PerLayerNorm => "?".into(),
    }
}

/// The tensors of a GGUF file, with a note of those that were asked for.
pub(super) struct GgufWeights<'a> {
    file: &'a Gguf,
    used: RefCell<HashSet<Arc<str>>>,
}

impl<'a> GgufWeights<'a> {
    pub(super) fn new(file: &'a Gguf) -> Self {
        Self {
            file,
            used: RefCell::default(),
        }
    }

    /// Fails where a tensor was never asked for: it would have changed the results.
    pub(super) fn all_used(&self) -> Result<()> {
        let used = self.used.borrow();
        let unused = self
            .file
            .tensors()
            .iter()
            .find(|t| !used.contains(t.name()));
        unused.map_or(Ok(()), |t| {
            Err(CheckpointError::Unused(t.name().to_string()))
        })
    }

    fn storage(&self, tensor: &TensorInfo, dtype: DType) -> Result<Storage> {
        let unknown = || tensor.error(Problem::UnknownType(tensor.kind().to_string()));
        let data = self.file.data(tensor)?;
        match tensor.kind().decoding().ok_or_else(unknown)? {
            Decoding::Blocks(format) => Ok(Storage::Blocks(format, data)),
            Decoding::Dense(from) if from == dtype => Ok(Storage::Dense(data)),
            Decoding::Dense(from) => Ok(Storage::Dense(
                converted(&data, from, dtype).ok_or_else(unknown)?,
            )),
        }
    }
}

impl Weights for GgufWeights<'_> {
    fn get(&self, part: Part, shape: &[usize], dtype: DType) -> Result<ConstantData> {
        let name = name_of(part);
        let missing = || self.file.metadata().error(&name, Problem::Missing);
        let tensor = self.file.tensor(&name).ok_or_else(missing)?;
        if !tensor.shape().eq(shape.iter().map(|&d| d as u64)) {
            let got: Vec<u64> = tensor.shape().collect();
            return Err(tensor
                .error(Problem::Value(format!(
                    "has shape {got:?} where {shape:?} is needed"
                )))
                .into());
        }
        self.used.borrow_mut().insert(tensor.name().clone());
        let data = ConstantData {
            ty: TensorType::fixed(dtype, shape),
            storage: self.storage(tensor, dtype)?,
        };
        match data.problem() {
            Some(problem) => Err(tensor.error(Problem::Value(problem)).into()),
            None => Ok(data),
        }
    }
}
