//! Where the files of a bundle come from.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Files by relative path, parts separated by `/`.
pub trait Source {
    /// Reads a whole file.
    fn read(&self, name: &str) -> io::Result<Vec<u8>>;

    /// Whether a file or directory is there.
    fn exists(&self, name: &str) -> bool;

    /// The names in a directory, sorted; `""` is the bundle itself. None where the directory is not there.
    fn list(&self, directory: &str) -> io::Result<Vec<String>>;

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
    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let path = self.0.join(name);
        regular(&path)?;
        fs::read(path)
    }

    fn exists(&self, name: &str) -> bool {
        self.0.join(name).exists()
    }

    fn list(&self, directory: &str) -> io::Result<Vec<String>> {
        let entries = match fs::read_dir(self.0.join(directory)) {
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
