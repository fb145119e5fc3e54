//! The numbers of a decoder, from `config.json`.

use std::sync::Arc;

use russet_graph::types::DType;
use serde_json::Value;

use super::super::architecture::{Biases, Experts as Has, Pattern, Scale};
use super::super::config::{
    Activation, Attention, CacheShape, Delta, Experts, HasBiases, Layer, Mixer, Mlp, PerLayer, Rope,
};
use super::super::{Architecture, DEFAULT_CONTEXT, DecoderConfig, Options, Result};
use super::keys::Keys;
use super::rope::{Kind, rope};

/// What a layer does with positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    Full,
    Window,
    Linear,
}

/// Its names in `layer_types`.
const DOES: [(&str, Does); 3] = [
    ("full_attention", Does::Full),
    ("sliding_attention", Does::Window),
    ("linear_attention", Does::Linear),
];

/// Names of activations.
const ACTIVATIONS: [(&str, Activation); 5] = [
    ("silu", Activation::Silu),
    ("swish", Activation::Silu),
    ("gelu", Activation::Gelu),
    ("gelu_new", Activation::GeluTanh),
    ("gelu_pytorch_tanh", Activation::GeluTanh),
];

/// Keys that ask for something else than what is built where they are true.
const REFUSED: [&str; 2] = ["attn_logit_softcapping", "quantization_config"];

/// A config costs its own size to read, not that of the layers it claims.
const MOST_LAYERS: usize = 4096;

struct Reader<'a> {
    keys: &'a Keys<'a>,
    row: &'static Architecture,
    hidden: usize,
    does: Vec<Does>,
}

/// The numbers of a config; `tied` is what the config around it says of the output matrix.
pub(super) fn config(
    keys: &Keys<'_>,
    row: &'static Architecture,
    tied: Option<bool>,
    options: Options,
) -> Result<DecoderConfig> {
    let hidden = keys.required("hidden_size")?;
    let layers = keys.required("num_hidden_layers")?;
    if layers > MOST_LAYERS {
        let why = format!("is {layers}; no more than {MOST_LAYERS} are expected");
        return Err(keys.error("num_hidden_layers", why));
    }
    let reader = Reader {
        keys,
        row,
        hidden,
        does: does(keys, row, layers)?,
    };
    for name in REFUSED {
        if let Some(value) = keys.get(name) {
            return Err(keys.error(name, format!("is {value}, which is not supported")));
        }
    }
    let (layers, caches) = reader.layers()?;
    let longest = keys.number("max_position_embeddings");
    let longest = longest.ok().flatten().unwrap_or(usize::MAX).max(1);
    let made = DecoderConfig {
        dtype: options.dtype.unwrap_or(DType::F32),
        vocab: keys.required("vocab_size")?,
        hidden,
        layers,
        caches,
        context: options.context.unwrap_or(DEFAULT_CONTEXT).clamp(1, longest),
        norm_eps: keys.positive("rms_norm_eps")?.unwrap_or(1e-6),
        activation: reader.activation()?,
        tied: keys
            .truth("tie_word_embeddings")?
            .or(tied)
            .unwrap_or(row.tied),
        logit_cap: keys.positive("final_logit_softcapping")?,
        per_layer: reader.per_layer()?,
        biases: reader.biases()?,
        rope_interleaved: false,
    };
    reader.same_as_built()?;
    keys.all_asked()?;
    Ok(made)
}

/// What every layer does: as listed, or by the family's pattern.
fn does(keys: &Keys<'_>, row: &Architecture, layers: usize) -> Result<Vec<Does>> {
    let windows = !matches!(row.pattern, Pattern::Full | Pattern::LinearExcept(..));
    let (mut used, mut first, mut window) = (false, 0, false);
    if windows {
        used = keys.flag("use_sliding_window")?;
        first = keys.number("max_window_layers")?.unwrap_or(0);
        window = keys.number("sliding_window")?.is_some();
    }
    let windowed = |yes: bool| if yes { Does::Window } else { Does::Full };
    let every =
        |key: &str, default: usize| -> Result<usize> { Ok(keys.count(key)?.unwrap_or(default)) };
    let by_row: Box<dyn Fn(usize) -> Does> = match row.pattern {
        Pattern::Full => Box::new(|_| Does::Full),
        Pattern::Window => Box::new(move |_| windowed(window)),
        Pattern::WindowIfUsed => Box::new(move |_| windowed(window && used)),
        Pattern::WindowFrom => Box::new(move |i| windowed(window && used && i >= first)),
        Pattern::WindowExcept(key, default) => {
            let n = every(key, default)?;
            Box::new(move |i| windowed((i + 1) % n != 0))
        }
        Pattern::LinearExcept(key, default) => {
            let n = every(key, default)?;
            Box::new(move |i| match (i + 1) % n {
                0 => Does::Full,
                _ => Does::Linear,
            })
        }
    };
    let lists = !matches!(
        row.pattern,
        Pattern::Full | Pattern::Window | Pattern::WindowIfUsed
    );
    let listed = if lists {
        keys.list("layer_types")?
    } else {
        None
    };
    let mut all: Vec<Does> = match listed {
        Some(list) => list
            .iter()
            .map(|v| named(keys, row, v))
            .collect::<Result<_>>()?,
        None => (0..layers).map(by_row).collect(),
    };
    if all.len() != layers {
        let why = format!("has {} entries for {layers} layers", all.len());
        return Err(keys.error("layer_types", why));
    }
    if let (true, Some(last)) = (row.gemma4, all.last_mut()) {
        *last = Does::Full;
    }
    Ok(all)
}

fn named(keys: &Keys<'_>, row: &Architecture, value: &Value) -> Result<Does> {
    let name = value.as_str().unwrap_or_default();
    let linear = matches!(row.pattern, Pattern::LinearExcept(..));
    let found = DOES.iter().find(|(n, _)| *n == name);
    match found {
        Some((_, Does::Linear)) if !linear => Err(keys.error(
            "layer_types",
            format!("has {name:?}, which this family has not"),
        )),
        Some((_, does)) => Ok(*does),
        None => Err(keys.error(
            "layer_types",
            format!("has {value}, which is not supported"),
        )),
    }
}

impl Reader<'_> {
    fn activation(&self) -> Result<Activation> {
        let key = self.row.activation;
        let default = match key {
            "hidden_act" => "silu",
            _ => "gelu_pytorch_tanh",
        };
        // Configs of Gemma have both keys, and the first counts.
        let named = self.keys.text(key)?;
        self.keys.get("hidden_act");
        let name = named.unwrap_or(default);
        let found = ACTIVATIONS.iter().find(|(n, _)| *n == name);
        found.map(|(_, a)| *a).ok_or_else(|| {
            self.keys
                .error(key, format!("is {name:?}, which is not supported"))
        })
    }

    fn biases(&self) -> Result<HasBiases> {
        let said = |key| self.keys.flag(key);
        let (attention, mlp) = match self.row.biases {
            Biases::None => (false, false),
            Biases::Inputs => {
                return Ok(HasBiases {
                    inputs: true,
                    ..HasBiases::default()
                });
            }
            Biases::Attention => (said("attention_bias")?, false),
            Biases::Both => (said("attention_bias")?, said("mlp_bias")?),
        };
        Ok(HasBiases {
            inputs: attention,
            output: attention,
            mlp,
        })
    }

    fn per_layer(&self) -> Result<Option<PerLayer>> {
        if !self.row.gemma4 {
            return Ok(None);
        }
        let vocab = self.keys.number("vocab_size_per_layer_input")?;
        let width = self.keys.number("hidden_size_per_layer_input")?;
        let (vocab, width) = (vocab.unwrap_or(0), width.unwrap_or(0));
        Ok((width > 0).then_some(PerLayer { vocab, width }))
    }

    /// Keys of later releases that spell out what is built.
    fn same_as_built(&self) -> Result<()> {
        let qwen3_5 = self.row.gated;
        if qwen3_5 && self.keys.truth("attn_output_gate")? == Some(false) {
            return Err(self
                .keys
                .error("attn_output_gate", "is false, which is not supported"));
        }
        let both_ways = self.keys.get("use_bidirectional_attention");
        match both_ways {
            Some(Value::Bool(true)) => {}
            Some(Value::String(s)) if s != "vision" => {}
            _ => return Ok(()),
        }
        let why = "asks for attention to later tokens, which is not supported";
        Err(self.keys.error("use_bidirectional_attention", why))
    }

    fn layers(&self) -> Result<(Vec<Layer>, Vec<CacheShape>)> {
        let own = self.owners()?;
        let mut caches: Vec<CacheShape> = Vec::new();
        let mut rows: Vec<(usize, usize)> = Vec::with_capacity(self.does.len());
        let mut layers = Vec::with_capacity(self.does.len());
        let shapes = [self.heads(Does::Window)?, self.heads(Does::Full)?];
        let ropes = self.ropes(shapes)?;
        let experts = self.experts()?;
        let delta = self.delta()?;
        let mut deltas = 0;
        for (i, does) in self.does.iter().enumerate() {
            let mixer = if let (Does::Linear, Some(delta)) = (does, delta) {
                rows.push((0, 0));
                deltas += 1;
                Mixer::Delta(Delta {
                    row: deltas - 1,
                    ..delta
                })
            } else {
                let at = usize::from(*does == Does::Full);
                let owner = own.get(i).copied().unwrap_or(i);
                let place = match rows.get(owner) {
                    Some(place) => *place,
                    None => place(&mut caches, shapes.get(at).copied().unwrap_or_default()),
                };
                rows.push(place);
                let rope = ropes.get(at).cloned().flatten();
                let rope = rope.ok_or_else(|| self.keys.error("layer_types", "is wrong"))?;
                Mixer::Attention(self.attention(*does, place, owner == i, rope)?)
            };
            let mlp = self.mlp(i, own.get(i).is_some_and(|o| *o != i), experts)?;
            layers.push(Layer { mixer, mlp });
        }
        Ok((layers, caches))
    }

    /// Which layer's keys each layer reads: of Gemma 4, the last ones read those of the last one of their kind before.
    fn owners(&self) -> Result<Vec<usize>> {
        let layers = self.does.len();
        let shared = match self.row.gemma4 {
            true => self.keys.number("num_kv_shared_layers")?.unwrap_or(0),
            false => 0,
        };
        let first = layers.saturating_sub(shared);
        let first = if first == 0 { layers } else { first };
        let owner = |(i, does): (usize, &Does)| -> Result<usize> {
            if i < first {
                return Ok(i);
            }
            let before = self.does.iter().take(first).rposition(|d| d == does);
            let why = format!("leaves layer {i} no layer of its kind to share with");
            before.ok_or_else(|| self.keys.error("num_kv_shared_layers", why))
        };
        self.does.iter().enumerate().map(owner).collect()
    }

    /// Heads of keys and values of layers that do this.
    fn heads(&self, does: Does) -> Result<CacheShape> {
        let keys = self.keys;
        let heads = keys.required("num_attention_heads")?;
        let mut kv_heads = keys.count("num_key_value_heads")?.unwrap_or(heads);
        let mut head_dim = match keys.count("head_dim")? {
            Some(width) => width,
            None if self.hidden.is_multiple_of(heads) => self.hidden / heads,
            None => {
                let why = format!("is {heads}, and {} is no multiple", self.hidden);
                return Err(keys.error("num_attention_heads", why));
            }
        };
        if self.row.gemma4 {
            let wide = keys.number("global_head_dim")?.unwrap_or(0);
            let few = keys.count("num_global_key_value_heads")?;
            let same = keys.flag("attention_k_eq_v")?;
            if does == Does::Full {
                head_dim = if wide > 0 { wide } else { head_dim };
                kv_heads = if same {
                    few.unwrap_or(kv_heads)
                } else {
                    kv_heads
                };
            }
        }
        if !heads.is_multiple_of(kv_heads) {
            let why = format!("is {kv_heads}, which {heads} heads cannot share");
            return Err(keys.error("num_key_value_heads", why));
        }
        Ok(CacheShape {
            rows: 0,
            kv_heads,
            head_dim,
        })
    }

    /// How heads of windowed and of other layers are turned, where there are such layers.
    fn ropes(&self, shapes: [CacheShape; 2]) -> Result<[Option<Arc<Rope>>; 2]> {
        let [window, full] = shapes;
        let one = |does, kind, width| match self.does.contains(&does) {
            true => rope(self.keys, self.row, kind, width).map(Some),
            false => Ok(None),
        };
        Ok([
            one(Does::Window, Kind::Window, window.head_dim)?,
            one(Does::Full, Kind::Full, full.head_dim)?,
        ])
    }

    fn attention(
        &self,
        does: Does,
        (cache, row): (usize, usize),
        writes: bool,
        rope: Arc<Rope>,
    ) -> Result<Attention> {
        let window = match does {
            Does::Window => self.keys.required("sliding_window")?,
            _ => 0,
        };
        let scale = match self.row.scale {
            Scale::Width => None,
            Scale::One => Some(1.0),
            Scale::Scalar => {
                let scalar = self.keys.positive("query_pre_attn_scalar")?;
                Some(scalar.unwrap_or(1.0).powf(-0.5))
            }
        };
        let same = self.row.gemma4 && self.keys.flag("attention_k_eq_v")?;
        Ok(Attention {
            heads: self.keys.required("num_attention_heads")?,
            cache,
            row,
            writes,
            window,
            rope,
            scale,
            keys_are_values: same && does == Does::Full,
        })
    }

    fn delta(&self) -> Result<Option<Delta>> {
        if !matches!(self.row.pattern, Pattern::LinearExcept(..)) {
            return Ok(None);
        }
        let of = |name| self.keys.required(name);
        let delta = Delta {
            row: 0,
            key_heads: of("linear_num_key_heads")?,
            value_heads: of("linear_num_value_heads")?,
            key_dim: of("linear_key_head_dim")?,
            value_dim: of("linear_value_head_dim")?,
            kernel: of("linear_conv_kernel_dim")?,
        };
        if !delta.value_heads.is_multiple_of(delta.key_heads) {
            let why = format!(
                "is {}, which {} cannot serve",
                delta.value_heads, delta.key_heads
            );
            return Err(self.keys.error("linear_num_value_heads", why));
        }
        match delta.kernel {
            1 => Err(self.keys.error("linear_conv_kernel_dim", "is 1")),
            _ => Ok(Some(delta)),
        }
    }

    fn experts(&self) -> Result<Option<Experts>> {
        let keys = self.keys;
        let (used, shared) = match self.row.experts {
            Has::None => return Ok(None),
            Has::Some => ("num_experts_per_tok", None),
            Has::Shared => {
                let width = keys.required("shared_expert_intermediate_size")?;
                ("num_experts_per_tok", Some(width))
            }
            Has::Beside => {
                let counts = [
                    keys.number("num_experts")?,
                    keys.number("top_k_experts")?,
                    keys.number("moe_intermediate_size")?,
                ];
                if !keys.flag("enable_moe_block")? || counts.contains(&None) {
                    return Ok(None);
                }
                ("top_k_experts", None)
            }
        };
        let said = keys.truth("norm_topk_prob")?;
        let normalised = match self.row.experts {
            Has::Some => said.unwrap_or(false),
            _ => true,
        };
        let experts = Experts {
            count: self.expert_count()?,
            used: keys.required(used)?,
            width: keys.required("moe_intermediate_size")?,
            normalised,
            shared,
        };
        if experts.used > experts.count {
            let why = format!("is {} of {} experts", experts.used, experts.count);
            return Err(keys.error(used, why));
        }
        Ok(Some(experts))
    }

    /// How many experts there are, under either of its names.
    fn expert_count(&self) -> Result<usize> {
        let keys = self.keys;
        let other = keys.count("num_local_experts")?;
        match (keys.has("num_experts"), other) {
            (false, Some(count)) => Ok(count),
            _ => keys.required("num_experts"),
        }
    }

    /// What layer `i` does with each position alone.
    fn mlp(&self, i: usize, shares: bool, experts: Option<Experts>) -> Result<Mlp> {
        let keys = self.keys;
        let wide = self.row.gemma4 && keys.flag("use_double_wide_mlp")? && shares;
        let dense = || -> Result<usize> {
            let width = keys.required("intermediate_size")?;
            Ok(if wide { 2 * width } else { width })
        };
        Ok(match (self.row.experts, experts) {
            (Has::Shared, Some(experts)) => {
                keys.get("intermediate_size");
                Mlp::Experts(experts)
            }
            (Has::Beside, Some(experts)) => Mlp::Both(dense()?, experts),
            (Has::Some, Some(experts)) => {
                let step = keys.required("decoder_sparse_step")?;
                let only = keys.list("mlp_only_layers")?.unwrap_or_default();
                let listed = only.iter().any(|v| v.as_u64() == Some(i as u64));
                keys.get("intermediate_size");
                match !listed && (i + 1).is_multiple_of(step) {
                    true => Mlp::Experts(experts),
                    false => Mlp::Dense(dense()?),
                }
            }
            _ => Mlp::Dense(dense()?),
        })
    }
}

/// A new row of the cache with heads of this shape.
fn place(caches: &mut Vec<CacheShape>, shape: CacheShape) -> (usize, usize) {
    let alike = |c: &CacheShape| (c.kv_heads, c.head_dim) == (shape.kv_heads, shape.head_dim);
    let at = caches.iter().position(alike).unwrap_or_else(|| {
        caches.push(shape);
        caches.len() - 1
    });
    let Some(cache) = caches.get_mut(at) else {
        return (0, 0);
    };
    cache.rows += 1;
    (at, cache.rows - 1)
}
