//! Weights by the part they play. Where they come from is the business of `gguf.rs` and `folder/`.

use half::{bf16, f16};
use russet_graph::graph::{ConstantData, Storage};
use russet_graph::types::DType;
use russet_kernels::convert::convert;
use russet_kernels::elem::Elem;
use russet_kernels::mem::{SharedBytes, bytes_of};

use super::Result;

/// A matrix that rows are multiplied with, `[out, in]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Linear {
    Query,
    Key,
    Value,
    AttentionOut,
    Gate,
    Up,
    Down,
    /// Scores of experts.
    Router,
    /// The expert that is always asked.
    SharedGate,
    SharedUp,
    SharedDown,
    /// How much of it counts, `[1, in]`.
    SharedScore,
    /// One expert of many.
    ExpertGate(usize),
    ExpertUp(usize),
    ExpertDown(usize),
    /// Queries, keys and values of the delta rule.
    DeltaIn,
    /// What its output is multiplied by.
    DeltaGate,
    /// How much of a value is written.
    DeltaBeta,
    /// How much is forgotten.
    DeltaDecay,
    DeltaOut,
    /// What of a layer's own embedding counts.
    PerLayerGate,
    PerLayerOut,
}

/// Numbers that are multiplied or added element by element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Vector {
    /// Before attention or the delta rule.
    MixerNorm,
    /// After it.
    MixerOutNorm,
    MlpNorm,
    MlpOutNorm,
    QueryNorm,
    KeyNorm,
    /// Gemma 4: after the gated part, before and after the experts beside it.
    DenseOutNorm,
    ExpertsNorm,
    ExpertsOutNorm,
    /// Gemma 4: of the scores' input, and of each expert's weight.
    RouterScale,
    ExpertScale,
    /// `[channels, 1, kernel]`.
    DeltaKernel,
    DeltaLog,
    DeltaBias,
    DeltaNorm,
    PerLayerOutNorm,
    /// What the layer's result is multiplied by, `[1]`.
    LayerScale,
}

/// A weight of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LayerPart {
    Linear(Linear),
    Bias(Linear),
    Vector(Vector),
}

/// A weight of a decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Embedding,
    Norm,
    Head,
    /// The second embedding, `[vocab, layers · width]`.
    PerLayerEmbedding,
    /// What the first embedding adds to it.
    PerLayerProjection,
    PerLayerNorm,
    Layer(usize, LayerPart),
}

impl Part {
    /// A matrix of a layer.
    pub(super) fn linear(layer: usize, linear: Linear) -> Self {
        Self::Layer(layer, LayerPart::Linear(linear))
    }

    /// Other numbers of a layer.
    pub(super) fn vector(layer: usize, vector: Vector) -> Self {
        Self::Layer(layer, LayerPart::Vector(vector))
    }
}

/// Where weights come from.
pub(super) trait Weights {
    /// The weight that plays `part`, of this shape, decoding to `dtype`.
    fn get(&self, part: Part, shape: &[usize], dtype: DType) -> Result<ConstantData>;
}

/// The elements of a dense constant of f32.
pub(super) fn floats(data: &ConstantData) -> Vec<f32> {
    let (words, _) = data.storage.bytes().as_chunks();
    let each = match data.storage {
        Storage::Splat(_) => data.len(),
        _ => 1,
    };
    let words = words.iter().map(|&b| f32::from_le_bytes(b));
    words.flat_map(|v| std::iter::repeat_n(v, each)).collect()
}

/// Elements that are converted at a time.
const PIECE: usize = 4096;

/// Floats as bytes of a type; `None` for other than floats.
pub(super) fn narrowed(wide: &[f32], to: DType) -> Option<SharedBytes> {
    let mut out = Vec::with_capacity(to.packed_len(wide.len())?);
    narrow(wide, to, &mut out)?;
    Some(SharedBytes::from_vec(out))
}

/// Plain numbers rounded to another type: norms, which files keep in f32, and odd matrices. `None` for other than floats.
pub(super) fn converted(data: &[u8], from: DType, to: DType) -> Option<SharedBytes> {
    let (size, elements) = (from.packed_len(1)?, data.len() / from.packed_len(1)?.max(1));
    let mut out = Vec::with_capacity(to.packed_len(elements)?);
    let mut wide = Vec::with_capacity(PIECE);
    for piece in data.chunks(PIECE * size) {
        wide.clear();
        widen(piece, from, &mut wide)?;
        narrow(&wide, to, &mut out)?;
    }
    Some(SharedBytes::from_vec(out))
}

fn widen(data: &[u8], from: DType, out: &mut Vec<f32>) -> Option<()> {
    match from {
        DType::F32 => out.extend(data.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b))),
        DType::F16 => {
            let halves = data.as_chunks().0.iter();
            out.extend(halves.map(|&b| f16::from_le_bytes(b).to_f32()));
        }
        DType::BF16 => {
            let halves = data.as_chunks().0.iter();
            out.extend(halves.map(|&b| bf16::from_le_bytes(b).to_f32()));
        }
        _ => return None,
    }
    Some(())
}

fn narrow(wide: &[f32], to: DType, out: &mut Vec<u8>) -> Option<()> {
    match to {
        DType::F32 => append::<f32>(wide, out),
        DType::F16 => append::<f16>(wide, out),
        DType::BF16 => append::<bf16>(wide, out),
        _ => return None,
    }
    Some(())
}

fn append<T: Elem>(wide: &[f32], out: &mut Vec<u8>) {
    let mut narrow = vec![T::ZERO; wide.len()];
    convert(wide, &mut narrow);
    out.extend_from_slice(bytes_of(&narrow));
}
