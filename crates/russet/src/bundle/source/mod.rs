//! Where the files of a bundle come from: a folder, a zip archive, memory.
//!
//! A name is a relative path, its parts separated by `/`; `""` is the bundle itself. Whoever reads a bundle asks for names
//! only, so that a bundle from a network, an encrypted container or an app's resources opens like a folder (contract B §2.2).

mod archive;
mod directory;
mod memory;
#[cfg(test)]
mod tests;
mod tree;

use std::fmt;
use std::io;
use std::path::Path;

use russet_kernels::mem::{AlignedBuf, SharedBytes};

pub use archive::{ArchiveError, ArchiveSource, EntryProblem};
pub use directory::DirectorySource;
pub(crate) use directory::regular;
pub use memory::MemorySource;

/// What is at a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A file of this many bytes.
    File(u64),
    /// A folder.
    Folder,
    /// A pipe, a socket or a device, which is never read.
    Special,
}

/// The files of a bundle.
pub trait Source: fmt::Debug + Send + Sync {
    /// What is at a name; `None` where nothing is.
    fn find(&self, name: &str) -> Option<Entry>;

    /// The content of a file, read now.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] where nothing is there, others where it cannot be read.
    fn read(&self, name: &str) -> io::Result<Vec<u8>>;

    /// The content of a file that may be large: shared with the source where that is possible, and aligned for weights
    /// ([`WEIGHT_ALIGNMENT`]).
    ///
    /// # Errors
    /// As for [`Source::read`].
    fn map(&self, name: &str) -> io::Result<SharedBytes>;

    /// The names in a folder, sorted. None where the folder is not there.
    ///
    /// # Errors
    /// Where it cannot be listed.
    fn list(&self, folder: &str) -> io::Result<Vec<String>>;

    /// What to call it in messages; its extension is checked before anything is read.
    fn location(&self) -> &Path;
}

impl dyn Source + '_ {
    /// Whether anything is at a name.
    pub fn exists(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    /// The content of a file that need not be there.
    ///
    /// # Errors
    /// Where it is there and cannot be read.
    pub fn read_optional(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        match self.read(name) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }
}

/// The alignment of the bytes that [`Source::map`] gives: that of the constants of an asset within their file. Elements are
/// at most eight bytes.
pub const WEIGHT_ALIGNMENT: usize = 16;

/// A name inside a folder; `""` is the bundle.
pub(crate) fn inside(folder: &str, name: &str) -> String {
    if folder.is_empty() {
        name.to_owned()
    } else {
        format!("{folder}/{name}")
    }
}

fn is_aligned(bytes: &[u8]) -> bool {
    bytes.as_ptr().addr().is_multiple_of(WEIGHT_ALIGNMENT)
}

/// The bytes as they are where they are aligned, else one copy of them.
fn aligned(bytes: SharedBytes) -> io::Result<SharedBytes> {
    if is_aligned(&bytes) {
        return Ok(bytes);
    }
    let mut copy = buffer(bytes.len())?;
    copy.as_bytes_mut().copy_from_slice(&bytes);
    Ok(SharedBytes::new(std::sync::Arc::new(copy)))
}

fn buffer(len: usize) -> io::Result<AlignedBuf> {
    AlignedBuf::with_len(len).map_err(|e| io::Error::new(io::ErrorKind::OutOfMemory, e))
}
