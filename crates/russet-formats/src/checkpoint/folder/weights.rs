//! Weights by their names in a Hugging Face folder: prefixes of composite models, matrices stored as one, experts apart or stacked.

use std::cell::RefCell;
use std::collections::HashSet;

use russet_graph::graph::{ConstantData, Storage};
use russet_graph::types::{DType, TensorType};

use super::super::config::{Experts, Mixer, Mlp};
use super::super::weights::{LayerPart, Linear, Part, Vector, Weights, converted};
use super::super::{Architecture, CheckpointError, DecoderConfig, Result};
use super::Folder;

/// Before the names of the decoder's weights, and before the output matrix: a language model alone, or in a composite one.
const PREFIXES: [(&str, &str); 4] = [
    ("model.language_model.", ""),
    ("language_model.model.", "language_model."),
    ("model.", ""),
    ("", ""),
];

/// The matrices of a layer.
const LINEARS: &[(Linear, &str)] = &[
    (Linear::Query, "self_attn.q_proj"),
    (Linear::Key, "self_attn.k_proj"),
    (Linear::Value, "self_attn.v_proj"),
    (Linear::AttentionOut, "self_attn.o_proj"),
    (Linear::Gate, "mlp.gate_proj"),
    (Linear::Up, "mlp.up_proj"),
    (Linear::Down, "mlp.down_proj"),
    (Linear::Router, "mlp.gate"),
    (Linear::SharedGate, "mlp.shared_expert.gate_proj"),
    (Linear::SharedUp, "mlp.shared_expert.up_proj"),
    (Linear::SharedDown, "mlp.shared_expert.down_proj"),
    (Linear::SharedScore, "mlp.shared_expert_gate"),
    (Linear::DeltaIn, "linear_attn.in_proj_qkv"),
    (Linear::DeltaGate, "linear_attn.in_proj_z"),
    (Linear::DeltaBeta, "linear_attn.in_proj_b"),
    (Linear::DeltaDecay, "linear_attn.in_proj_a"),
    (Linear::DeltaOut, "linear_attn.out_proj"),
    (Linear::PerLayerGate, "per_layer_input_gate"),
    (Linear::PerLayerOut, "per_layer_projection"),
];

/// Other numbers of a layer.
const VECTORS: &[(Vector, &str)] = &[
    (Vector::MixerNorm, "input_layernorm.weight"),
    (Vector::MixerOutNorm, "post_attention_layernorm.weight"),
    (Vector::MlpNorm, "post_attention_layernorm.weight"),
    (Vector::MlpOutNorm, "post_feedforward_layernorm.weight"),
    (Vector::QueryNorm, "self_attn.q_norm.weight"),
    (Vector::KeyNorm, "self_attn.k_norm.weight"),
    (Vector::DenseOutNorm, "post_feedforward_layernorm_1.weight"),
    (Vector::ExpertsNorm, "pre_feedforward_layernorm_2.weight"),
    (
        Vector::ExpertsOutNorm,
        "post_feedforward_layernorm_2.weight",
    ),
    (Vector::RouterScale, "router.scale"),
    (Vector::ExpertScale, "router.per_expert_scale"),
    (Vector::DeltaKernel, "linear_attn.conv1d.weight"),
    (Vector::DeltaLog, "linear_attn.A_log"),
    (Vector::DeltaBias, "linear_attn.dt_bias"),
    (Vector::DeltaNorm, "linear_attn.norm.weight"),
    (Vector::PerLayerOutNorm, "post_per_layer_input_norm.weight"),
    (Vector::LayerScale, "layer_scalar"),
];

/// Beginnings of names of other parts of a composite model, without or with `model.` before them, and of heads that only
/// training and speculation use.
const TOWERS: [&str; 9] = [
    "audio_tower.",
    "embed_audio.",
    "embed_vision.",
    "mm_projector.",
    "mtp.",
    "multi_modal_projector.",
    "vision_model.",
    "vision_tower.",
    "visual.",
];

/// What layers that read another's keys carry along.
const UNREAD: [&str; 4] = [
    "self_attn.k_proj.weight",
    "self_attn.v_proj.weight",
    "self_attn.k_norm.weight",
    "self_attn.v_norm.weight",
];

/// Where a weight lies: rows of a tensor, all leading axes taken together.
struct Place {
    name: String,
    /// Extents of the tensor.
    whole: Vec<usize>,
    /// The first row.
    first: usize,
}

impl Place {
    fn all(name: String, shape: &[usize]) -> Self {
        Self::rows(name, shape.to_vec(), 0)
    }

    fn rows(name: String, whole: Vec<usize>, first: usize) -> Self {
        Self { name, whole, first }
    }
}

/// The tensors of a folder, with a note of those that were asked for.
pub(super) struct FolderWeights<'a> {
    folder: &'a Folder,
    config: &'a DecoderConfig,
    row: &'a Architecture,
    prefix: (&'static str, &'static str),
    used: RefCell<HashSet<String>>,
}

impl<'a> FolderWeights<'a> {
    pub(super) fn new(
        folder: &'a Folder,
        config: &'a DecoderConfig,
        row: &'a Architecture,
    ) -> Result<Self> {
        let prefix = prefix(folder)?;
        Ok(Self {
            folder,
            config,
            row,
            prefix,
            used: RefCell::default(),
        })
    }

    /// Fails where a tensor was never asked for: it would have changed the results.
    pub(super) fn all_used(&self) -> Result<()> {
        let used = self.used.borrow();
        let mut names: Vec<&str> = self.folder.tensors().map(|(name, _)| name).collect();
        names.sort_unstable();
        let unused = names
            .into_iter()
            .find(|n| !used.contains(*n) && !elsewhere(n) && !self.unread(n));
        unused.map_or(Ok(()), |n| Err(CheckpointError::Unused(n.into())))
    }

    /// A tensor that is known and need not be read.
    pub(super) fn pass(&self, name: String) {
        self.used.borrow_mut().insert(name);
    }

    /// Whether it is what a layer carries that reads another's keys.
    fn unread(&self, name: &str) -> bool {
        let rest = name.strip_prefix(self.prefix.0);
        let rest = rest.and_then(|n| n.strip_prefix("layers."));
        let Some((layer, rest)) = rest.and_then(|n| n.split_once('.')) else {
            return false;
        };
        let layer = layer.parse::<usize>().ok();
        let layer = layer.and_then(|i| self.config.layers.get(i));
        let reads = |m: &Mixer| matches!(m, Mixer::Attention(a) if !a.writes);
        UNREAD.contains(&rest) && layer.is_some_and(|l| reads(&l.mixer))
    }

    /// Where a part may lie, the likeliest first.
    fn places(&self, part: Part, shape: &[usize]) -> Vec<Place> {
        let (model, head) = self.prefix;
        let whole = |name: &str| vec![Place::all(format!("{model}{name}"), shape)];
        match part {
            Part::Embedding => whole("embed_tokens.weight"),
            Part::Norm => whole("norm.weight"),
            Part::Head => vec![Place::all(format!("{head}{HEAD}"), shape)],
            Part::PerLayerEmbedding => whole("embed_tokens_per_layer.weight"),
            Part::PerLayerProjection => whole("per_layer_model_projection.weight"),
            Part::PerLayerNorm => whole("per_layer_projection_norm.weight"),
            Part::Layer(layer, part) => {
                let before = format!("{model}layers.{layer}.");
                self.layer_places(layer, &before, part, shape)
            }
        }
    }

    fn layer_places(
        &self,
        layer: usize,
        before: &str,
        part: LayerPart,
        shape: &[usize],
    ) -> Vec<Place> {
        match part {
            LayerPart::Vector(vector) => {
                let name = match vector {
                    Vector::MlpNorm if self.row.sandwich => "pre_feedforward_layernorm.weight",
                    _ => found(VECTORS, vector),
                };
                vec![Place::all(format!("{before}{name}"), shape)]
            }
            LayerPart::Bias(linear) => {
                vec![Place::all(
                    format!("{before}{}.bias", found(LINEARS, linear)),
                    shape,
                )]
            }
            LayerPart::Linear(linear) => self.linear_places(layer, before, linear, shape),
        }
    }

    fn linear_places(
        &self,
        layer: usize,
        before: &str,
        linear: Linear,
        shape: &[usize],
    ) -> Vec<Place> {
        let own = |name: &str| Place::all(format!("{before}{name}.weight"), shape);
        let expert = match linear {
            Linear::ExpertGate(e) => Some((e, "gate_proj", "gate_up_proj", [2, 0])),
            Linear::ExpertUp(e) => Some((e, "up_proj", "gate_up_proj", [2, 1])),
            Linear::ExpertDown(e) => Some((e, "down_proj", "down_proj", [1, 0])),
            _ => None,
        };
        if let Some((e, apart, stacked, [of, at])) = expert {
            let inside = if self.row.gemma4 { "" } else { "mlp." };
            let count = self.experts(layer).map_or(0, |x| x.count);
            let (rows, columns) = extents(shape);
            let whole = vec![count, of * rows, columns];
            let stacked = format!("{before}{inside}experts.{stacked}");
            return vec![
                own(&format!("{inside}experts.{e}.{apart}")),
                Place::rows(stacked, whole, (e * of + at) * rows),
            ];
        }
        match linear {
            Linear::Router if self.row.gemma4 => vec![own("router.proj")],
            _ if self.row.fused => self.fused(layer, before, linear, shape),
            _ => vec![own(found(LINEARS, linear))],
        }
    }

    /// Matrices that are stored as one.
    fn fused(&self, layer: usize, before: &str, linear: Linear, shape: &[usize]) -> Vec<Place> {
        let (rows, columns) = extents(shape);
        let heads = self.heads(layer);
        let [query, key] = heads;
        let (name, all, first) = match linear {
            Linear::Query => ("self_attn.qkv_proj", query + 2 * key, 0),
            Linear::Key => ("self_attn.qkv_proj", query + 2 * key, query),
            Linear::Value => ("self_attn.qkv_proj", query + 2 * key, query + key),
            Linear::Gate => ("mlp.gate_up_proj", 2 * rows, 0),
            Linear::Up => ("mlp.gate_up_proj", 2 * rows, rows),
            other => (found(LINEARS, other), rows, 0),
        };
        let name = format!("{before}{name}.weight");
        vec![Place::rows(name, vec![all, columns], first)]
    }

    /// Rows of queries, and of keys or values.
    fn heads(&self, layer: usize) -> [usize; 2] {
        let layer = self.config.layers.get(layer).map(|l| &l.mixer);
        let Some(Mixer::Attention(attention)) = layer else {
            return [0, 0];
        };
        let cache = self.config.caches.get(attention.cache).copied();
        let cache = cache.unwrap_or_default();
        [
            attention.heads * cache.head_dim,
            cache.kv_heads * cache.head_dim,
        ]
    }

    fn experts(&self, layer: usize) -> Option<Experts> {
        match self.config.layers.get(layer)?.mlp {
            Mlp::Dense(_) => None,
            Mlp::Experts(experts) | Mlp::Both(_, experts) => Some(experts),
        }
    }
}

/// The name of the output matrix.
const HEAD: &str = "lm_head.weight";

/// Rows and columns.
fn extents(shape: &[usize]) -> (usize, usize) {
    match shape {
        [rows, columns] => (*rows, *columns),
        _ => (0, 0),
    }
}

fn found<T: PartialEq + Copy>(table: &[(T, &'static str)], part: T) -> &'static str {
    let row = table.iter().find(|(p, _)| *p == part);
    row.map_or("?", |(_, name)| *name)
}

fn prefix(folder: &Folder) -> Result<(&'static str, &'static str)> {
    let embedding = |before: &str| format!("{before}embed_tokens.weight");
    let found = PREFIXES
        .iter()
        .find(|(before, _)| folder.tensor(&embedding(before)).is_some());
    found
        .copied()
        .ok_or_else(|| CheckpointError::Missing(embedding("model.")))
}

/// Whether a tensor belongs to another part of a composite model, or is a table that is computed anew.
fn elsewhere(name: &str) -> bool {
    let inner = name.strip_prefix("model.").unwrap_or(name);
    TOWERS.iter().any(|t| inner.starts_with(t)) || name.ends_with("rotary_emb.inv_freq")
}

/// Whether the folder has an output matrix of its own: one that is there and differs from the embedding counts even where the
/// config says that there is none (transformers 5).
pub(super) fn has_head(folder: &Folder) -> Result<bool> {
    let (model, head) = prefix(folder)?;
    let pair = [
        format!("{head}{HEAD}"),
        format!("{model}embed_tokens.weight"),
    ];
    let [head, table] = pair.map(|name| folder.tensor(&name).map(|(_, file, t)| (t, file.data(t))));
    Ok(head.is_some()
        && head
            .as_ref()
            .map(|h| (h.0.dtype, &h.0.shape, h.1.as_deref()))
            != table
                .as_ref()
                .map(|t| (t.0.dtype, &t.0.shape, t.1.as_deref())))
}

/// The name that an output matrix has which equals the embedding.
pub(super) fn head_name(folder: &Folder) -> Result<String> {
    Ok(format!("{}{HEAD}", prefix(folder)?.1))
}

impl Weights for FolderWeights<'_> {
    fn get(&self, part: Part, shape: &[usize], dtype: DType) -> Result<ConstantData> {
        let places = self.places(part, shape);
        let first = places.first().map(|p| p.name.clone()).unwrap_or_default();
        let place = places
            .into_iter()
            .find(|p| self.folder.tensor(&p.name).is_some());
        let place = place.ok_or_else(|| CheckpointError::Missing(first.clone()))?;
        let (file, open, entry) = self
            .folder
            .tensor(&place.name)
            .ok_or(CheckpointError::Missing(first))?;
        let wrong = |reason: String| CheckpointError::Tensor {
            file: file.into(),
            name: place.name.clone(),
            reason,
        };
        if entry.shape != place.whole {
            let (got, want) = (&entry.shape, &place.whole);
            return Err(wrong(format!("has shape {got:?} where {want:?} is needed")));
        }
        self.used.borrow_mut().insert(place.name.clone());
        let size = entry.dtype.packed_len(1).unwrap_or(1);
        let elements: usize = shape.iter().product();
        let row = shape.iter().skip(1).product::<usize>() * size;
        let range = place.first * row..place.first * row + elements * size;
        let data = open.data(entry).and_then(|d| d.slice(range));
        let data = data.ok_or_else(|| wrong("has too few rows".into()))?;
        let shared = entry.dtype == dtype && data.as_ptr().addr().is_multiple_of(size);
        let bytes = match shared {
            true => Some(data),
            false => converted(&data, entry.dtype, dtype),
        };
        let kind = || wrong(format!("has elements of kind {}, not floats", entry.dtype));
        Ok(ConstantData {
            ty: TensorType::fixed(dtype, shape),
            storage: Storage::Dense(bytes.ok_or_else(kind)?),
        })
    }
}
