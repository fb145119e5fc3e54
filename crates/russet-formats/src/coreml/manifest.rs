//! `Manifest.json` of a package: which of its items is the model. Item paths are relative to `Data/`.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::error::{Place, Problem, Result};

/// The manifest's name in a package.
pub const MANIFEST: &str = "Manifest.json";

/// Where weight files lie, as values name it: the folder of the specification.
const MODEL_FOLDER: &str = "@model_path/";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Manifest {
    item_info_entries: BTreeMap<String, Item>,
    root_model_identifier: String,
}

#[derive(Deserialize)]
struct Item {
    path: String,
}

/// The specification in a package with this manifest, as a path in the package.
///
/// # Errors
/// [`Problem::Manifest`] for anything but a manifest that names a model inside the package.
pub fn specification(manifest: &[u8]) -> Result<String> {
    let wrong = |reason: String| Problem::Manifest(reason).at(Place::Manifest);
    let read: Manifest = serde_json::from_slice(manifest).map_err(|e| wrong(e.to_string()))?;
    let root = &read.root_model_identifier;
    let item = read.item_info_entries.get(root);
    let item = item.ok_or_else(|| wrong(format!("it has no item {root:?}, the root model")))?;
    let path = item.path.trim_start_matches("./");
    if !is_inside(path) {
        return Err(wrong(format!(
            "the model's path {path:?} leaves the package"
        )));
    }
    Ok(format!("Data/{path}"))
}

/// Whether a relative path stays below where it starts.
fn is_inside(path: &str) -> bool {
    let plain = |part: &str| !matches!(part, "" | "." | "..") && !part.contains(['\\', '\0']);
    path.split('/').all(plain)
}

/// A weight file, as a value names it, as a path beside the specification; `None` for a name that leads elsewhere.
pub fn beside(file: &str) -> Option<&str> {
    file.strip_prefix(MODEL_FOLDER)
        .filter(|path| is_inside(path))
}
