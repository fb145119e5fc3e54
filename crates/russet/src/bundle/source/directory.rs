//! A bundle in a folder. Links are followed: download caches are made of them.

use std::fs::{self, Metadata};
use std::io;
use std::path::{Path, PathBuf};

use russet_kernels::mem::{FileMap, SharedBytes};

use super::{Entry, Source};

/// A folder.
#[derive(Clone, Debug)]
pub struct DirectorySource(PathBuf);

impl DirectorySource {
    /// The folder at a path; nothing is read yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }
}

/// Fails for anything but a file: a pipe or a device in a bundle, or a link to one, would be read without end.
///
/// # Errors
/// Those of looking at the path; [`io::ErrorKind::InvalidInput`] where it is no file.
pub(crate) fn regular(path: &Path) -> io::Result<()> {
    match fs::metadata(path)?.is_file() {
        true => Ok(()),
        false => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "not a regular file",
        )),
    }
}

impl Source for DirectorySource {
    fn find(&self, name: &str) -> Option<Entry> {
        let kind = |m: Metadata| match (m.is_file(), m.is_dir()) {
            (true, _) => Entry::File(m.len()),
            (_, true) => Entry::Folder,
            _ => Entry::Special,
        };
        fs::metadata(self.0.join(name)).ok().map(kind)
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let path = self.0.join(name);
        regular(&path)?;
        fs::read(path)
    }

    fn map(&self, name: &str) -> io::Result<SharedBytes> {
        let path = self.0.join(name);
        regular(&path)?;
        FileMap::open(path).map(SharedBytes::from_map)
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        let entries = match fs::read_dir(self.0.join(folder)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other?,
        };
        let mut names = Vec::new();
        for entry in entries {
            // A name that is not Unicode is not one that metadata could give.
            names.extend(entry?.file_name().into_string());
        }
        names.sort_unstable();
        Ok(names)
    }

    fn location(&self) -> &Path {
        &self.0
    }
}
