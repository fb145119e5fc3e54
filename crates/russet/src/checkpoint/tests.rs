//! Every checkpoint of `fixtures/checkpoint` computes what transformers computed; folders that are none are told from them.

use std::fs;
use std::path::{Path, PathBuf};

use safetensors::SafeTensors;

use crate::engine::Engine;
use crate::{Error, Model, ModelSource, OpenOptions, Precision};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/checkpoint")
}

fn words<T>(bytes: &[u8], of: fn([u8; 4]) -> T) -> Vec<T> {
    bytes.as_chunks().0.iter().map(|b| of(*b)).collect()
}

/// The largest difference of logits, in calls of these sizes.
fn difference(model: &Model, tokens: &[u32], sizes: &[usize], want: &[f32]) -> f32 {
    let mut engine = model.sequential().unwrap();
    let (mut rest, mut largest) = (tokens, 0f32);
    let mut rows = want.chunks(want.len() / tokens.len());
    for size in sizes {
        let view = engine.call(&rest[..*size]).unwrap();
        let mut row = vec![0.0; view.len() / size];
        for i in 0..*size {
            view.read_row(i, &mut row);
            let apart = row
                .iter()
                .zip(rows.next().unwrap())
                .map(|(a, b)| (a - b).abs());
            largest = apart.fold(largest, |a, d| if d <= a { a } else { d });
        }
        rest = &rest[*size..];
    }
    assert_eq!(engine.history().len(), tokens.len());
    largest
}

fn replay(record: &Path, precision: Precision) {
    let bytes = fs::read(record).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let tokens = words(file.tensor("tokens").unwrap().data(), u32::from_le_bytes);
    let table = |name| Some(words(file.tensor(name).ok()?.data(), f32::from_le_bytes));
    let (whole, steps) = (table("logits").unwrap(), table("steps"));
    let options = OpenOptions {
        all_logits: true,
        precision,
        ..OpenOptions::default()
    };
    let model = Model::open(record.with_extension(""), &options).unwrap();
    assert_eq!(model.source(), ModelSource::Checkpoint);
    let n = tokens.len();
    let mut calls = vec![
        (vec![n], &whole),
        (vec![1; n], steps.as_ref().unwrap_or(&whole)),
    ];
    if steps.is_none() {
        calls.push((vec![n / 3, n / 4, n - n / 3 - n / 4], &whole));
    }
    for (sizes, want) in calls {
        let apart = difference(&model, &tokens, &sizes, want);
        assert!(
            apart <= 1e-4,
            "{}, {} calls: {apart}",
            record.display(),
            sizes.len()
        );
    }
}

#[test]
fn checkpoints_compute_what_transformers_computes() {
    let records: Vec<PathBuf> = fs::read_dir(fixtures())
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.extension().is_some_and(|e| e == "safetensors"))
        .collect();
    assert_eq!(records.len(), 15);
    for record in &records {
        replay(record, Precision::Exact);
        replay(record, Precision::Fast);
    }
}

#[test]
fn a_checkpoint_has_words_and_a_limit() {
    let folder = fixtures().join("qwen3-1");
    let model = Model::open(&folder, &OpenOptions::default()).unwrap();
    assert_eq!((model.name(), model.max_context()), ("qwen3-1", 64));
    assert_eq!(model.plain_prompt("w7 w3").unwrap(), [7, 3]);
    assert_eq!(model.stop_tokens(), [2]);
    let short = OpenOptions {
        max_context: Some(10),
        ..OpenOptions::default()
    };
    assert_eq!(Model::open(&folder, &short).unwrap().max_context(), 10);
}

#[test]
fn what_is_missing_is_named() {
    let folder = std::env::temp_dir().join(format!("russet-checkpoint-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let from = fixtures().join("llama-sharded-1");
    for entry in fs::read_dir(&from).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, folder.join(path.file_name().unwrap())).unwrap();
    }
    let open = || Model::open(&folder, &OpenOptions::default());
    open().unwrap();
    fs::remove_file(folder.join("model-00002-of-00003.safetensors")).unwrap();
    let error = open().unwrap_err();
    assert!(
        matches!(&error, Error::Io { path, .. } if path.ends_with("model-00002-of-00003.safetensors"))
    );
    fs::remove_dir_all(&folder).unwrap();
}
