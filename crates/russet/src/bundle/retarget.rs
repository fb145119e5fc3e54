//! Pointing the metadata at other assets, after compilation (contract B §2.10).
//!
//! `assets` is changed and `compilation.targets` is added to; everything else stays byte for byte what it was. The file is
//! replaced in one step.

use std::fs;
use std::path::{Path, PathBuf};

use super::document::Document;
use super::error::BundleError;
use super::fields::malformed;
use super::model::{METADATA, ModelBundle, raw_metadata, stays_inside};
use super::source::{DirectorySource, Source};
use crate::replace::replace_entry;

/// Why metadata is not changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RetargetError {
    /// The bundle.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// A bundle that is no folder.
    #[error("{} is not a folder: unpack the archive first, and change the metadata there", .0.display())]
    NoFolder(PathBuf),
    /// A role that the bundle does not have.
    #[error("the bundle has no asset {role:?} (it has {known}); --force adds it")]
    UnknownRole {
        /// The role asked for.
        role: String,
        /// The roles there are.
        known: String,
    },
    /// A file that is not there.
    #[error("{} is not there; --force names it all the same", .0.display())]
    MissingFile(PathBuf),
    /// The metadata is another one than was read.
    #[error("{} was changed meanwhile: nothing was written", .0.display())]
    Changed(PathBuf),
    /// Writing.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The metadata.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

/// A change of `metadata.json` that has not been made yet.
#[derive(Clone, Debug)]
pub struct Retarget {
    path: PathBuf,
    before: String,
    after: String,
}

impl Retarget {
    /// Works out the change that gives roles these files. With `force`, roles and files need not be there.
    ///
    /// # Errors
    /// Any [`RetargetError`] but those of writing.
    pub fn new(
        folder: &Path,
        assets: &[(String, String)],
        force: bool,
    ) -> Result<Self, RetargetError> {
        if folder.is_file() {
            return Err(RetargetError::NoFolder(folder.into()));
        }
        let source = DirectorySource::new(folder);
        let bundle = ModelBundle::read(&source)?;
        for (role, file) in assets {
            check(&bundle, &source, role, file, force)?;
        }
        let before = read(&source)?;
        let mut document = Document::new(before.clone());
        document.ensure(&[], "assets", "{}")?;
        document.ensure(&[], "compilation", "{}")?;
        document.ensure(&["compilation"], "targets", "[]")?;
        for (role, file) in assets {
            document.set(&["assets"], role, file)?;
            document.push(&["compilation", "targets"], file)?;
        }
        Ok(Self {
            path: folder.join(METADATA),
            before,
            after: document.into_text(),
        })
    }

    /// Whether anything changes.
    pub fn changes(&self) -> bool {
        self.before != self.after
    }

    /// The metadata after the change.
    pub fn after(&self) -> &str {
        &self.after
    }

    /// Lines that go (`-`) and come (`+`), with a line of those around them (` `).
    pub fn diff(&self) -> String {
        diff(&self.before, &self.after)
    }

    /// Makes the change, in one step: whatever happens, the file is the old one or the new one. A link to the metadata becomes
    /// a file, and what it led to (a download cache's) stays as it was.
    ///
    /// # Errors
    /// [`RetargetError::Changed`] where the file is not the one that was read, [`RetargetError::Write`] where it cannot be
    /// written.
    pub fn write(&self) -> Result<(), RetargetError> {
        let now = fs::read(&self.path).unwrap_or_default();
        if now != self.before.as_bytes() {
            return Err(RetargetError::Changed(self.path.clone()));
        }
        replace_entry(&self.path, self.after.as_bytes()).map_err(|source| RetargetError::Write {
            path: self.path.clone(),
            source,
        })
    }
}

fn read(source: &dyn Source) -> Result<String, BundleError> {
    raw_metadata(source)?;
    let bytes = source.read(METADATA).map_err(|error| BundleError::Io {
        file: METADATA.into(),
        source: error,
    })?;
    String::from_utf8(bytes).map_err(|e| malformed(e.to_string()))
}

fn check(
    bundle: &ModelBundle,
    source: &dyn Source,
    role: &str,
    file: &str,
    force: bool,
) -> Result<(), RetargetError> {
    if !stays_inside(file) {
        let (key, path) = (role.into(), file.into());
        return Err(BundleError::OutsideAsset { key, path }.into());
    }
    let mut roles = bundle.assets.iter().map(|(role, _)| role.as_str());
    if !force && roles.all(|r| r != role) {
        let known: Vec<&str> = bundle.assets.iter().map(|(r, _)| r.as_str()).collect();
        return Err(RetargetError::UnknownRole {
            role: role.into(),
            known: known.join(", "),
        });
    }
    match force || source.exists(file) {
        true => Ok(()),
        false => Err(RetargetError::MissingFile(source.location().join(file))),
    }
}

/// Documents of more lines are compared by their beginnings and ends alone.
const MOST_LINES: usize = 2_000;

fn diff(before: &str, after: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    let mut lines: Vec<(char, &str)> = Vec::new();
    let (mut i, mut j) = (0, 0);
    for (a, b) in common(&old, &new) {
        lines.extend(old[i..a].iter().map(|l| ('-', *l)));
        lines.extend(new[j..b].iter().map(|l| ('+', *l)));
        lines.push((' ', old[a]));
        (i, j) = (a + 1, b + 1);
    }
    lines.extend(old[i..].iter().map(|l| ('-', *l)));
    lines.extend(new[j..].iter().map(|l| ('+', *l)));
    let near = |i: usize| {
        let mut around = lines.iter().skip(i.saturating_sub(1)).take(2 + i.min(1));
        around.any(|(mark, _)| *mark != ' ')
    };
    let shown = (0..lines.len()).filter(|&i| near(i));
    shown
        .map(|i| format!("{}{}\n", lines[i].0, lines[i].1))
        .collect()
}

/// Pairs of equal lines, as many as there are in one order.
fn common(old: &[&str], new: &[&str]) -> Vec<(usize, usize)> {
    if old.len().max(new.len()) > MOST_LINES {
        let start = old.iter().zip(new).take_while(|(a, b)| a == b).count();
        let rest = (&old[start..], &new[start..]);
        let end = rest.0.iter().rev().zip(rest.1.iter().rev());
        let end = end.take_while(|(a, b)| a == b).count();
        let tail = (0..end)
            .rev()
            .map(|k| (old.len() - 1 - k, new.len() - 1 - k));
        return (0..start).map(|k| (k, k)).chain(tail).collect();
    }
    let mut longest = vec![vec![0_u32; new.len() + 1]; old.len() + 1];
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            longest[i][j] = match old[i] == new[j] {
                true => longest[i + 1][j + 1] + 1,
                false => longest[i + 1][j].max(longest[i][j + 1]),
            };
        }
    }
    let (mut i, mut j, mut pairs) = (0, 0, Vec::new());
    while i < old.len() && j < new.len() {
        if old[i] == new[j] {
            pairs.push((i, j));
            (i, j) = (i + 1, j + 1);
        } else if longest[i + 1][j] >= longest[i][j + 1] {
            i += 1;
        } else {
            j += 1;
        }
    }
    pairs
}
