//! Image segmenters: one asset, the functions of which say how it is called (contract B §2.9, F 1.3).

use super::error::BundleError;
use super::fields::{Faults, strictly};
use super::kind::BundleKind;
use super::model::{ModelBundle, raw_metadata};
use super::source::Source;

/// Functions that a segmenter called in three stages has.
pub const STAGES: [&str; 3] = ["image_encode", "text_encode", "detect"];

/// An image segmenter.
#[derive(Clone, Debug)]
pub struct SegmenterBundle {
    /// What all bundles have; the `segmenter` part is open.
    pub model: ModelBundle,
    /// Relative path of the asset to run.
    pub main: String,
}

impl SegmenterBundle {
    /// Reads a segmenter.
    ///
    /// # Errors
    /// Those of the metadata, of another kind, and of a main asset that is not there.
    pub fn read(source: &dyn Source) -> Result<Self, BundleError> {
        let raw = raw_metadata(source)?;
        strictly(|faults| Self::of(ModelBundle::of(raw, faults)?, source, faults))
    }

    /// The segmenter that metadata describes.
    pub(crate) fn of(model: ModelBundle, source: &dyn Source, faults: &Faults) -> Option<Self> {
        model.expect(&[BundleKind::Segmenter], faults);
        let main = faults.note(model.require(source, "main"))?.to_owned();
        Some(Self { model, main })
    }
}
