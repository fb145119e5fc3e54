//! Checkpoints: weights with a config and no program. A table of architectures says how to build the program.
//!
//! The graph is the one a bundle of the same model would hold (contract B, language models): a function `main` of
//! `input_ids` and `position_ids` with the states `keyCache` and `valueCache`, which gives `logits`. Everything after the
//! reader, planner and engines included, treats both alike. Quantised weights enter the graph in their blocks.

mod config;
mod decoder;
mod error;
#[cfg(test)]
mod tests;
mod weights;

use russet_graph::graph::Module;

use crate::builder;
use crate::gguf::Gguf;
pub use config::DecoderConfig;
pub use error::{CheckpointError, Result};
use weights::GgufWeights;

type Builder = builder::Builder<CheckpointError>;

/// A row of the table: what a model family does that others do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Architecture {
    /// The name in `general.architecture`.
    pub name: &'static str,
    /// Whether rotary embedding turns neighbouring elements as pairs. GGUF's converter permutes the rows of llama's query
    /// and key weights so that this is right for them; Hugging Face's own order pairs the halves.
    pub rope_interleaved: bool,
}

/// The architectures that can be built.
pub const ARCHITECTURES: &[Architecture] = &[Architecture {
    name: "llama",
    rope_interleaved: true,
}];

/// What a caller may choose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Positions the caches hold. By default, and at most, the context length of the file; by default not more than
    /// [`DEFAULT_CONTEXT`].
    pub context: Option<usize>,
}

/// Positions the caches hold where nobody says otherwise.
pub const DEFAULT_CONTEXT: usize = 8192;

/// A checkpoint made into a program.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    /// The row of the table.
    pub architecture: &'static Architecture,
    /// The numbers it was built from.
    pub config: DecoderConfig,
    /// The program. Constants share the bytes of the file.
    pub module: Module,
}

/// Builds the program of a GGUF file.
///
/// Weights and caches are f16, unless the file keeps its matrices as plain f32 or bf16; blocks decode to f16.
///
/// # Errors
/// Where the architecture is not in the table, a key or tensor is missing, contradicts another, or has no place in the
/// program: a model that would be computed wrongly is refused.
pub fn from_gguf(file: &Gguf, options: Options) -> Result<Checkpoint> {
    let key = "general.architecture";
    let metadata = file.metadata();
    let name = metadata.required(key, metadata.text(key)?)?;
    let architecture = ARCHITECTURES.iter().find(|a| a.name == &**name);
    let architecture =
        architecture.ok_or_else(|| CheckpointError::Architecture(name.to_string()))?;
    let config = DecoderConfig::from_gguf(file, architecture, options)?;
    let weights = GgufWeights::new(file);
    let module = decoder::build(&config, architecture, &weights)?;
    weights.all_used()?;
    Ok(Checkpoint {
        architecture,
        config,
        module,
    })
}
