//! MODEL on the command line, turned into a path: as it is, in the search folders, among the downloads.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::{env, io};

use indicatif::{ProgressBar, ProgressStyle};

use crate::args::search_folders;
use crate::pull::{self, PullError, Step};

/// Why no model is found.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LocateError {
    /// Nothing of this name.
    #[error(
        "there is no model {name:?}: no such file or folder, none in {folders}, and no download of that name (smollm2, hf:OWNER/NAME)"
    )]
    NotFound { name: String, folders: String },
    /// The download failed.
    #[error("cannot get {name}")]
    Pull {
        name: String,
        #[source]
        source: PullError,
    },
}

/// The path of a model, which is downloaded if need be.
pub(crate) fn locate(name: &str) -> Result<PathBuf, LocateError> {
    let list = env::var("COREAI_MODEL_PATH").ok().filter(|l| !l.is_empty());
    let folders = search_folders(list.as_deref(), env::var_os("HOME").map(PathBuf::from));
    if let Some(path) = find(name, &folders).or_else(|| pull::cached(name)) {
        return Ok(path);
    }
    if pull::knows(name) {
        return pull_with_bar(name);
    }
    let folders: Vec<String> = folders.iter().map(|f| f.display().to_string()).collect();
    Err(LocateError::NotFound {
        name: name.into(),
        folders: folders.join(", "),
    })
}

/// A model among local files: the path itself, or a name (with or without its extension) in one of the folders.
fn find(name: &str, folders: &[PathBuf]) -> Option<PathBuf> {
    let path = Path::new(name);
    if path.exists() {
        return Some(path.into());
    }
    if path.is_absolute() || name.is_empty() {
        return None;
    }
    let spellings = [
        name.to_owned(),
        format!("{name}.aimodel"),
        format!("{name}.gguf"),
    ];
    folders
        .iter()
        .flat_map(|f| spellings.iter().map(move |s| f.join(s)))
        .find(|p| p.exists())
}

/// Downloads a model and draws how far it is, on standard error.
pub(crate) fn pull_with_bar(name: &str) -> Result<PathBuf, LocateError> {
    let bar = if io::stderr().is_terminal() {
        ProgressBar::new(0)
    } else {
        ProgressBar::hidden()
    };
    let style = "{msg} [{bar:32}] {bytes}/{total_bytes} {eta}";
    if let Ok(style) = ProgressStyle::with_template(style) {
        bar.set_style(style.progress_chars("=> "));
    }
    let mut last = None;
    let result = pull::pull(name, &mut |step, done, total| {
        if last.replace(step) != Some(step) {
            announce(&bar, name, step, total);
        }
        bar.set_position(done);
    });
    bar.finish_and_clear();
    result.map_err(|source| LocateError::Pull {
        name: name.into(),
        source,
    })
}

fn announce(bar: &ProgressBar, name: &str, step: Step, total: u64) {
    let message = format!("{} {name}", step.label());
    if bar.is_hidden() && step == Step::Download {
        eprintln!("{message} ({} MB)", total.div_ceil(1_000_000));
    }
    bar.set_message(message);
    bar.set_length(total);
    bar.reset_eta();
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn names_are_found_with_and_without_their_extension() {
        let root = env::temp_dir().join(format!("russet-locate-{}", std::process::id()));
        let (a, b) = (root.join("a"), root.join("b"));
        fs::create_dir_all(a.join("bundle")).unwrap();
        fs::create_dir_all(b.join("asset.aimodel")).unwrap();
        fs::write(b.join("file.gguf"), b"").unwrap();
        fs::create_dir_all(b.join("bundle")).unwrap();
        let folders = [a.clone(), b.clone()];
        let cases = [
            ("bundle", Some(a.join("bundle"))),
            ("asset", Some(b.join("asset.aimodel"))),
            ("asset.aimodel", Some(b.join("asset.aimodel"))),
            ("file", Some(b.join("file.gguf"))),
            ("none", None),
            ("", None),
        ];
        for (name, expected) in cases {
            assert_eq!(find(name, &folders), expected, "{name:?}");
        }
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn an_unknown_name_says_where_it_was_looked_for() {
        let error = locate("no-such-model-anywhere").unwrap_err().to_string();
        assert!(
            error.contains("no-such-model-anywhere") && error.contains("smollm2"),
            "{error}"
        );
    }
}
