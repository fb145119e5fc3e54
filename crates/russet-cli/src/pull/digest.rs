//! SHA-256 of files.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use sha2::{Digest, Sha256};

use super::error::PullError;

/// Reads in pieces of this many bytes.
pub(super) const PIECE: usize = 1 << 20;

/// A reader that computes the digest of what passes through it.
pub(super) struct Hashing<R> {
    inner: R,
    hash: Sha256,
    /// Bytes read so far.
    pub(super) count: u64,
}

impl<R: Read> Hashing<R> {
    pub(super) fn new(inner: R) -> Self {
        Self {
            inner,
            hash: Sha256::new(),
            count: 0,
        }
    }

    /// The digest in hexadecimal.
    pub(super) fn finish(self) -> String {
        self.hash
            .finalize()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.hash.update(&buffer[..read]);
        self.count += read as u64;
        Ok(read)
    }
}

/// Copies everything from a reader to a writer and tells how far it is.
pub(super) fn copy(
    from: &mut impl Read,
    to: &mut impl io::Write,
    total: u64,
    progress: &mut dyn FnMut(u64, u64),
) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    let mut done = 0;
    loop {
        let read = from.read(&mut piece)?;
        if read == 0 {
            return Ok(());
        }
        to.write_all(&piece[..read])?;
        done += read as u64;
        progress(done, total);
    }
}

/// Fails where the SHA-256 of a file is not the expected one.
pub(super) fn check(
    path: &Path,
    expected: &'static str,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), PullError> {
    let at = |e| PullError::file("read", path, e);
    let file = File::open(path).map_err(at)?;
    let total = file.metadata().map_err(at)?.len();
    let mut reader = Hashing::new(file);
    copy(&mut reader, &mut io::sink(), total, progress).map_err(at)?;
    let found = reader.finish();
    let file = path
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    if found == expected {
        Ok(())
    } else {
        Err(PullError::Digest {
            file,
            expected,
            found,
        })
    }
}
