//! Fast mode against exact mode, and the last row alone against all rows: every small model of the fixtures.

mod common;

use std::path::Path;

use common::bundles;
use russet::engine::Engine;
use russet::{Model, OpenOptions, Precision, Token};

/// The logits after a prompt and after each of some single tokens.
fn talk(bundle: &Path, precision: Precision, all_logits: bool) -> Vec<Vec<f32>> {
    let mut options = OpenOptions::default();
    options.precision = precision;
    options.all_logits = all_logits;
    talk_as(bundle, &options)
}

fn talk_as(bundle: &Path, options: &OpenOptions) -> Vec<Vec<f32>> {
    let model = Model::open(bundle, options).expect("a model");
    let mut engine = model.sequential().expect("an engine");
    let rows = engine.call(&[5, 6, 7]).expect("a call").shape()[1];
    let wanted = if options.all_logits { 3 } else { 1 };
    assert_eq!(rows, wanted, "{}", bundle.display());
    engine.rewind(0).expect("to the start");
    let prompt: Vec<Token> = (5..25).collect();
    let mut rows = Vec::new();
    engine.feed(&prompt, &|| false).expect("a prompt");
    rows.push(engine.logits().to_vec());
    for token in 30..36 {
        engine.feed(&[token], &|| false).expect("a token");
        rows.push(engine.logits().to_vec());
    }
    rows
}

fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let dot = |a: &[f32], b: &[f32]| {
        let products = a.iter().zip(b).map(|(x, y)| f64::from(*x) * f64::from(*y));
        products.sum::<f64>()
    };
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

#[test]
fn fast_logits_are_near_the_exact_ones() {
    for bundle in bundles() {
        let exact = talk(&bundle, Precision::Exact, false);
        let fast = talk(&bundle, Precision::Fast, false);
        for (exact, fast) in exact.iter().zip(&fast) {
            let cosine = cosine(exact, fast);
            assert!(cosine > 0.995, "{}: cosine {cosine}", bundle.display());
        }
    }
}

#[test]
fn the_last_row_alone_is_the_last_of_all_rows() {
    for bundle in bundles() {
        for precision in [Precision::Exact, Precision::Fast] {
            let (alone, all) = (
                talk(&bundle, precision, false),
                talk(&bundle, precision, true),
            );
            // Fast products of one row and of many take different ways to the same sums.
            let near = |(a, b): (&Vec<f32>, &Vec<f32>)| match precision {
                Precision::Exact => a == b,
                Precision::Fast => cosine(a, b) > 0.9999,
            };
            assert!(
                alone.iter().zip(&all).all(near),
                "{} {precision:?}",
                bundle.display()
            );
        }
    }
}

#[test]
fn weights_read_in_place_give_the_same_logits() {
    let mut options = OpenOptions::default();
    options.no_repack = true;
    for bundle in bundles() {
        let packed = talk(&bundle, Precision::Fast, false);
        let in_place = talk_as(&bundle, &options);
        for (a, b) in packed.iter().zip(&in_place) {
            let cosine = cosine(a, b);
            assert!(cosine > 0.9999, "{}: cosine {cosine}", bundle.display());
        }
    }
}

#[test]
fn products_are_joined_in_the_narrowed_layer_too() {
    let joined = |bundle: &Path, all_logits| {
        let mut options = OpenOptions::default();
        options.all_logits = all_logits;
        let model = Model::open(bundle, &options).expect("a model");
        let plan = model.function().expect("a plan").expect("one");
        plan.steps().filter(|s| s.name == "linears").count()
    };
    let counts: Vec<[usize; 2]> = bundles()
        .iter()
        .map(|b| [false, true].map(|all| joined(b, all)))
        .collect();
    assert!(counts.iter().all(|[alone, all]| alone == all), "{counts:?}");
    assert!(counts.iter().any(|[alone, _]| *alone > 0), "{counts:?}");
}

/// What a layer of every architecture is planned as.
const LAYERS: [(&str, &str); 6] = [
    (
        "qwen2",
        "rms_norm linear_add rope update update attention linear_add rms_norm linears silu_mul linear_add",
    ),
    (
        "qwen3-4bit",
        "rms_norm linear norm_rope update update attention linear_add rms_norm linears silu_mul linear_add",
    ),
    (
        "gemma3",
        "rms_norm linear norm_rope update update attention linear rms_norm_add \
         rms_norm linears gelu_mul linear rms_norm_add",
    ),
    (
        "softcap",
        "rms_norm linear rope update update attention linear_add rms_norm linears gelu_mul linear_add",
    ),
    (
        "moe-4bit",
        "rms_norm linear norm_rope update update attention linear_add rms_norm \
         linear cast softmax top_k reduce_sum elementwise gather_mm silu_mul gather_mm weighted_sum_add",
    ),
    (
        "delta",
        "rms_norm linears copy copy update elementwise elementwise elementwise sigmoid gated_delta update \
         rms_norm silu_mul linear_add rms_norm linears silu_mul linear_add",
    ),
];

#[test]
fn layers_are_planned_as_few_steps() {
    for (name, layer) in LAYERS {
        let bundle = bundles().into_iter().find(|b| b.ends_with(name));
        let mut options = OpenOptions::default();
        options.all_logits = true;
        let model = Model::open(bundle.expect(name), &options).expect("a model");
        let tables = |name: &&str| *name != "rope_tables";
        let plan = model.function().expect("a plan").expect("one");
        let steps: Vec<&str> = plan.steps().map(|s| s.name).filter(tables).collect();
        let (steps, layer) = (steps.join(" "), format!(" {layer} "));
        assert!(steps.contains(&layer), "{name}: {steps}");
    }
}
