//! Configs and weights that would be computed wrongly are refused by name; spellings of the same model build the same program.

use std::fs;
use std::path::{Path, PathBuf};

use russet_graph::types::DType;
use russet_graph::verify::verify;
use russet_kernels::mem::SharedBytes;
use serde_json::json;

use super::super::config::{Frequencies, Mixer};
use super::*;

fn fixture(name: &str, file: &str) -> PathBuf {
    let all = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/checkpoint");
    all.join(name).join(file)
}

fn config(name: &str) -> Value {
    serde_json::from_slice(&fs::read(fixture(name, CONFIG)).unwrap()).unwrap()
}

/// Builds a fixture with another config.
fn build(name: &str, config: &Value) -> Result<Checkpoint> {
    let index = fs::read(fixture(name, INDEX)).ok();
    let mut open = |file: &str| -> Result<SharedBytes> {
        Ok(SharedBytes::from_vec(
            fs::read(fixture(name, file)).unwrap(),
        ))
    };
    let config = serde_json::to_vec(config).unwrap();
    let folder = Folder::read(&config, index.as_deref(), &mut open)?;
    let built = from_folder(&folder, Options::default())?;
    verify(&built.module).unwrap();
    Ok(built)
}

/// A fixture whose config has some keys changed; `null` removes one.
fn changed(name: &str, changes: &Value) -> Value {
    let mut config = config(name);
    for (key, value) in changes.as_object().unwrap() {
        let object = config.as_object_mut().unwrap();
        match value.is_null() {
            true => drop(object.remove(key)),
            false => drop(object.insert(key.clone(), value.clone())),
        }
    }
    config
}

const ALL: [&str; 15] = [
    "gemma3-1",
    "gemma4-1",
    "llama-1",
    "llama-old-llama3-1",
    "llama-sharded-1",
    "mistral-1",
    "phi3-1",
    "phi3-long-1",
    "qwen2-1",
    "qwen3-1",
    "qwen3-yarn-1",
    "qwen3_5-1",
    "qwen3_5-nested-1",
    "qwen3_5_moe-nested-1",
    "qwen3_moe-1",
];

#[test]
fn every_family_is_built_in_float32() {
    for name in ALL {
        let built = build(name, &config(name)).unwrap();
        assert_eq!(built.config.dtype, DType::F32);
        let family = name.split(['-']).next().unwrap();
        assert_eq!(built.architecture.name, family);
    }
}

/// Fixtures, changes of their configs, and what is said of them.
const REFUSED: &[(&str, &str, &str)] = &[
    (
        "llama-1",
        r#"{"model_type": "mamba"}"#,
        "\"mamba\" is not known (known: llama, mistral",
    ),
    (
        "llama-1",
        r#"{"model_type": null}"#,
        "model_type is missing",
    ),
    (
        "llama-1",
        r#"{"hidden_size": null}"#,
        "hidden_size is missing",
    ),
    ("llama-1", r#"{"hidden_size": 1e30}"#, "hidden_size is 1000"),
    ("llama-1", r#"{"hidden_size": -4}"#, "hidden_size is -4"),
    (
        "llama-1",
        r#"{"hidden_size": "32"}"#,
        "hidden_size is not a number",
    ),
    (
        "llama-1",
        r#"{"num_hidden_layers": 1000000}"#,
        "num_hidden_layers is 1000000",
    ),
    (
        "llama-1",
        r#"{"num_key_value_heads": 3}"#,
        "num_key_value_heads is 3",
    ),
    (
        "llama-1",
        r#"{"hidden_act": "relu2"}"#,
        "hidden_act is \"relu2\"",
    ),
    ("llama-1", r#"{"logit_scale": 0.5}"#, "logit_scale is 0.5"),
    (
        "llama-1",
        r#"{"sliding_window": 16}"#,
        "sliding_window is 16",
    ),
    (
        "llama-1",
        r#"{"partial_rotary_factor": 0.5}"#,
        "partial_rotary_factor is 0.5",
    ),
    (
        "llama-1",
        r#"{"quantization_config": {"bits": 4}}"#,
        "quantization_config is {",
    ),
    (
        "llama-1",
        r#"{"rope_parameters": {"rope_type": "fourier"}}"#,
        "rope_type is \"fourier\"",
    ),
    (
        "llama-1",
        r#"{"rope_parameters": {"rope_type": "llama3"}}"#,
        "factor is missing",
    ),
    (
        "llama-1",
        r#"{"rope_parameters": {"rope_type": "linear", "factor": 0.0}}"#,
        "factor is 0",
    ),
    (
        "llama-1",
        r#"{"rope_parameters": {"spiral": 3}}"#,
        "rope_parameters.spiral is 3",
    ),
    (
        "llama-1",
        r#"{"rope_parameters": []}"#,
        "rope_parameters is no object",
    ),
    (
        "llama-1",
        r#"{"rope_theta": -1.0, "rope_parameters": null}"#,
        "rope_theta is -1",
    ),
    (
        "llama-1",
        r#"{"attention_bias": true}"#,
        "self_attn.q_proj.bias\" is missing",
    ),
    (
        "llama-1",
        r#"{"vocab_size": 64}"#,
        "[48, 32] where [64, 32] is needed",
    ),
    (
        "llama-1",
        r#"{"num_hidden_layers": 1}"#,
        "\"model.layers.1.input_layernorm.weight\" has no place",
    ),
    (
        "llama-1",
        r#"{"num_hidden_layers": 3}"#,
        "\"model.layers.2.input_layernorm.weight\" is missing",
    ),
    (
        "phi3-long-1",
        r#"{"rope_scaling": {"type": "longrope", "short_factor": [1.0], "long_factor": [1.0]}}"#,
        "short_factor is no list of 4 positive",
    ),
    (
        "qwen3-1",
        r#"{"layer_types": ["full_attention"]}"#,
        "layer_types has 1 entries for 2",
    ),
    (
        "qwen3-1",
        r#"{"layer_types": ["full_attention", "linear_attention"]}"#,
        "which this family has not",
    ),
    (
        "qwen3-1",
        r#"{"layer_types": ["full_attention", 3]}"#,
        "layer_types has 3",
    ),
    (
        "gemma3-1",
        r#"{"attn_logit_softcapping": 50.0}"#,
        "attn_logit_softcapping is 50",
    ),
    (
        "gemma3-1",
        r#"{"use_bidirectional_attention": true}"#,
        "use_bidirectional_attention asks",
    ),
    (
        "gemma4-1",
        r#"{"num_kv_shared_layers": 5}"#,
        "num_kv_shared_layers leaves",
    ),
    (
        "qwen3_5-1",
        r#"{"linear_num_value_heads": 3}"#,
        "linear_num_value_heads is 3",
    ),
    (
        "qwen3_5-1",
        r#"{"attn_output_gate": false}"#,
        "attn_output_gate is false",
    ),
    (
        "qwen3_moe-1",
        r#"{"num_experts_per_tok": 9}"#,
        "num_experts_per_tok is 9 of 6",
    ),
    (
        "qwen3_moe-1",
        r#"{"num_local_experts": 1000000}"#,
        "[6, 32] where [1000000, 32] is needed",
    ),
];

#[test]
fn keys_that_ask_for_something_else_are_refused_by_name() {
    for (name, changes, why) in REFUSED {
        let config = changed(name, &serde_json::from_str(changes).unwrap());
        let Err(error) = build(name, &config) else {
            panic!("{name} with {changes} is built");
        };
        assert!(error.to_string().contains(why), "{changes}: {error}");
    }
}

#[test]
fn keys_that_change_nothing_are_passed_over() {
    let harmless = json!({
        "_name_or_path": "x", "unsloth_fixed": true, "torch_dtype": "bfloat16", "attention_dropout": 0.1, "use_mrope": false,
        "transformers_version": "4.30.0", "eos_token_id": [1, 2], "some_future_list": [], "pretraining_tp": 2,
    });
    build("llama-1", &changed("llama-1", &harmless)).unwrap();
}

fn frequencies(name: &str, changes: &Value) -> (Frequencies, f64) {
    let built = build(name, &changed(name, changes)).unwrap();
    let Mixer::Attention(attention) = &built.config.layers.last().unwrap().mixer else {
        panic!("the last layer attends");
    };
    (attention.rope.frequencies.clone(), attention.rope.factor)
}

#[test]
fn both_spellings_of_rotary_embedding_are_read() {
    let old = json!({"rope_parameters": null, "rope_theta": 77.0, "rope_scaling": {"type": "linear", "factor": 2.0}});
    let new =
        json!({"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 77.0}});
    let read = frequencies("llama-1", &old);
    assert_eq!(read, frequencies("llama-1", &new));
    let Frequencies::Each(list) = read.0 else {
        panic!("linear scaling lists frequencies");
    };
    assert_eq!((list.len(), list[0]), (4, 0.5));
    // Neither spelling: the family's default.
    let base = |b: &Frequencies| matches!(b, Frequencies::Base { base, .. } if *base == 1e4);
    assert!(base(
        &frequencies("llama-1", &json!({"rope_parameters": null})).0
    ));
    // Phi 3 once called it otherwise.
    let lists = |kind: &str| {
        let four = [1.0, 1.5, 2.0, 4.0];
        json!({"rope_scaling": {"type": kind, "short_factor": four, "long_factor": four}})
    };
    let factors = ["su", "yarn", "longrope"].map(|kind| frequencies("phi3-long-1", &lists(kind)));
    assert!(factors[0] == factors[1] && factors[1] == factors[2] && factors[0].1 > 1.0);
}

#[test]
fn an_output_matrix_that_differs_from_the_embedding_counts() {
    let tied = build(
        "llama-1",
        &changed("llama-1", &json!({"tie_word_embeddings": true})),
    )
    .unwrap();
    assert!(!tied.config.tied);
    let error = build(
        "qwen3-1",
        &changed("qwen3-1", &json!({"tie_word_embeddings": false})),
    );
    assert!(
        error
            .unwrap_err()
            .to_string()
            .contains("\"lm_head.weight\" is missing")
    );
}

#[test]
fn an_index_and_its_files_must_agree() {
    let config = serde_json::to_vec(&config("llama-1")).unwrap();
    let weights = fs::read(fixture("llama-1", WEIGHTS)).unwrap();
    let mut open = |_: &str| -> Result<SharedBytes> { Ok(SharedBytes::from_vec(weights.clone())) };
    let mut read = |index: &str| {
        let folder = Folder::read(&config, Some(index.as_bytes()), &mut open);
        folder.unwrap_err().to_string()
    };
    for (index, why) in [
        ("{}", "no object weight_map"),
        ("{", "EOF"),
        (
            r#"{"weight_map": {"a": "../b.safetensors"}}"#,
            "no file beside it",
        ),
        (r#"{"weight_map": {"a": "b.bin"}}"#, "no file beside it"),
        (
            r#"{"weight_map": {"a": "b.safetensors"}}"#,
            "\"a\" is not there",
        ),
        (
            r#"{"weight_map": {"lm_head.weight": "a.safetensors", "x": "b.safetensors"}}"#,
            "is in another file as well",
        ),
    ] {
        let error = read(index);
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn the_type_of_the_program_can_be_chosen() {
    let config = serde_json::to_vec(&config("qwen3-1")).unwrap();
    let mut open = |file: &str| -> Result<SharedBytes> {
        Ok(SharedBytes::from_vec(
            fs::read(fixture("qwen3-1", file)).unwrap(),
        ))
    };
    let folder = Folder::read(&config, None, &mut open).unwrap();
    let options = Options {
        dtype: Some(DType::BF16),
        context: Some(7),
    };
    let built = from_folder(&folder, options).unwrap();
    assert_eq!((built.config.dtype, built.config.context), (DType::BF16, 7));
    verify(&built.module).unwrap();
}
