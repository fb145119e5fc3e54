//! Bundles as data: metadata in, fields or error out.

mod kinds;

use super::*;

fn bundle(metadata: &str) -> MemorySource {
    with(metadata, "m.aimodel/main.mlirb")
}

/// A bundle of metadata and one more file.
fn with(metadata: &str, file: &str) -> MemorySource {
    files(&[("metadata.json", metadata), (file, "")])
}

fn files(files: &[(&str, &str)]) -> MemorySource {
    files
        .iter()
        .fold(MemorySource::new("b"), |source, (name, text)| {
            source.with(name, text.as_bytes().to_vec()).unwrap()
        })
}

fn error(metadata: &str) -> String {
    LanguageBundle::read(&bundle(metadata))
        .unwrap_err()
        .to_string()
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
    assert_eq!(
        (b.main.as_str(), b.language.main_function()),
        ("m.aimodel", "run")
    );
    assert_eq!(
        (b.language.vocab_size, b.language.max_context_length),
        (320, 256)
    );
    assert_eq!(b.language.eos_token_ids, [7, 9]);
    assert_eq!(
        (
            b.language.prefill_chunk_size,
            b.language.prefill_chunk_threshold
        ),
        (Some(64), None)
    );
    assert!(b.language.embedded_tokenizer);
    assert_eq!(
        b.language.function_map,
        [(
            "main".to_owned(),
            vec!["run".to_owned(), "other".to_owned()]
        )]
    );
    assert_eq!(
        b.model.verify(&bundle(GOOD)).unwrap_err().to_string(),
        "asset 'z' not found at b/z.npy"
    );
}

/// What to change in [`GOOD`], and what is said then.
const FAULTS: [(&str, &str, &str); 12] = [
    (
        "\"0.2\"",
        "\"0.1\"",
        "unsupported metadata_version '0.1' (known: 0.2)",
    ),
    (
        "\"metadata_version\": \"0.2\", ",
        "",
        "unsupported metadata_version '0.1' (known: 0.2)",
    ),
    (
        "\"llm\"",
        "\"diffusion\"",
        "expected bundle kind llm, got diffusion",
    ),
    (
        "\"llm\"",
        "\"vlm\"",
        "metadata is missing required field 'vision'",
    ),
    (
        "\"vocab_size\": 320, ",
        "",
        "metadata is missing required field 'language.vocab_size'",
    ),
    (
        "\"name\": \"n\", ",
        "",
        "metadata is missing required field 'name'",
    ),
    (
        "\"main\": \"m.aimodel\"",
        "\"a\": \"b\"",
        "metadata is missing required field 'assets.main'",
    ),
    (
        "\"language\"",
        "\"speech\"",
        "metadata is missing required field 'language'",
    ),
    (
        "m.aimodel",
        "x.aimodel",
        "asset 'main' not found at b/x.aimodel",
    ),
    (
        "m.aimodel",
        "../m.aimodel",
        "asset 'main' is outside the bundle: ../m.aimodel",
    ),
    (
        "320",
        "-1",
        "metadata.json is malformed: field 'language.vocab_size' is not a positive integer",
    ),
    (
        "[7, 9]",
        "\"x\"",
        "metadata.json is malformed: field 'language.eos_token_ids' is not a token or a list of tokens",
    ),
];

#[test]
fn every_fault_has_its_message() {
    for (from, to, expected) in FAULTS {
        assert_eq!(error(&GOOD.replace(from, to)), expected);
    }
    assert!(error("{\"metadata_version\": ").starts_with("metadata.json is malformed: EOF"));
}

#[test]
fn checks_have_an_order() {
    // The version comes before every other field, all fields come before any asset.
    assert_eq!(
        error("{\"metadata_version\": \"9\", \"kind\": 5}"),
        "unsupported metadata_version '9' (known: 0.2)"
    );
    let two = GOOD
        .replace("m.aimodel", "x.aimodel")
        .replace("\"tokenizer\"", "\"t\"");
    assert_eq!(
        error(&two),
        "metadata is missing required field 'language.tokenizer'"
    );
}

#[test]
fn a_path_to_an_asset_is_refused_before_any_read() {
    for extension in ["aimodel", "aimodelc", "AIMODEL"] {
        let source = MemorySource::new(format!("x.{extension}"));
        assert!(matches!(
            ModelBundle::read(&source),
            Err(BundleError::PointedAtModelAsset(_))
        ));
    }
    assert!(matches!(
        ModelBundle::read(&MemorySource::new("x")),
        Err(BundleError::MissingMetadata(_))
    ));
}

#[test]
fn a_compiled_asset_says_what_it_was_compiled_for() {
    let targets = GOOD.replace(
        "\"extra\"",
        "\"compilation\": {\"targets\": [\"h18p\"]}, \"extra\"",
    );
    let named = GOOD.replace("m.aimodel", "m.h17.aimodelc");
    let cases = [
        (
            targets.as_str(),
            "m.aimodelc",
            "asset 'main' is compiled for h18p (m.aimodelc): ",
        ),
        (
            GOOD,
            "m.aimodelc",
            "asset 'main' is compiled for a device (m.aimodelc): ",
        ),
        (
            GOOD,
            "m.h18p.aimodelc",
            "asset 'main' is compiled for h18p (m.h18p.aimodelc): ",
        ),
        (
            &named,
            "m.h17.aimodelc",
            "asset 'main' is compiled for h17 (m.h17.aimodelc): ",
        ),
        (GOOD, "m2.aimodelc", "asset 'main' not found at b/m.aimodel"),
    ];
    for (metadata, file, expected) in cases {
        let b = with(metadata, &format!("{file}/main.mlirb"));
        let text = LanguageBundle::read(&b).unwrap_err().to_string();
        assert!(text.starts_with(expected), "{text}");
    }
}

#[test]
fn the_committed_bundles_are_read() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/lm/qwen3-4bit");
    let source = DirectorySource::new(path);
    let b = LanguageBundle::read(&source).unwrap();
    assert_eq!(
        (b.main.as_str(), b.language.main_function()),
        ("qwen3-4bit.aimodel", "main")
    );
    b.model.verify(&source).unwrap();
    assert!(
        source
            .list("tokenizer")
            .unwrap()
            .contains(&"tokenizer.json".to_owned())
    );
    assert!(source.list("nowhere").unwrap().is_empty());
}
