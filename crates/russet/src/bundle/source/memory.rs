//! A bundle in memory: an app's resources, what a network gave, tests.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use russet_kernels::mem::SharedBytes;

use super::archive::{ArchiveError, EntryProblem};
use super::tree::{Tree, normal};
use super::{Entry, Source, aligned};
use crate::bundle::BundleError;

/// Files in memory, by path.
#[derive(Clone, Debug)]
pub struct MemorySource {
    location: PathBuf,
    files: Tree<SharedBytes>,
}

impl MemorySource {
    /// No files yet; `name` is what messages call it.
    pub fn new(name: impl Into<PathBuf>) -> Self {
        Self {
            location: name.into(),
            files: Tree::new(),
        }
    }

    /// Adds a file, in place of one of this path. The bytes are not copied (weights once, where they are not aligned).
    ///
    /// # Errors
    /// [`BundleError::Archive`] for a path that is absolute or leads outside.
    pub fn with(
        mut self,
        path: &str,
        bytes: impl AsRef<[u8]> + Send + Sync + 'static,
    ) -> Result<Self, BundleError> {
        let normal = normal(path).map_err(|rule| BundleError::Archive {
            path: self.location.clone(),
            source: ArchiveError::Entry {
                name: path.into(),
                problem: EntryProblem::Name(rule),
            },
        })?;
        self.files.insert(normal, SharedBytes::new(Arc::new(bytes)));
        Ok(self)
    }

    fn file(&self, name: &str) -> io::Result<&SharedBytes> {
        self.files
            .get(name)
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl Source for MemorySource {
    fn find(&self, name: &str) -> Option<Entry> {
        let folder = || self.files.is_folder(name).then_some(Entry::Folder);
        let file = |b: &SharedBytes| Entry::File(b.len() as u64);
        self.files.get(name).map(file).or_else(folder)
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        Ok(self.file(name)?.to_vec())
    }

    fn map(&self, name: &str) -> io::Result<SharedBytes> {
        aligned(self.file(name)?.clone())
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        Ok(self.files.list(folder))
    }

    fn location(&self) -> &Path {
        &self.location
    }
}
