//! Where the files of a bundle come from.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Files by relative path.
pub trait Source {
    /// Reads a whole file.
    fn read(&self, name: &str) -> io::Result<Vec<u8>>;

    /// Whether a file or directory is there.
    fn exists(&self, name: &str) -> bool;

    /// What to call it in messages; its extension is checked before anything is read.
    fn location(&self) -> &Path;
}

/// A directory.
#[derive(Clone, Debug)]
pub struct DirectorySource(PathBuf);

impl DirectorySource {
    /// The directory at a path; nothing is read yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }
}

impl Source for DirectorySource {
    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        fs::read(self.0.join(name))
    }

    fn exists(&self, name: &str) -> bool {
        self.0.join(name).exists()
    }

    fn location(&self) -> &Path {
        &self.0
    }
}
