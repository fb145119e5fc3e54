//! Models that are damaged in every part: each error says what is wrong and where, and nothing hangs.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use russet::{GenerateOptions, Model, OpenOptions, RenderOptions};
use serde_json::Value;

/// A copy of a small bundle, removed at the end.
struct Bundle(PathBuf);

impl Bundle {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("russet-damaged-{}-{number}", std::process::id());
        let target = std::env::temp_dir().join(name);
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/lm/qwen3-4bit");
        copy(&source, &target);
        Self(target)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Changes a JSON file.
    fn edit(&self, name: &str, change: impl FnOnce(&mut Value)) {
        let bytes = fs::read(self.path(name)).unwrap();
        let mut value = serde_json::from_slice(&bytes).unwrap();
        change(&mut value);
        fs::write(self.path(name), value.to_string()).unwrap();
    }

    fn open(&self) -> Result<Model, russet::Error> {
        Model::open(&self.0, &OpenOptions::default())
    }

    /// Why it cannot be opened.
    fn error(&self) -> String {
        self.open().expect_err("a damaged bundle").to_string()
    }
}

impl Drop for Bundle {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::write(&target, fs::read(entry.path()).unwrap()).unwrap();
        }
    }
}

const METADATA: &str = "metadata.json";
const PROGRAM: &str = "qwen3-4bit.aimodel/main.mlirb";
const TOKENIZER: &str = "tokenizer/tokenizer.json";

#[track_caller]
fn assert_says(error: &str, parts: &[&str]) {
    for part in parts {
        assert!(error.contains(part), "{part:?} in {error:?}");
    }
}

#[test]
fn the_copy_is_sound() {
    assert_eq!(Bundle::new().open().unwrap().name(), "qwen3-4bit");
}

#[test]
fn metadata_that_lacks_a_field_names_it() {
    for field in ["name", "kind", "language", "assets"] {
        let bundle = Bundle::new();
        bundle.edit(METADATA, |v| drop(v.as_object_mut().unwrap().remove(field)));
        assert_says(&bundle.error(), &["missing required field", field]);
    }
    for field in ["tokenizer", "vocab_size", "max_context_length"] {
        let bundle = Bundle::new();
        bundle.edit(METADATA, |v| {
            drop(v["language"].as_object_mut().unwrap().remove(field));
        });
        let name = format!("language.{field}");
        assert_says(&bundle.error(), &["missing required field", &name]);
    }
    let bundle = Bundle::new();
    bundle.edit(METADATA, |v| v["metadata_version"] = "9".into());
    assert_says(&bundle.error(), &["'9'", "known: 0.2"]);
}

#[test]
fn metadata_that_is_none_says_where_it_breaks() {
    for (bytes, part) in [
        (&b"{"[..], "line 1 column 1"),
        (b"[1]", "not an object"),
        (b"\xff\xfe", "column 1"),
        (b"", "EOF"),
    ] {
        let bundle = Bundle::new();
        fs::write(bundle.path(METADATA), bytes).unwrap();
        assert_says(&bundle.error(), &["metadata.json is malformed", part]);
    }
    let bundle = Bundle::new();
    fs::remove_file(bundle.path(METADATA)).unwrap();
    assert_says(&bundle.error(), &["metadata.json not found at"]);
}

#[test]
fn functions_and_assets_that_are_not_there_are_named() {
    let bundle = Bundle::new();
    bundle.edit(METADATA, |v| {
        v["language"]["function_map"]["main"] = Value::from(vec!["nowhere"]);
    });
    assert_says(&bundle.error(), &["\"nowhere\"", "it has main"]);
    let bundle = Bundle::new();
    bundle.edit(METADATA, |v| v["assets"]["main"] = "../x.aimodel".into());
    assert_says(&bundle.error(), &["outside the bundle", "../x.aimodel"]);
    let bundle = Bundle::new();
    bundle.edit(METADATA, |v| v["assets"]["main"] = "x.aimodel".into());
    assert_says(&bundle.error(), &["'main' not found", "x.aimodel"]);
}

#[test]
fn programs_that_are_cut_or_missing_say_where() {
    let bundle = Bundle::new();
    let whole = fs::read(bundle.path(PROGRAM)).unwrap();
    for (len, part) in [(0, "byte 0"), (3, "byte 0"), (1000, "header at byte")] {
        fs::write(bundle.path(PROGRAM), &whole[..len]).unwrap();
        assert_says(&bundle.error(), &["qwen3-4bit.aimodel: main.mlirb", part]);
    }
    fs::remove_file(bundle.path(PROGRAM)).unwrap();
    assert_says(
        &bundle.error(),
        &["'main' is no model asset", "without main.mlirb"],
    );
    fs::create_dir(bundle.path(PROGRAM)).unwrap();
    assert_says(&bundle.error(), &[PROGRAM, "not a regular file"]);
}

#[cfg(unix)]
#[test]
fn devices_are_not_read() {
    for name in [METADATA, TOKENIZER, PROGRAM] {
        let bundle = Bundle::new();
        fs::remove_file(bundle.path(name)).unwrap();
        std::os::unix::fs::symlink("/dev/zero", bundle.path(name)).unwrap();
        assert_says(&bundle.error(), &[name, "not a regular file"]);
    }
}

#[test]
fn tokenizers_that_are_broken_or_missing_are_told() {
    let bundle = Bundle::new();
    fs::write(bundle.path(TOKENIZER), "{}").unwrap();
    assert_says(&bundle.error(), &["tokenizer.json", "line 1"]);
    let bundle = Bundle::new();
    fs::write(bundle.path("tokenizer/tokenizer_config.json"), "{").unwrap();
    assert_says(
        &bundle.error(),
        &["tokenizer/tokenizer_config.json is malformed"],
    );
    let bundle = Bundle::new();
    fs::remove_file(bundle.path(TOKENIZER)).unwrap();
    let model = bundle.open().unwrap();
    let error = model.plain_prompt("a").unwrap_err().to_string();
    assert_says(&error, &["no tokenizer", "put its tokenizer.json"]);
}

#[test]
fn templates_that_are_broken_or_endless_are_told() {
    for (template, part) in [
        ("{% if %}", "syntax error"),
        ("{% for i in range(1000000000) %}x{% endfor %}", "too many"),
    ] {
        let bundle = Bundle::new();
        let file = "tokenizer/tokenizer_config.json";
        bundle.edit(file, |v| v["chat_template"] = template.into());
        let model = bundle.open().unwrap();
        let error = model.prompt(&[], &RenderOptions::default()).unwrap_err();
        assert_says(&error.to_string(), &["chat template", "line 1", part]);
    }
}

#[test]
fn prompts_that_are_empty_or_too_long_are_refused() {
    let bundle = Bundle::new();
    let model = bundle.open().unwrap();
    let mut chat = model.session().unwrap();
    let options = GenerateOptions::default();
    let empty = chat.answer(&[], &options, &mut |_| ()).unwrap_err();
    assert_says(&empty.to_string(), &["the prompt is empty"]);
    let long = chat.send(&"x".repeat(5000), &options, &mut |_| ());
    assert_says(&long.unwrap_err().to_string(), &["context is full", "256"]);
    assert!(chat.messages().is_empty(), "a refused message is not kept");
}

#[test]
fn other_files_are_no_models() {
    let bundle = Bundle::new();
    let open = |name: &str, bytes: &[u8]| {
        let path = bundle.path(name);
        fs::write(&path, bytes).unwrap();
        Model::open(&path, &OpenOptions::default())
            .unwrap_err()
            .to_string()
    };
    assert_says(
        &open("notes.txt", b"hello"),
        &["notes.txt is no model", "GGUF"],
    );
    assert_says(&open("empty", b""), &["empty is no model"]);
    assert_says(
        &open("weights.bin", b"GGUF\x03\0"),
        &["weights.bin: GGUF, header at byte 4"],
    );
    assert_says(
        &open("empty.gguf", b""),
        &["empty.gguf: GGUF, header at byte 0"],
    );
    let nowhere = bundle.path("nowhere");
    let error = Model::open(&nowhere, &OpenOptions::default()).unwrap_err();
    assert_says(&error.to_string(), &["cannot read", "nowhere"]);
}
