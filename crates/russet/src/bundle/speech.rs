//! Speech to text: two assets by their file names, or a transducer with metadata (contract B §2.9, F 1.9).

use serde_json::Value;

use super::error::BundleError;
use super::fields::{Faults, Fields, sizes, strictly};
use super::kind::BundleKind;
use super::model::{METADATA, ModelBundle, raw_metadata};
use super::source::Source;

/// Assets that make a folder without metadata a speech model.
pub const SPLIT: [&str; 2] = ["encoder.aimodel", "decoder.aimodel"];

/// Roles of the assets of a transducer.
pub(crate) const TRANSDUCER: [&str; 3] = ["encoder", "decoder_step", "joint"];

/// The architecture whose config is known.
const ARCHITECTURE: &str = "parakeet_tdt";

/// The `config` part of a token-and-duration transducer.
#[derive(Clone, Debug, PartialEq)]
pub struct TransducerConfig {
    /// The architecture, `parakeet_tdt`.
    pub architecture: String,
    /// Entries of the vocabulary.
    pub vocab_size: usize,
    /// The token that stands for nothing.
    pub blank_token_id: u32,
    /// Width of the decoder's state.
    pub decoder_hidden_size: usize,
    /// Layers of the decoder.
    pub num_decoder_layers: usize,
    /// The most tokens at one frame.
    pub max_symbols_per_step: usize,
    /// Frames that a token may last.
    pub durations: Vec<u32>,
    /// Bins of the spectrogram.
    pub num_mel_bins: usize,
    /// Frames of sound for one of the encoder: a power of two.
    pub subsampling_factor: usize,
}

/// A speech model.
#[derive(Clone, Debug)]
pub enum SpeechBundle {
    /// Encoder and decoder by their file names, without metadata.
    Split,
    /// A transducer with metadata; its assets are `encoder`, `decoder_step` and `joint`.
    Transducer {
        /// What all bundles have.
        model: ModelBundle,
        /// The `config` part.
        config: TransducerConfig,
    },
}

impl SpeechBundle {
    /// Reads a speech model, with or without metadata.
    ///
    /// # Errors
    /// [`BundleError::MissingSpeechModel`] for a folder with neither metadata nor both files; those of the metadata and of its
    /// three assets.
    pub fn read(source: &dyn Source) -> Result<Self, BundleError> {
        if source.exists(METADATA) {
            let raw = raw_metadata(source)?;
            return strictly(|faults| Self::of(ModelBundle::of(raw, faults)?, source, faults));
        }
        match SPLIT.iter().all(|file| source.exists(file)) {
            true => Ok(Self::Split),
            false => Err(BundleError::MissingSpeechModel(source.location().into())),
        }
    }

    /// The transducer that metadata describes.
    pub(crate) fn of(model: ModelBundle, source: &dyn Source, faults: &Faults) -> Option<Self> {
        model.expect(&[BundleKind::SpeechRecognizer], faults);
        for role in TRANSDUCER {
            faults.note(model.require(source, role).map(drop));
        }
        let part = Fields::top(&model.raw, faults).object("config");
        let config = part
            .as_ref()
            .and_then(|p| TransducerConfig::read(p, faults));
        Some(Self::Transducer {
            config: config?,
            model,
        })
    }
}

impl TransducerConfig {
    fn read(fields: &Fields<'_>, faults: &Faults) -> Option<Self> {
        let architecture = fields.text("architecture");
        if let Some(other) = architecture.as_deref().filter(|a| *a != ARCHITECTURE) {
            faults.add(BundleError::Field {
                field: "config.architecture".into(),
                expected: format!("one that is known: '{other}' is not {ARCHITECTURE}"),
            });
        }
        let vocab_size = fields.require_size("vocab_size");
        let number = |v: &Value| u32::try_from(v.as_u64()?).ok();
        let blank = fields.require("blank_token_id", "a token", number);
        let hidden = fields.require_size("decoder_hidden_size");
        let layers = fields.require_size("num_decoder_layers");
        let symbols = fields.require_size("max_symbols_per_step");
        let numbers =
            |v: &Value| -> Option<Vec<u32>> { v.as_array()?.iter().map(number).collect() };
        let durations = fields.require("durations", "a list of frames", numbers);
        let encoder = fields.object("encoder");
        let bins = encoder
            .as_ref()
            .and_then(|e| e.require_size("num_mel_bins"));
        let power = |v: &Value| {
            let one = sizes(&Value::Array(vec![v.clone()]))?;
            one.first().copied().filter(|n| n.is_power_of_two())
        };
        let factor = encoder
            .as_ref()
            .and_then(|e| e.require("subsampling_factor", "a power of two", power));
        Some(Self {
            architecture: architecture?,
            vocab_size: vocab_size?,
            blank_token_id: blank?,
            decoder_hidden_size: hidden?,
            num_decoder_layers: layers?,
            max_symbols_per_step: symbols?,
            durations: durations?,
            num_mel_bins: bins?,
            subsampling_factor: factor?,
        })
    }
}
