//! Why a bundle cannot be read: every error names the file and the field (contract F 1.2).

use std::path::PathBuf;

use super::source::ArchiveError;

/// Why a bundle cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BundleError {
    /// The path is a model asset.
    #[error(
        "{0} is a model asset, not a bundle: give the directory with metadata.json that contains it"
    )]
    PointedAtModelAsset(PathBuf),
    /// There is no metadata.
    #[error("metadata.json not found at {0}")]
    MissingMetadata(PathBuf),
    /// A file is not JSON.
    #[error("{file} is malformed: {reason}")]
    Malformed {
        /// Which file.
        file: String,
        /// What is wrong, and in which line.
        reason: String,
    },
    /// A field of another type than it must have.
    #[error("metadata.json is malformed: field '{field}' is not {expected}")]
    Field {
        /// Which field, with the objects it is in.
        field: String,
        /// What it must be.
        expected: String,
    },
    /// A kind of bundle that is not known.
    #[error("metadata.json is malformed: unknown kind '{0}'")]
    UnknownKind(String),
    /// Another schema version.
    #[error("unsupported metadata_version '{0}' (known: 0.2)")]
    UnsupportedVersion(String),
    /// Another kind of bundle.
    #[error("expected bundle kind {expected}, got {got}")]
    KindMismatch {
        /// What was asked for.
        expected: &'static str,
        /// What it is.
        got: String,
    },
    /// A field is missing.
    #[error("metadata is missing required field '{0}'")]
    MissingField(String),
    /// An asset named by the metadata is not there.
    #[error("asset '{key}' not found at {path}")]
    MissingAsset {
        /// Its role.
        key: String,
        /// Where it should be.
        path: String,
    },
    /// Only a compiled asset is there, which no other machine can run.
    #[error(
        "asset '{key}' is compiled for {architecture} ({path}): put the .aimodel it was compiled from beside it"
    )]
    CompiledAsset {
        /// Its role.
        key: String,
        /// The compiled asset.
        path: String,
        /// What it was compiled for.
        architecture: String,
    },
    /// An asset outside the bundle.
    #[error("asset '{key}' is outside the bundle: {path}")]
    OutsideAsset {
        /// Its role.
        key: String,
        /// The path that leads outside.
        path: String,
    },
    /// An asset that is there and is none.
    #[error("asset '{key}' is no model asset ({path}): {reason}")]
    InvalidAsset {
        /// Its role.
        key: String,
        /// Where it is.
        path: String,
        /// What is wrong.
        reason: &'static str,
    },
    /// The `vision` part where nothing reads it (contract B §2.6).
    #[error(
        "field 'vision' is inside 'language', where nothing reads it: move it to the top level of metadata.json"
    )]
    NestedVision,
    /// A diffusion bundle of a schema before metadata.json (contract B §2.8).
    #[error(
        "pipeline.json is a format that is no longer read: export the bundle again, which writes metadata.json"
    )]
    LegacyPipeline,
    /// Components of a diffusion bundle that make no mode together.
    #[error("no mode of the image generator is complete: it needs {0}")]
    MissingComponent(String),
    /// A folder without metadata that is no speech model by its file names.
    #[error(
        "{0} is no speech model: it must contain encoder.aimodel and decoder.aimodel, or a metadata.json"
    )]
    MissingSpeechModel(PathBuf),
    /// A zip archive that is refused.
    #[error("{}: {source}", path.display())]
    Archive {
        /// The archive.
        path: PathBuf,
        /// Why.
        #[source]
        source: ArchiveError,
    },
    /// A file cannot be read.
    #[error("cannot read {file}: {source}")]
    Io {
        /// Which file.
        file: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}
