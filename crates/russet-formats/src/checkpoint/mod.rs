//! Checkpoints: weights with a config and no program. A table of architectures says how to build the program.
//!
//! The graph is the one a bundle of the same model would hold (contract B, language models): a function `main` of
//! `input_ids` and `position_ids` with states, `keyCache` and `valueCache` first, which gives `logits`. Everything after the
//! reader, planner and engines included, treats both alike. Quantised weights of GGUF files enter the graph in their blocks;
//! Hugging Face folders become the float32 model that others are measured by.

mod architecture;
mod config;
mod decoder;
mod error;
mod folder;
mod gguf;
#[cfg(test)]
mod tests;
mod weights;

use russet_graph::graph::Module;
use russet_graph::types::DType;

use crate::builder;
use crate::gguf::Gguf;
pub use architecture::{ARCHITECTURES, Architecture};
pub use config::{
    Activation, Attention, CacheShape, DecoderConfig, Delta, Experts, Frequencies, HasBiases,
    Layer, Mixer, Mlp, PerLayer, Rope,
};
pub use error::{CheckpointError, Result};
pub use folder::{CONFIG, Folder, INDEX, WEIGHTS, from_folder};

type Builder = builder::Builder<CheckpointError>;

/// What a caller may choose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Positions the caches hold. By default, and at most, the context length of the file; by default not more than
    /// [`DEFAULT_CONTEXT`].
    pub context: Option<usize>,
    /// What the program computes in. By default f32 for a Hugging Face folder; for a GGUF file f16, or what its matrices are plainly
    /// kept in.
    pub dtype: Option<DType>,
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
    /// The program. Constants share the bytes of the file where they are of its type.
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
    let architecture = Architecture::of_gguf(name);
    let architecture =
        architecture.ok_or_else(|| CheckpointError::Architecture(name.to_string()))?;
    let config = gguf::config(file, architecture, options)?;
    let weights = gguf::GgufWeights::new(file);
    let module = decoder::build(&config, architecture, &weights)?;
    weights.all_used()?;
    Ok(Checkpoint {
        architecture,
        config,
        module,
    })
}
