//! What the tests over the small models share.

use std::path::{Path, PathBuf};

/// The bundles of `fixtures/lm`, in order.
pub(crate) fn bundles() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/lm");
    let entries = std::fs::read_dir(folder).expect("fixtures/lm");
    let mut found: Vec<_> = entries.map(|e| e.expect("an entry").path()).collect();
    found.retain(|p| p.join("metadata.json").is_file());
    found.sort();
    assert!(found.len() >= 14, "{} models", found.len());
    found
}
