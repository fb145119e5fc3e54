//! The numbers of a decoder, whatever file they come from.

use std::sync::Arc;

use russet_graph::types::DType;

/// No number of a config is larger: products of three stay countable.
pub(super) const LARGEST: u64 = 1 << 20;

/// The numbers of a decoder-only transformer.
#[derive(Clone, Debug, PartialEq)]
pub struct DecoderConfig {
    /// The type weights, activations and states have in the program.
    pub dtype: DType,
    /// Tokens of the vocabulary.
    pub vocab: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// What every layer does.
    pub layers: Vec<Layer>,
    /// The caches of keys and values that attending layers have rows in: one, or one for each of two kinds of heads.
    pub caches: Vec<CacheShape>,
    /// Positions the caches hold.
    pub context: usize,
    /// Added to the mean square before its root is taken.
    pub norm_eps: f64,
    /// What the gated parts apply to their gates.
    pub activation: Activation,
    /// Whether the embedding is the output matrix as well.
    pub tied: bool,
    /// Logits beyond this are bent towards it: `cap · tanh(x / cap)`.
    pub logit_cap: Option<f64>,
    /// The second embedding, with a row of its own for every layer.
    pub per_layer: Option<PerLayer>,
    /// Whether projections have biases.
    pub biases: HasBiases,
    /// Whether heads are turned by neighbours as pairs. GGUF's converter permutes the rows of llama's query and key weights so
    /// that this is right for them; Hugging Face's own order pairs the halves.
    pub rope_interleaved: bool,
}

/// Which projections have biases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HasBiases {
    /// Queries, keys and values.
    pub inputs: bool,
    /// The attention's output.
    pub output: bool,
    /// The gated part.
    pub mlp: bool,
}

/// A function of one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `x · σ(x)`.
    Silu,
    /// `x · Φ(x)`.
    Gelu,
    /// The same by a hyperbolic tangent.
    GeluTanh,
}

/// Rows of keys or values: `[rows, 1, kv_heads, context, head_dim]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheShape {
    /// Layers that write to it.
    pub rows: usize,
    /// Heads of keys and values.
    pub kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
}

/// A layer.
#[derive(Clone, Debug, PartialEq)]
pub struct Layer {
    /// How positions exchange something.
    pub mixer: Mixer,
    /// What each position does alone.
    pub mlp: Mlp,
}

/// How positions exchange something.
#[derive(Clone, Debug, PartialEq)]
pub enum Mixer {
    /// Attention.
    Attention(Attention),
    /// The gated delta rule.
    Delta(Delta),
}

/// Attention of a layer.
#[derive(Clone, Debug, PartialEq)]
pub struct Attention {
    /// Query heads.
    pub heads: usize,
    /// The cache it reads.
    pub cache: usize,
    /// The row of the cache.
    pub row: usize,
    /// Whether it writes that row; else an earlier layer has.
    pub writes: bool,
    /// Positions it sees; 0 for all.
    pub window: usize,
    /// How heads are turned.
    pub rope: Arc<Rope>,
    /// What scores are multiplied by; one over the root of the head's width where it is not said.
    pub scale: Option<f64>,
    /// Whether values are the keys before they are normalised, rather than a projection of their own.
    pub keys_are_values: bool,
}

/// How heads are turned: pair `i` by position times its frequency.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// Elements of a head that are turned; the rest stays.
    pub dims: usize,
    /// The frequencies.
    pub frequencies: Frequencies,
    /// What turned elements are multiplied by.
    pub factor: f64,
}

/// The frequency of each pair.
#[derive(Clone, Debug, PartialEq)]
pub enum Frequencies {
    /// `scale / base^(i / pairs)`.
    Base {
        /// The slowest pair turns this many times slower than the fastest.
        base: f64,
        /// Positions are multiplied by this.
        scale: f64,
    },
    /// As listed.
    Each(Vec<f32>),
    /// One list up to a length of the sequence, another beyond.
    ByLength {
        /// The first.
        short: Vec<f32>,
        /// The second.
        long: Vec<f32>,
        /// The length.
        limit: usize,
    },
}

/// The gated delta rule of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delta {
    /// The row of its states.
    pub row: usize,
    /// Heads of queries and keys.
    pub key_heads: usize,
    /// Heads of values.
    pub value_heads: usize,
    /// Width of a head of queries and keys.
    pub key_dim: usize,
    /// Width of a head of values.
    pub value_dim: usize,
    /// Positions that the convolution before it joins.
    pub kernel: usize,
}

impl Delta {
    /// Channels of the convolution: queries, keys and values.
    pub(super) fn channels(&self) -> usize {
        2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim
    }
}

/// What a position does alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mlp {
    /// A gated part of this width.
    Dense(usize),
    /// Experts.
    Experts(Experts),
    /// Both, added.
    Both(usize, Experts),
}

/// A mixture of experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Experts {
    /// How many there are.
    pub count: usize,
    /// How many are asked.
    pub used: usize,
    /// The width of one.
    pub width: usize,
    /// Whether the weights of those asked are made to sum to one.
    pub normalised: bool,
    /// The width of one more that is always asked.
    pub shared: Option<usize>,
}

/// The second embedding of Gemma 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerLayer {
    /// Its rows.
    pub vocab: usize,
    /// Its width for each layer.
    pub width: usize,
}

impl DecoderConfig {
    /// Layers of the gated delta rule.
    pub(super) fn deltas(&self) -> impl Iterator<Item = &Delta> {
        self.layers.iter().filter_map(|l| match &l.mixer {
            Mixer::Delta(delta) => Some(delta),
            Mixer::Attention(_) => None,
        })
    }
}
