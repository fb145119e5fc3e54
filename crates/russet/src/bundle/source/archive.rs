//! A bundle in a zip archive: at its root, or in its only folder.
//!
//! Every entry is looked at when the archive is opened, and an archive with one that is not sound is refused as a whole. Stored
//! entries are used in place; packed ones are unpacked when they are asked for, to exactly the size that the directory of the
//! archive declares. What all entries together unpack to is bounded by the size of the archive, so that memory is too.

use std::io::{self, Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use russet_kernels::mem::{AlignedBuf, FileMap, SharedBytes};
use zip::result::ZipError;
use zip::{CompressionMethod, ZipArchive};

use super::tree::{Tree, normal};
use super::{Entry, Source, buffer, is_aligned, regular};
use crate::bundle::BundleError;

/// An archive may unpack to this many times its own size (zeros pack a thousand times), or to this many bytes. Weights hardly
/// pack at all, text about fivefold.
const MAX_RATIO: u64 = 64;
const MIN_ROOM: u64 = 1 << 26;

/// What some systems put beside the files that were packed.
const FOREIGN: [&str; 2] = ["__MACOSX", ".DS_Store"];

/// Bits of a Unix mode that say what kind of file it is, and two kinds.
const S_IFMT: u32 = 0o170_000;
const S_IFDIR: u32 = 0o040_000;
const S_IFREG: u32 = 0o100_000;

/// Why an archive is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArchiveError {
    /// It is no zip archive, or a damaged one.
    #[error("not a sound zip archive: {0}")]
    Broken(String),
    /// One entry.
    #[error("entry {name:?}: {problem}")]
    Entry {
        /// Its name as the archive spells it.
        name: String,
        /// What is wrong with it.
        problem: EntryProblem,
    },
    /// Two entries of one name.
    #[error("two entries have the same name")]
    Duplicate,
    /// Two entries lie on the same bytes.
    #[error("entries overlap each other")]
    Overlap,
    /// It unpacks to too much.
    #[error(
        "it is {packed} bytes and would unpack to {unpacked}, more than {ratio} times as many: unpack it yourself if it is to be trusted",
        ratio = MAX_RATIO
    )]
    Expands {
        /// Bytes of the archive.
        packed: u64,
        /// Bytes its entries declare.
        unpacked: u64,
    },
}

/// What is wrong with an entry of an archive.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EntryProblem {
    /// Its name.
    #[error("{0}")]
    Name(&'static str),
    /// Two entries have its name.
    #[error("it is there twice")]
    Twice,
    /// Another entry lies in it as if it were a folder.
    #[error("it is both a file and a folder")]
    Folder,
    /// A link, a pipe or a device.
    #[error("it is a link or a device, not a file")]
    NoFile,
    /// Encrypted.
    #[error("it is encrypted: unpack the archive with its password first")]
    Encrypted,
    /// A compression method other than two.
    #[error("it is packed by {0}; only stored and deflated entries are read")]
    Method(String),
    /// A stored entry with two sizes.
    #[error("it is stored, but takes {packed} bytes and should have {size}")]
    Size {
        /// Bytes in the archive.
        packed: u64,
        /// Bytes it should have.
        size: u64,
    },
    /// What it unpacks to.
    #[error("it does not unpack to the {0} bytes that are declared")]
    Unpacked(u64),
    /// Its place or content.
    #[error("{0}")]
    Broken(String),
}

/// One file of the archive.
#[derive(Clone, Copy, Debug)]
struct Member {
    index: usize,
    /// Where its bytes begin.
    start: u64,
    size: u64,
    stored: bool,
}

/// A zip archive.
#[derive(Clone, Debug)]
pub struct ArchiveSource {
    location: PathBuf,
    bytes: SharedBytes,
    archive: ZipArchive<Cursor<SharedBytes>>,
    members: Tree<Member>,
}

impl ArchiveSource {
    /// Maps the archive at a path and looks at all its entries.
    ///
    /// # Errors
    /// [`BundleError::Io`] where it cannot be mapped, [`BundleError::Archive`] where it is refused.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, BundleError> {
        let path = path.as_ref();
        let map = regular(path).and_then(|()| FileMap::open(path));
        let map = map.map_err(|source| BundleError::Io {
            file: path.display().to_string(),
            source,
        })?;
        Self::read(path.into(), SharedBytes::from_map(map))
    }

    /// An archive in memory; `name` is what messages call it.
    ///
    /// # Errors
    /// [`BundleError::Archive`] where it is refused.
    pub fn from_bytes(
        name: impl Into<PathBuf>,
        bytes: impl AsRef<[u8]> + Send + Sync + 'static,
    ) -> Result<Self, BundleError> {
        Self::read(name.into(), SharedBytes::new(Arc::new(bytes)))
    }

    fn read(path: PathBuf, bytes: SharedBytes) -> Result<Self, BundleError> {
        Self::read_directory(&path, bytes).map_err(|source| BundleError::Archive { path, source })
    }

    fn read_directory(name: &Path, bytes: SharedBytes) -> Result<Self, ArchiveError> {
        let broken = |e: ZipError| ArchiveError::Broken(e.to_string());
        let mut archive = ZipArchive::new(Cursor::new(bytes.clone())).map_err(broken)?;
        if archive.has_duplicate_names() {
            return Err(ArchiveError::Duplicate);
        }
        let members = members(&mut archive, bytes.len() as u64)?;
        if archive.has_overlapping_files().map_err(broken)? {
            return Err(ArchiveError::Overlap);
        }
        let (root, members) = rooted(members);
        Ok(Self {
            location: name.join(root),
            bytes,
            archive,
            members,
        })
    }

    fn member(&self, name: &str) -> io::Result<Member> {
        let found = self.members.get(name).copied();
        found.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// The bytes of a stored entry, in place.
    fn in_place(&self, member: Member) -> Option<SharedBytes> {
        let start = usize::try_from(member.start).ok()?;
        let end = start.checked_add(usize::try_from(member.size).ok()?)?;
        self.bytes.slice(start..end)
    }

    /// The content of an entry, checked against its size and its checksum.
    fn unpack(&self, name: &str, member: Member) -> io::Result<AlignedBuf> {
        let wrong = |problem| {
            let name = name.to_owned();
            io::Error::new(
                io::ErrorKind::InvalidData,
                ArchiveError::Entry { name, problem },
            )
        };
        let size = || wrong(EntryProblem::Unpacked(member.size));
        let mut archive = self.archive.clone();
        let mut entry = archive
            .by_index(member.index)
            .map_err(|e| wrong(EntryProblem::Broken(e.to_string())))?;
        let mut out = buffer(usize::try_from(member.size).map_err(|_| size())?)?;
        entry.read_exact(out.as_bytes_mut()).map_err(|_| size())?;
        match entry.read(&mut [0]) {
            Ok(0) => Ok(out),
            Ok(_) => Err(size()),
            Err(e) => Err(wrong(EntryProblem::Broken(e.to_string()))),
        }
    }
}

/// Every file of an archive.
fn members(
    archive: &mut ZipArchive<Cursor<SharedBytes>>,
    packed: u64,
) -> Result<Tree<Member>, ArchiveError> {
    let mut members = Tree::new();
    let mut unpacked = 0_u64;
    for index in 0..archive.len() {
        let (name, member) = entry(archive, index)?;
        let at = |problem| ArchiveError::Entry {
            name: name.clone(),
            problem,
        };
        let path = normal(&name).map_err(|rule| at(EntryProblem::Name(rule)))?;
        let Some(member) = member else { continue };
        unpacked = unpacked.saturating_add(member.size);
        if FOREIGN
            .iter()
            .any(|f| path.split('/').any(|part| part == *f))
        {
            continue;
        }
        if path.is_empty() || !members.insert(path, member) {
            return Err(at(EntryProblem::Twice));
        }
    }
    if unpacked > packed.saturating_mul(MAX_RATIO).max(MIN_ROOM) {
        return Err(ArchiveError::Expands { packed, unpacked });
    }
    match members.clash() {
        None => Ok(members),
        Some(path) => Err(ArchiveError::Entry {
            name: path.into(),
            problem: EntryProblem::Folder,
        }),
    }
}

/// Name and content of an entry; no content for a folder.
fn entry(
    archive: &mut ZipArchive<Cursor<SharedBytes>>,
    index: usize,
) -> Result<(String, Option<Member>), ArchiveError> {
    let broken = |e: ZipError| ArchiveError::Broken(e.to_string());
    let entry = archive.by_index_data(index).map_err(broken)?;
    let name = entry.name().map_err(broken)?.into_owned();
    let at = |problem| ArchiveError::Entry {
        name: name.clone(),
        problem,
    };
    let kind = entry.unix_mode().map_or(0, |mode| mode & S_IFMT);
    if entry.encrypted() {
        return Err(at(EntryProblem::Encrypted));
    }
    if entry.is_symlink() || ![0, S_IFDIR, S_IFREG].contains(&kind) {
        return Err(at(EntryProblem::NoFile));
    }
    let (size, packed) = (entry.size(), entry.compressed_size());
    let stored = match entry.compression() {
        _ if entry.is_dir() => return Ok((name, None)),
        CompressionMethod::Stored if size != packed => {
            return Err(at(EntryProblem::Size { packed, size }));
        }
        CompressionMethod::Stored => true,
        CompressionMethod::Deflated => false,
        other => return Err(at(EntryProblem::Method(other.to_string()))),
    };
    let place = archive.by_index_raw(index).map(|raw| raw.data_start());
    let place = place.map_err(|e| at(EntryProblem::Broken(e.to_string())))?;
    let start = place.ok_or_else(|| at(EntryProblem::Broken("it has no place".into())))?;
    Ok((
        name,
        Some(Member {
            index,
            start,
            size,
            stored,
        }),
    ))
}

/// The members from the folder on that holds the bundle: the root, or the only folder there.
fn rooted(members: Tree<Member>) -> (String, Tree<Member>) {
    let top = members.list("");
    match &top[..] {
        [only] if members.is_folder(only) => (only.clone(), members.subtree(only)),
        _ => (String::new(), members),
    }
}

impl Source for ArchiveSource {
    fn find(&self, name: &str) -> Option<Entry> {
        let folder = || self.members.is_folder(name).then_some(Entry::Folder);
        let file = |m: &Member| Entry::File(m.size);
        self.members.get(name).map(file).or_else(folder)
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let member = self.member(name)?;
        Ok(self.unpack(name, member)?.as_bytes().to_vec())
    }

    /// A stored entry whose bytes are aligned is used in place, unread; its checksum is not looked at.
    fn map(&self, name: &str) -> io::Result<SharedBytes> {
        let member = self.member(name)?;
        let stored = Some(member).filter(|m| m.stored);
        let in_place = stored.and_then(|m| self.in_place(m));
        match in_place.filter(|bytes| is_aligned(bytes)) {
            Some(bytes) => Ok(bytes),
            None => Ok(SharedBytes::new(Arc::new(self.unpack(name, member)?))),
        }
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        Ok(self.members.list(folder))
    }

    fn location(&self) -> &Path {
        &self.location
    }
}
