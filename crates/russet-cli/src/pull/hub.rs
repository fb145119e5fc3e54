//! Repositories of the Hugging Face Hub: `hf:OWNER/NAME`, `hf:OWNER/NAME@REVISION`, `hf:OWNER/NAME:FILE`.
//!
//! Downloads land in the Hub's own cache (`HF_HOME`), shared with every other program that uses it.

use std::path::PathBuf;
use std::str::FromStr;

use hf_hub::api::sync::{ApiBuilder, ApiError, ApiRepo};
use hf_hub::{Repo, RepoType};

use super::error::PullError;

/// What such names begin with.
pub(super) const PREFIX: &str = "hf:";

/// A repository, and perhaps a file in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Repository {
    /// `OWNER/NAME`.
    pub(super) id: String,
    /// A branch, tag or commit.
    pub(super) revision: String,
    /// The file that is wanted.
    pub(super) file: Option<String>,
}

impl FromStr for Repository {
    type Err = PullError;

    fn from_str(text: &str) -> Result<Self, PullError> {
        let bad = || PullError::Repository {
            name: format!("{PREFIX}{text}"),
        };
        let (rest, file) = match text.split_once(':') {
            Some((rest, file)) => (rest, Some(file.to_owned())),
            None => (text, None),
        };
        let (id, revision) = rest.split_once('@').unwrap_or((rest, "main"));
        let word = |w: &str| {
            !w.is_empty()
                && w != "."
                && w != ".."
                && w.chars()
                    .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        };
        let (owner, name) = id.split_once('/').ok_or_else(bad)?;
        let empty = revision.is_empty() || file.as_deref() == Some("");
        if !word(owner) || !word(name) || empty {
            return Err(bad());
        }
        Ok(Self {
            id: id.into(),
            revision: revision.into(),
            file,
        })
    }
}

/// What of a repository to download.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// One GGUF file.
    Gguf(String),
    /// A bundle: these files, of which the first is its `metadata.json`.
    Bundle(Vec<String>),
}

/// Quantisations, the preferred first: the smallest that keeps most of a small model's quality.
const PREFERRED: &[&str] = &[
    "Q4_K_M", "Q4_K_S", "Q4_1", "Q4_0", "Q5_K_M", "Q8_0", "F16", "BF16", "F32",
];

/// Chooses among the files of a repository.
pub(super) fn choose(files: &[String], wanted: Option<&str>) -> Option<Choice> {
    let is_gguf = |f: &&String| f.to_ascii_lowercase().ends_with(".gguf");
    if let Some(wanted) = wanted {
        return files
            .iter()
            .filter(is_gguf)
            .find(|f| *f == wanted)
            .map(|f| Choice::Gguf(f.clone()));
    }
    let model = files.iter().find(|f| {
        f.split('/')
            .rev()
            .nth(1)
            .is_some_and(|folder| folder.ends_with(".aimodel"))
    });
    if let Some(bundle) = model.and_then(|m| bundle_of(m, files)) {
        return Some(bundle);
    }
    let ranked = |f: &&String| {
        let upper = f.to_ascii_uppercase();
        PREFERRED
            .iter()
            .position(|q| upper.contains(q))
            .unwrap_or(PREFERRED.len())
    };
    files
        .iter()
        .filter(is_gguf)
        .min_by_key(ranked)
        .map(|f| Choice::Gguf(f.clone()))
}

/// The bundle that an asset's file belongs to: everything in the folder that holds `metadata.json` beside the asset.
fn bundle_of(model: &str, files: &[String]) -> Option<Choice> {
    let asset = model.rsplit_once('/')?.0;
    let folder = asset
        .rsplit_once('/')
        .map_or(String::new(), |(folder, _)| format!("{folder}/"));
    let metadata = format!("{folder}metadata.json");
    files.contains(&metadata).then(|| {
        let others = files
            .iter()
            .filter(|f| f.starts_with(&folder) && **f != metadata)
            .cloned();
        Choice::Bundle(std::iter::once(metadata.clone()).chain(others).collect())
    })
}

/// Downloads what is needed of a repository: a GGUF file, or the folder of a bundle.
pub(super) fn pull(repository: &Repository) -> Result<PathBuf, PullError> {
    let problem = |what: &str| {
        let (what, repository) = (what.to_owned(), repository.id.clone());
        move |source: ApiError| PullError::Hub {
            what,
            repository,
            source: Box::new(source),
        }
    };
    let api = ApiBuilder::from_env()
        .with_progress(true)
        .build()
        .map_err(problem("anything"))?;
    let repo = api.repo(Repo::with_revision(
        repository.id.clone(),
        RepoType::Model,
        repository.revision.clone(),
    ));
    let info = repo.info().map_err(problem("the list of files"))?;
    let files: Vec<String> = info.siblings.into_iter().map(|s| s.rfilename).collect();
    let get = |file: &str| get(&repo, file).map_err(problem(file));
    match choose(&files, repository.file.as_deref()) {
        Some(Choice::Gguf(file)) => get(&file),
        Some(Choice::Bundle(files)) => {
            let paths = files
                .iter()
                .map(|f| get(f))
                .collect::<Result<Vec<_>, _>>()?;
            let metadata = paths.into_iter().next().unwrap_or_default();
            Ok(metadata.parent().map(PathBuf::from).unwrap_or(metadata))
        }
        None => Err(nothing(repository, &files)),
    }
}

fn get(repo: &ApiRepo, file: &str) -> Result<PathBuf, ApiError> {
    repo.get(file)
}

/// Says what there is instead.
pub(super) fn nothing(repository: &Repository, files: &[String]) -> PullError {
    let ends = |end: &str| files.iter().any(|f| f.ends_with(end));
    let hint = match &repository.file {
        Some(file) => format!("; {file} is no GGUF file of it"),
        None if ends(".safetensors") => {
            "; it holds safetensors: look for a repository of the same model with GGUF files".into()
        }
        None => String::new(),
    };
    PullError::NothingToRun {
        repository: repository.id.clone(),
        hint,
    }
}
