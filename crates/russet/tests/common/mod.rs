//! What the tests over the small models share.
#![allow(dead_code, reason = "each test takes what it needs")]

use std::path::{Path, PathBuf};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures")
}

/// The bundles of `fixtures/lm`, in order.
pub(crate) fn bundles() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(fixtures().join("lm")).expect("fixtures/lm");
    let mut found: Vec<_> = entries.map(|e| e.expect("an entry").path()).collect();
    found.retain(|p| p.join("metadata.json").is_file());
    found.sort();
    assert!(found.len() >= 14, "{} models", found.len());
    found
}

/// One of them.
pub(crate) fn bundle(name: &str) -> PathBuf {
    fixtures().join("lm").join(name)
}

/// Models of open caches whose calls do not depend on how the tokens before were cut into calls (`conformance/turns.py`): six
/// architectures, and the functions of fixed shapes.
pub(crate) fn talkers() -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = ["llama", "qwen2", "qwen3-4bit", "gemma3", "moe", "delta"]
        .map(talker)
        .into();
    all.extend(static_bundles());
    all
}

/// One of them.
pub(crate) fn talker(name: &str) -> PathBuf {
    fixtures().join("turns").join(name)
}

/// The bundle whose functions have fixed shapes.
pub(crate) fn static_bundle() -> PathBuf {
    fixtures().join("static/static")
}

/// And another, of palettized weights, whose inputs have hardware constraints.
pub(crate) fn static_bundles() -> [PathBuf; 2] {
    [static_bundle(), fixtures().join("static-palette/palette")]
}

/// All of them.
pub(crate) fn all_bundles() -> Vec<PathBuf> {
    let mut all = bundles();
    all.extend(static_bundles());
    all
}
