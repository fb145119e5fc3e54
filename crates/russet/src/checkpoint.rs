//! Hugging Face folders: a config, weights and a tokenizer, and no program. The program is built from the table of architectures.

#[cfg(test)]
mod tests;

use russet_formats::checkpoint::{
    CONFIG, Checkpoint, CheckpointError, Folder, INDEX, Options, WEIGHTS, from_folder,
};

use crate::bundle::Source;
use crate::open::Error;

/// Whether a source is such a folder.
pub(crate) fn is_at(source: &dyn Source) -> bool {
    source.exists(CONFIG) && [WEIGHTS, INDEX].iter().any(|name| source.exists(name))
}

/// Reads config and headers; weights are mapped.
///
/// # Errors
/// [`Error::Io`] where a file cannot be read, [`Error::Checkpoint`] where one is broken.
pub fn read_checkpoint_in(source: &dyn Source) -> Result<Folder, Error> {
    let unread = |name: &str, error| Error::Io {
        path: source.location().join(name),
        source: error,
    };
    let config = source.read(CONFIG).map_err(|e| unread(CONFIG, e))?;
    let index = source.read_optional(INDEX).map_err(|e| unread(INDEX, e))?;
    // One file with everything goes before an index that was left behind.
    let index = index.filter(|_| !source.exists(WEIGHTS));
    let mut open = |name: &str| {
        let bytes = source.map(name);
        bytes.map_err(|e| Opened::Failed(unread(name, e)))
    };
    Folder::read(&config, index.as_deref(), &mut open).map_err(|e| e.at(source))
}

/// Builds the program of an open folder.
///
/// # Errors
/// [`Error::Checkpoint`] for an architecture that is not in the table, and for any key or tensor that the program would not heed.
pub fn build_checkpoint_in(
    source: &dyn Source,
    folder: &Folder,
    options: Options,
) -> Result<Checkpoint, Error> {
    from_folder(folder, options).map_err(|e| Opened::Broken(e).at(source))
}

/// Why a folder cannot be opened, before its place is said.
enum Opened {
    Failed(Error),
    Broken(CheckpointError),
}

impl From<CheckpointError> for Opened {
    fn from(error: CheckpointError) -> Self {
        Self::Broken(error)
    }
}

impl Opened {
    fn at(self, source: &dyn Source) -> Error {
        match self {
            Self::Failed(error) => error,
            Self::Broken(error) => Error::Checkpoint {
                path: source.location().into(),
                source: error,
            },
        }
    }
}
