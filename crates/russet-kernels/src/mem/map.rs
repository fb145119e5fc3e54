//! Read-only maps of files: how gigabytes of weights are opened without being read.

use std::fs::File;
use std::io;
use std::ops::{Deref, Range};
use std::path::Path;

use memmap2::Mmap;

/// A file mapped for reading.
#[derive(Debug)]
pub struct FileMap(Option<Mmap>);

impl FileMap {
    /// Maps the whole of `path`.
    ///
    /// The bytes are those of the file as it is while it is used. Model files are written once (downloaders write
    /// aside and rename); a file truncated by another process while mapped ends this process with SIGBUS, as it
    /// would any program that maps it.
    ///
    /// # Errors
    /// What opening, sizing or mapping the file gives.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        let file = File::open(path)?;
        let meta = file.metadata()?;
        if !meta.is_file() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "not a regular file",
            ));
        }
        if meta.len() == 0 {
            return Ok(Self(None));
        }
        // SAFETY: the map is read-only, of a regular file, and handed out only as plain bytes of which any value is
        // valid. Readers check whatever they read where they read it. A writer changing the file meanwhile is outside
        // what Rust can rule out; the doc comment above states what callers rely on.
        let map = unsafe { Mmap::map(&file)? };
        Ok(Self(Some(map)))
    }

    /// Gives the memory that holds `range` back to the system; the bytes are read from the file again when they are used.
    pub(super) fn unload(&self, range: Range<usize>) {
        #[cfg(unix)]
        if let Some(map) = self.0.as_ref().filter(|m| range.end <= m.len()) {
            let advice = memmap2::UncheckedAdvice::DontNeed;
            // SAFETY: the map is of a file and never written, so what is dropped is the same when it is read again.
            let advised = unsafe { map.unchecked_advise_range(advice, range.start, range.len()) };
            // Advice only: without it the memory stays.
            let _ = advised;
        }
        #[cfg(not(unix))]
        let _ = range;
    }
}

impl Deref for FileMap {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.as_deref().unwrap_or(&[])
    }
}

impl AsRef<[u8]> for FileMap {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_files_and_refuses_folders() {
        let dir = std::env::temp_dir().join(format!("russet-map-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        for content in [&b""[..], b"weights"] {
            let path = dir.join("file");
            std::fs::write(&path, content).unwrap();
            let map = FileMap::open(&path).unwrap();
            assert_eq!(&*map, content);
            map.unload(0..content.len());
            assert_eq!(&*map, content, "read again");
        }
        assert!(FileMap::open(&dir).is_err());
        assert_eq!(
            FileMap::open(dir.join("absent")).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
