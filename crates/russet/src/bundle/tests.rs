//! Bundles as data: metadata in, fields or error out.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use super::*;

/// A bundle in memory that counts reads.
struct Memory {
    files: HashMap<&'static str, String>,
    location: PathBuf,
}

impl Source for Memory {
    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        self.files.get(name).map(|s| s.clone().into_bytes()).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn exists(&self, name: &str) -> bool {
        self.files.contains_key(name)
    }

    fn location(&self) -> &Path {
        &self.location
    }
}

fn bundle(metadata: &str) -> Memory {
    let files = [("metadata.json", metadata.to_owned()), ("m.aimodel", String::new())].into();
    Memory { files, location: "b".into() }
}

fn error(metadata: &str) -> String {
    LanguageBundle::read(&bundle(metadata)).unwrap_err().to_string()
}

const GOOD: &str = r#"{"metadata_version": "0.2", "kind": "llm", "name": "n", "assets": {"z": "z.npy", "main": "m.aimodel"},
    "extra": {"kept": 1}, "user_data": {"a": "b"},
    "language": {"tokenizer": "t", "vocab_size": 320, "max_context_length": 256, "eos_token_ids": [7, 9],
                 "function_map": {"main": ["run", "other"]}, "prefill_chunk_size": 64}}"#;

#[test]
fn fields_are_read_and_the_rest_is_kept() {
    let b = LanguageBundle::read(&bundle(GOOD)).unwrap();
    assert_eq!(b.model.assets[0].0, "z", "the order of the file");
    assert_eq!(b.model.raw["extra"]["kept"], 1);
    assert_eq!(b.model.user_data, [("a".to_owned(), "b".to_owned())]);
    assert_eq!((b.main.as_str(), b.language.function.as_str()), ("m.aimodel", "run"));
    assert_eq!((b.language.vocab_size, b.language.max_context_length), (320, 256));
    assert_eq!(b.language.eos_token_ids, [7, 9]);
    assert_eq!((b.language.prefill_chunk_size, b.language.prefill_chunk_threshold), (Some(64), None));
    assert!(b.language.embedded_tokenizer);
}

#[test]
fn every_fault_has_its_message() {
    let swap = |from: &str, to: &str| error(&GOOD.replace(from, to));
    assert_eq!(swap("\"0.2\"", "\"0.1\""), "unsupported metadata_version '0.1' (known: 0.2)");
    assert_eq!(swap("\"metadata_version\": \"0.2\", ", ""), "unsupported metadata_version '0.1' (known: 0.2)");
    assert_eq!(swap("\"llm\"", "\"diffusion\""), "expected bundle kind llm, got diffusion");
    assert_eq!(swap("\"vocab_size\": 320, ", ""), "metadata is missing required field 'language.vocab_size'");
    assert_eq!(swap("\"name\": \"n\", ", ""), "metadata is missing required field 'name'");
    assert_eq!(swap("\"main\": \"m.aimodel\"", "\"a\": \"b\""), "metadata is missing required field 'assets.main'");
    assert_eq!(swap("m.aimodel", "x.aimodel"), "asset 'main' not found at b/x.aimodel");
    assert_eq!(swap("320", "-1"), "metadata.json is malformed: field 'language.vocab_size' is not a positive integer");
    assert!(error("{\"metadata_version\": ").starts_with("metadata.json is malformed: EOF"));
    // The version comes before every other field.
    assert_eq!(error("{\"metadata_version\": \"9\", \"kind\": 5}"), "unsupported metadata_version '9' (known: 0.2)");
}

#[test]
fn a_path_to_an_asset_is_refused_before_any_read() {
    for extension in ["aimodel", "aimodelc"] {
        let source = Memory { files: HashMap::new(), location: format!("x.{extension}").into() };
        assert!(matches!(ModelBundle::read(&source), Err(BundleError::PointedAtModelAsset(_))));
    }
    let empty = Memory { files: HashMap::new(), location: "x".into() };
    assert!(matches!(ModelBundle::read(&empty), Err(BundleError::MissingMetadata(_))));
}

#[test]
fn a_compiled_asset_says_what_it_is() {
    let mut b = bundle(&GOOD.replace("\"extra\"", "\"compilation\": {\"targets\": [\"h18p\"]}, \"extra\""));
    b.files.remove("m.aimodel");
    b.files.insert("m.aimodelc", String::new());
    let text = LanguageBundle::read(&b).unwrap_err().to_string();
    assert!(text.contains("compiled for a device (m.aimodelc, for \"h18p\")"), "{text}");
}
