//! The folder that keeps downloads: `$RUSSET_CACHE`, else `$XDG_CACHE_HOME/russet`, else `~/.cache/russet`.
//!
//! `models/NAME/FILE` holds finished files only. Work in progress lies in `staging/NAME/`, which belongs to the process that
//! holds the lock file beside it; a file moves from there to its place by a rename, so it is either absent or whole. What a
//! killed process left behind is removed by the next one that gets the lock.

use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use super::error::PullError;
use super::table::Entry;

/// The folder of the cache, which need not exist.
pub(crate) fn root() -> Result<PathBuf, PullError> {
    root_from(|name| env::var_os(name)).ok_or(PullError::NoCache)
}

/// The same for any environment. Variables that are set to nothing count as unset.
pub(super) fn root_from(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let path = |name| variable(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    path("RUSSET_CACHE")
        .or_else(|| Some(path("XDG_CACHE_HOME")?.join("russet")))
        .or_else(|| Some(path("HOME")?.join(".cache").join("russet")))
        .or_else(|| Some(path("LOCALAPPDATA")?.join("russet")))
}

/// Where the file of an entry lies once it is here.
pub(super) fn file(root: &Path, entry: &Entry) -> PathBuf {
    root.join("models").join(entry.name).join(entry.file_name())
}

/// Whether the file is there. Its digest was checked before it came to this place, so the size is enough.
pub(super) fn complete(path: &Path, entry: &Entry) -> bool {
    fs::metadata(path).is_ok_and(|m| m.is_file() && m.len() == entry.bytes)
}

/// Moves a finished file to its place.
pub(super) fn publish(from: &Path, to: &Path) -> Result<(), PullError> {
    let folder = to.parent().unwrap_or(to);
    fs::create_dir_all(folder).map_err(|e| PullError::cache("create", folder, e))?;
    fs::rename(from, to).map_err(|e| PullError::cache("write", to, e))
}

/// A folder of one's own, empty at first, removed at the end.
pub(super) struct Staging {
    folder: PathBuf,
    _lock: File,
}

impl Staging {
    /// Waits until no other process pulls the same entry, then makes the folder.
    pub(super) fn open(root: &Path, entry: &Entry) -> Result<Self, PullError> {
        let all = root.join("staging");
        fs::create_dir_all(&all).map_err(|e| PullError::cache("create", &all, e))?;
        let path = all.join(format!("{}.lock", entry.name));
        let lock = File::create(&path).map_err(|e| PullError::cache("create", &path, e))?;
        lock.lock()
            .map_err(|e| PullError::cache("lock", &path, e))?;
        let folder = all.join(entry.name);
        if folder.exists() {
            fs::remove_dir_all(&folder).map_err(|e| PullError::cache("remove", &folder, e))?;
        }
        fs::create_dir(&folder).map_err(|e| PullError::cache("create", &folder, e))?;
        Ok(Self {
            folder,
            _lock: lock,
        })
    }

    /// The folder.
    pub(super) fn path(&self) -> &Path {
        &self.folder
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // What stays behind is removed by the next pull.
        fs::remove_dir_all(&self.folder).ok();
    }
}
