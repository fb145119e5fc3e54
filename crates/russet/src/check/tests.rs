//! Packages beside the checkpoints they were made from.

use std::path::{Path, PathBuf};

use super::*;
use crate::{OpenOptions, Precision};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fixtures")
        .join(name)
}

fn open(name: &str) -> Model {
    let options = OpenOptions {
        precision: Precision::Fast,
        ..OpenOptions::default()
    };
    Model::open(fixture(name), &options).unwrap()
}

/// The start of a conversation of any tokens.
fn prompts(count: u32, vocab: u32) -> Vec<Vec<Token>> {
    let token = |i: u32| 3 + i * 7919 % (vocab - 3);
    (0..count)
        .map(|p| (0..20 + p).map(|i| token(p * 31 + i)).collect())
        .collect()
}

fn checked(checkpoint: &Model, package: &Model, tokens: usize, vocab: u32) -> Check {
    let mut heard = 0;
    let found = check(checkpoint, package, &prompts(3, vocab), tokens, &mut |n| {
        heard = n;
    });
    let found = found.unwrap();
    assert_eq!((heard, found.prompts.len()), (3, 3));
    assert_eq!(
        found.all.places,
        found.prompts.iter().map(|p| p.places.len()).sum::<usize>()
    );
    found
}

#[test]
fn a_checkpoint_equals_itself() {
    let model = open("checkpoint/gemma4-1");
    let found = checked(&model, &model, 8, 48);
    assert_eq!((found.all.same_top, found.all.worst_divergence), (1.0, 0.0));
    assert!(Limits::default().allow(&found.all));
    let first = &found.prompts[0];
    let found = layers(&model, &model, &first.prompt, &first.continuation).unwrap();
    assert_eq!(
        (found.compared.len(), found.layers, found.reason),
        (6, 6, None)
    );
    assert!(found.compared.iter().all(|l| l.worst_cosine > 0.999_999));
}

/// Weights of four bits: near, and less so layer by layer.
#[test]
fn a_core_ml_package_is_judged_in_the_calls_it_is_used_with() {
    let (checkpoint, package) = (open("check/qwen3-lut4"), open("coreml/qwen3-lut4"));
    let found = checked(&checkpoint, &package, 12, 520);
    let (cosine, kl) = (found.all.mean_cosine, found.all.mean_divergence);
    assert!(
        (0.9..0.995).contains(&cosine) && (0.01..0.5).contains(&kl),
        "{cosine} {kl}"
    );
    assert!(
        !Limits {
            min_cosine: 0.999,
            ..Limits::default()
        }
        .allow(&found.all)
    );
    let worst = found.worst(3);
    assert_eq!(worst.len(), 3);
    assert_eq!(worst[0].1.divergence, found.all.worst_divergence);
    let first = &found.prompts[0];
    let found = layers(&checkpoint, &package, &first.prompt, &first.continuation).unwrap();
    let cosines: Vec<f64> = found.compared.iter().map(|l| l.mean_cosine).collect();
    assert_eq!(cosines.len(), 3);
    assert!(
        cosines.is_sorted_by(|a, b| a > b) && cosines[2] > 0.9,
        "{cosines:?}"
    );
    assert_eq!(found.worst(1)[0].layer, 2);
    assert!(found.steepest().is_some());
}

/// The exporter of this bundle hands positions to an operand that counts for nothing, so that every call starts to turn at 0: a
/// prompt is right, and what follows is not.
#[test]
fn a_bundle_that_is_wrong_behind_the_prompt_is_found_out() {
    let (checkpoint, bundle) = (open("checkpoint/llama-1"), open("check/llama"));
    let found = checked(&checkpoint, &bundle, 1, 48);
    assert!(found.all.mean_cosine > 0.99999, "{}", found.all.mean_cosine);
    let found = checked(&checkpoint, &bundle, 12, 48);
    assert!(
        !Limits::default().allow(&found.all),
        "{}",
        found.all.mean_cosine
    );
    let longest = found
        .prompts
        .iter()
        .max_by_key(|p| p.continuation.len())
        .unwrap();
    let found = layers(&checkpoint, &bundle, &longest.prompt, &longest.continuation).unwrap();
    let first = found.compared[0];
    assert!(
        first.worst_cosine < 0.99 && first.worst_place >= longest.prompt.len(),
        "{first:?}"
    );
}

#[test]
fn other_vocabularies_and_empty_prompts_are_refused() {
    let (one, other) = (open("checkpoint/llama-1"), open("coreml/qwen3-lut4"));
    let refused = |prompt: &[Token]| {
        let error = check(&one, &other, &[prompt.to_vec()], 4, &mut |_| {});
        error.unwrap_err().to_string()
    };
    assert!(refused(&[1, 2]).contains("48 entries and 520"));
    assert!(refused(&[]).contains("there are 0 tokens"));
    let none = check(&one, &one, &[], 4, &mut |_| {});
    assert!(matches!(none, Err(EvaluationError::TooShort(0))));
    // A checkpoint does not say how many layers another model has.
    let found = layers(&one, &other, &[1, 2, 3], &[]).unwrap();
    assert!(found.compared.is_empty() && found.reason.is_some());
}
