//! The table of architectures: a row says what a family does that others do not. Everything else is read from its config.

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Architecture {
    /// The name in `general.architecture` of a GGUF file, or in `model_type` of a config (there also with `_text` after it).
    pub name: &'static str,
    /// Whether GGUF files of it can be read.
    pub gguf: bool,
    /// Numbers that configs of the family may leave out.
    pub(super) defaults: &'static [(&'static str, f64)],
    /// Which layers attend to a window or are recurrent, where the config does not list them.
    pub(super) pattern: Pattern,
    /// Biases of the attention's projections.
    pub(super) biases: Biases,
    /// Whether heads of queries and keys are normalised before they are turned.
    pub(super) head_norms: bool,
    /// Whether norms multiply by one more than their weights.
    pub(super) norms_from_one: bool,
    /// Whether what a part of a layer gives is normalised before it is added, and named as Gemma does.
    pub(super) sandwich: bool,
    /// Whether the embedding is multiplied by the root of its width.
    pub(super) scaled_embedding: bool,
    /// Whether half of what the query matrix gives is a gate of the attention's output.
    pub(super) gated: bool,
    /// Whether matrices of one input are stored as one.
    pub(super) fused: bool,
    /// Whether only a part of a head may be turned.
    pub(super) partial: bool,
    /// The key of the activation.
    pub(super) activation: &'static str,
    /// How attention scores are scaled.
    pub(super) scale: Scale,
    /// The experts, where the family has them.
    pub(super) experts: Experts,
    /// Whether the embedding is the output matrix where the config does not say.
    pub(super) tied: bool,
    /// Gemma 4's own: two kinds of heads, keys that layers share, embeddings for every layer.
    pub(super) gemma4: bool,
}

/// Which layers do what, where a config has no `layer_types`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pattern {
    /// All attend to everything.
    Full,
    /// All attend to `sliding_window` positions, where it is a number.
    Window,
    /// The same where `use_sliding_window` is set.
    WindowIfUsed,
    /// Layers from `max_window_layers` on have a window, where `use_sliding_window` is set.
    WindowFrom,
    /// All but every so manyth have a window; the key and its default say how many.
    WindowExcept(&'static str, usize),
    /// All but every so manyth are recurrent.
    LinearExcept(&'static str, usize),
}

/// Biases of the projections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Biases {
    /// Never.
    None,
    /// Of queries, keys and values.
    Inputs,
    /// Of all four where `attention_bias` is set.
    Attention,
    /// The same, and those of the gated part where `mlp_bias` is set.
    Both,
}

/// What scores are multiplied by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scale {
    /// One over the root of a head's width.
    Width,
    /// One over the root of `query_pre_attn_scalar`.
    Scalar,
    /// Nothing.
    One,
}

/// Mixtures of experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Experts {
    /// None.
    None,
    /// In some layers, instead of the gated part (`decoder_sparse_step`, `mlp_only_layers`, `norm_topk_prob`).
    Some,
    /// In every layer, with one expert that is always asked, by a gate of its own.
    Shared,
    /// In every layer beside the gated part, where `enable_moe_block` is set.
    Beside,
}

/// What most rows have.
const PLAIN: Architecture = Architecture {
    name: "",
    gguf: false,
    defaults: &[],
    pattern: Pattern::Full,
    biases: Biases::None,
    head_norms: false,
    norms_from_one: false,
    sandwich: false,
    scaled_embedding: false,
    gated: false,
    fused: false,
    partial: false,
    activation: "hidden_act",
    scale: Scale::Width,
    experts: Experts::None,
    tied: false,
    gemma4: false,
};

const QWEN3_5: Architecture = Architecture {
    defaults: &[
        ("num_attention_heads", 16.0),
        ("head_dim", 256.0),
        ("partial_rotary_factor", 0.25),
        ("max_position_embeddings", 32768.0),
        ("linear_conv_kernel_dim", 4.0),
        ("linear_key_head_dim", 128.0),
        ("linear_value_head_dim", 128.0),
        ("linear_num_key_heads", 16.0),
        ("linear_num_value_heads", 32.0),
        ("num_experts", 256.0),
        ("num_experts_per_tok", 8.0),
        ("moe_intermediate_size", 512.0),
        ("shared_expert_intermediate_size", 512.0),
    ],
    pattern: Pattern::LinearExcept("full_attention_interval", 4),
    biases: Biases::Attention,
    head_norms: true,
    norms_from_one: true,
    gated: true,
    partial: true,
    ..PLAIN
};

/// The architectures that can be built.
pub const ARCHITECTURES: &[Architecture] = &[
    Architecture {
        name: "llama",
        gguf: true,
        defaults: &[("max_position_embeddings", 2048.0)],
        biases: Biases::Both,
        ..PLAIN
    },
    Architecture {
        name: "mistral",
        defaults: &[
            ("num_key_value_heads", 8.0),
            ("sliding_window", 4096.0),
            ("max_position_embeddings", 131_072.0),
        ],
        pattern: Pattern::Window,
        ..PLAIN
    },
    Architecture {
        name: "qwen2",
        defaults: &[
            ("num_key_value_heads", 32.0),
            ("sliding_window", 4096.0),
            ("max_window_layers", 28.0),
            ("max_position_embeddings", 32768.0),
        ],
        pattern: Pattern::WindowFrom,
        biases: Biases::Inputs,
        ..PLAIN
    },
    Architecture {
        name: "qwen3",
        defaults: &[
            ("num_key_value_heads", 32.0),
            ("head_dim", 128.0),
            ("sliding_window", 4096.0),
            ("max_window_layers", 28.0),
            ("max_position_embeddings", 32768.0),
        ],
        pattern: Pattern::WindowFrom,
        biases: Biases::Attention,
        head_norms: true,
        ..PLAIN
    },
    Architecture {
        name: "qwen3_moe",
        defaults: &[
            ("num_key_value_heads", 4.0),
            ("sliding_window", 4096.0),
            ("decoder_sparse_step", 1.0),
            ("moe_intermediate_size", 768.0),
            ("num_experts_per_tok", 8.0),
            ("num_experts", 128.0),
            ("max_position_embeddings", 32768.0),
        ],
        pattern: Pattern::WindowIfUsed,
        biases: Biases::Attention,
        head_norms: true,
        experts: Experts::Some,
        ..PLAIN
    },
    Architecture {
        name: "qwen3_5",
        ..QWEN3_5
    },
    Architecture {
        name: "qwen3_5_moe",
        experts: Experts::Shared,
        ..QWEN3_5
    },
    Architecture {
        name: "gemma3",
        defaults: &[
            ("vocab_size", 262_208.0),
            ("num_attention_heads", 8.0),
            ("num_key_value_heads", 4.0),
            ("head_dim", 256.0),
            ("query_pre_attn_scalar", 256.0),
            ("sliding_window", 4096.0),
            ("max_position_embeddings", 131_072.0),
        ],
        pattern: Pattern::WindowExcept("sliding_window_pattern", 6),
        biases: Biases::Attention,
        head_norms: true,
        norms_from_one: true,
        sandwich: true,
        scaled_embedding: true,
        activation: "hidden_activation",
        scale: Scale::Scalar,
        tied: true,
        ..PLAIN
    },
    Architecture {
        name: "gemma4",
        defaults: &[
            ("vocab_size", 262_144.0),
            ("num_attention_heads", 8.0),
            ("num_key_value_heads", 4.0),
            ("head_dim", 256.0),
            ("global_head_dim", 512.0),
            ("sliding_window", 512.0),
            ("vocab_size_per_layer_input", 262_144.0),
            ("hidden_size_per_layer_input", 256.0),
            ("max_position_embeddings", 131_072.0),
        ],
        pattern: Pattern::WindowExcept("", 6),
        biases: Biases::Attention,
        head_norms: true,
        sandwich: true,
        scaled_embedding: true,
        partial: true,
        activation: "hidden_activation",
        scale: Scale::One,
        experts: Experts::Beside,
        tied: true,
        gemma4: true,
        ..PLAIN
    },
    Architecture {
        name: "phi3",
        defaults: &[
            ("rms_norm_eps", 1e-5),
            ("original_max_position_embeddings", 4096.0),
            ("max_position_embeddings", 4096.0),
        ],
        pattern: Pattern::Window,
        fused: true,
        partial: true,
        ..PLAIN
    },
];

impl Architecture {
    /// The row of a name in a config.
    pub(super) fn of_model_type(name: &str) -> Option<&'static Self> {
        let name = name.strip_suffix("_text").unwrap_or(name);
        ARCHITECTURES.iter().find(|a| a.name == name)
    }

    /// The row of a name in a GGUF file.
    pub(super) fn of_gguf(name: &str) -> Option<&'static Self> {
        ARCHITECTURES.iter().find(|a| a.gguf && a.name == name)
    }
}
