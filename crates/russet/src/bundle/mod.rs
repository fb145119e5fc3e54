//! Bundles: `metadata.json` 0.2, assets and a tokenizer in one folder, archive or memory (contract B §2).
//!
//! Reading follows the order that the contract fixes: the path's extension before any read, the version before any other
//! field, the kind before the fields of the kind, all fields before any asset. Fields this version does not know are kept in
//! [`ModelBundle::raw`]: exporters have added some without a new version (F 10). Where the files are is a [`Source`]'s matter;
//! [`ModelBundle`] is what all kinds share, and every kind has a descriptor of its own over it.

mod anemll;
mod diffusion;
mod document;
mod error;
mod fields;
mod kind;
mod language;
mod layout;
mod model;
mod retarget;
mod segmenter;
mod source;
mod speech;
#[cfg(test)]
mod tests;
mod vision;

pub use anemll::{AnemllBundle, AnemllParts, META};
pub use diffusion::{DiffusionBundle, DiffusionComponent, DiffusionConfig, DiffusionMode};
pub use error::BundleError;
pub(crate) use fields::Faults;
pub use kind::BundleKind;
pub(crate) use language::language_parts;
pub use language::{LanguageBundle, LanguageConfig};
pub use layout::Layout;
pub(crate) use model::raw_metadata;
pub use model::{METADATA, METADATA_VERSION, ModelBundle};
pub use retarget::{Retarget, RetargetError};
pub use russet_kernels::mem::SharedBytes;
pub use segmenter::{STAGES, SegmenterBundle};
pub use source::{
    ArchiveError, ArchiveSource, DirectorySource, Entry, EntryProblem, MemorySource, Source,
    WEIGHT_ALIGNMENT,
};
pub(crate) use source::{inside, regular};
pub use speech::{SPLIT, SpeechBundle, TransducerConfig};
pub use vision::{CLIP_MEAN, CLIP_STD, ImageStrategy, VisionConfig};
