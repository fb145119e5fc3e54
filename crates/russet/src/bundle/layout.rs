//! What lies in a folder: metadata says so, else file names do (contract B §2.9: half of all models come without metadata).

use super::diffusion::DiffusionBundle;
use super::error::BundleError;
use super::model::METADATA;
use super::source::Source;
use super::speech::SPLIT;

/// What lies in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Layout {
    /// A bundle with metadata, which says of what kind.
    Bundle,
    /// Speech to text by its file names.
    Speech,
    /// An image generator by its file names.
    Diffusion,
    /// Assets without anything that says what they are for; their names.
    Assets(Vec<String>),
}

impl Layout {
    /// Looks at the names in a folder; nothing is read.
    ///
    /// # Errors
    /// [`BundleError::MissingMetadata`] where there is neither metadata nor an asset, [`BundleError::Io`] for a folder that
    /// cannot be listed.
    pub fn of(source: &dyn Source) -> Result<Self, BundleError> {
        if source.exists(METADATA) {
            return Ok(Self::Bundle);
        }
        let mut files = source.list("").map_err(|error| BundleError::Io {
            file: source.location().display().to_string(),
            source: error,
        })?;
        if SPLIT.iter().all(|file| files.iter().any(|f| f == file)) {
            return Ok(Self::Speech);
        }
        match DiffusionBundle::read(source) {
            Ok(_) => return Ok(Self::Diffusion),
            Err(legacy @ BundleError::LegacyPipeline) => return Err(legacy),
            Err(_) => {}
        }
        files.retain(|file| file.ends_with(".aimodel"));
        match files.is_empty() {
            false => Ok(Self::Assets(files)),
            true => Err(BundleError::MissingMetadata(
                source.location().join(METADATA),
            )),
        }
    }
}
