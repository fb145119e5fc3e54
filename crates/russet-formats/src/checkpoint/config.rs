//! The numbers of a decoder, from the metadata of a file.

use russet_graph::types::DType;

use super::weights::{LayerPart, Part};
use super::{Architecture, DEFAULT_CONTEXT, Options, Result};
use crate::gguf::{Decoding, Gguf, GgufError, Metadata, Problem};

/// No number of a config is larger: products of three stay countable.
const LARGEST: u64 = 1 << 20;

/// The numbers of a decoder-only transformer.
#[derive(Clone, Debug, PartialEq)]
pub struct DecoderConfig {
    /// The type weights, activations and caches have in the program.
    pub dtype: DType,
    /// Tokens of the vocabulary.
    pub vocab: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Layers.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Width of the gated part of a layer.
    pub intermediate: usize,
    /// Positions the caches hold.
    pub context: usize,
    /// Added to the mean square before its root is taken.
    pub norm_eps: f64,
    /// Base of the rotary frequencies.
    pub rope_base: f64,
    /// Positions are multiplied by this before rotation.
    pub rope_scale: f64,
    /// Whether the embedding is the output matrix as well.
    pub tied: bool,
}

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

impl DecoderConfig {
    pub(super) fn from_gguf(
        file: &Gguf,
        architecture: &Architecture,
        options: Options,
    ) -> Result<Self> {
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
        let head_dim = head_dim(&keys, hidden, heads)?;
        let kv_heads = keys.optional("attention.head_count_kv")?.unwrap_or(heads);
        if !heads.is_multiple_of(kv_heads) {
            let why = format!("{heads} heads cannot share {kv_heads}");
            return Err(keys.error("attention.head_count_kv", why).into());
        }
        let longest = keys.required("context_length")?;
        Ok(Self {
            dtype: dtype(file),
            vocab: vocab(file, &keys)?,
            hidden,
            layers: keys.required("block_count")?,
            heads,
            kv_heads,
            head_dim,
            intermediate: keys.required("feed_forward_length")?,
            context: options.context.unwrap_or(DEFAULT_CONTEXT).clamp(1, longest),
            norm_eps: keys.metadata.required(
                &keys.key("attention.layer_norm_rms_epsilon"),
                keys.float("attention.layer_norm_rms_epsilon")?,
            )?,
            rope_base: keys.float("rope.freq_base")?.unwrap_or(10_000.0),
            rope_scale: rope_scale(&keys)?,
            tied: file.tensor(&Part::Head.gguf_name()).is_none(),
        })
    }
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
    let name = Part::Embedding.gguf_name();
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
    let first = file.tensor(&Part::Layer(0, LayerPart::Query).gguf_name());
    match first.and_then(|t| t.kind().decoding()) {
        Some(Decoding::Dense(d @ (DType::F32 | DType::BF16))) => d,
        _ => DType::F16,
    }
}
