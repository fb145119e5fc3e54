//! Core ML packages by the command: inspected, called, run.

use std::fs;

use russet::tensors;
use russet_graph::tensor::Tensor;
use russet_graph::types::DType;
use serde_json::Value;

use crate::tools::{Folder, complaint, fixture, russet, stdout};

const EMBEDDINGS: &str = "coreml/gemma4/gemma4_embeddings.mlpackage";

#[test]
fn a_package_is_inspected_like_an_asset() {
    let text = stdout(&russet(&[&"inspect", &fixture(EMBEDDINGS)]));
    for part in [
        "coreml version 9",
        "function main",
        "input_ids",
        "Int32[1, ?]",
        "gather 2",
        "layer_norm 1",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let json = stdout(&russet(&[&"inspect", &fixture("coreml/gemma4"), &"--json"]));
    let parts: Value = serde_json::from_str(&json).unwrap();
    let functions = |i: usize| parts[i]["functions"].as_array().unwrap().len();
    assert_eq!([0, 1, 2].map(functions), [1, 2, 1]);
    assert_eq!(
        parts[1]["functions"][0]["states"][0]["name"],
        "model_model_kv_cache_local"
    );
    let graphs = stdout(&russet(&[&"inspect", &fixture(EMBEDDINGS), &"--text"]));
    assert!(graphs.contains("gather_nd("), "{graphs}");
}

/// The rows that the embeddings model gives are those of its weight file.
#[test]
fn a_function_of_a_package_is_called() {
    let folder = Folder::new();
    let (ids, out) = (
        folder.join("ids.safetensors"),
        folder.join("out.safetensors"),
    );
    let tokens = Tensor::from_ints(DType::I32, &[1, 3], &[7, 0, 330]).unwrap();
    tensors::write(&ids, &[("input_ids".into(), tokens)]).unwrap();
    let called = russet(&[&"call", &fixture(EMBEDDINGS), &"--in", &ids, &"--out", &out]);
    stdout(&called);
    let made = tensors::read(&out).unwrap();
    let (_, hidden) = made.iter().find(|(n, _)| n == "hidden_states").unwrap();
    assert_eq!(hidden.shape, [1, 3, 64]);
    // Where the program says the table is: 64 bytes of which eight say where its elements begin.
    let path = fixture(EMBEDDINGS).join("Data/com.apple.CoreML/weights/weight.bin");
    let file = fs::read(path).unwrap();
    let start = u64::from_le_bytes(file[66560 + 16..][..8].try_into().unwrap()) as usize;
    let table = &file[start..];
    for (row, token) in hidden.bytes().chunks(128).zip([7, 0, 330]) {
        assert!(row == &table[token * 128..][..128], "{token}");
    }
}

#[test]
fn a_folder_of_packages_answers_and_a_single_one_says_what_it_lacks() {
    let folder = fixture("coreml/qwen3-lut4");
    let ran = russet(&[&"run", &folder, &"hello", &"--max-tokens", &"3"]);
    stdout(&ran);
    let alone = russet(&[&"run", &fixture(EMBEDDINGS), &"hello"]);
    let said = complaint(&alone, 1);
    assert!(said.contains("a part of a model"), "{said}");
}
