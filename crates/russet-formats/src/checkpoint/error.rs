//! Why a checkpoint cannot be made into a program.

use russet_graph::error::OpError;
use thiserror::Error;

use super::ARCHITECTURES;
use crate::builder::BuildError;
use crate::gguf::GgufError;
use crate::safetensors::SafetensorsError;

/// The result of building a program.
pub type Result<T> = std::result::Result<T, CheckpointError>;

/// Why a checkpoint cannot be made into a program.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// Something is wrong with a GGUF file.
    #[error(transparent)]
    File(#[from] GgufError),
    /// Something is wrong with a file of weights.
    #[error("{file}: {source}")]
    Safetensors {
        /// The file.
        file: String,
        /// What is wrong.
        #[source]
        source: SafetensorsError,
    },
    /// A file that is no JSON object of the right form.
    #[error("{file}: {reason}")]
    Json {
        /// The file.
        file: String,
        /// What is wrong, and where.
        reason: String,
    },
    /// A key of `config.json`.
    #[error("config.json: {key} {reason}")]
    Config {
        /// The key, after those of the objects it is in.
        key: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The table has no such architecture.
    #[error("architecture {0:?} is not known (known: {known})", known = known())]
    Architecture(String),
    /// A tensor that is in no file.
    #[error("tensor {0:?} is missing")]
    Missing(String),
    /// A tensor that is not as the config says.
    #[error("{file}: tensor {name:?} {reason}")]
    Tensor {
        /// The file.
        file: String,
        /// The tensor.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Tensors that the program would not read.
    #[error("tensor {0:?} has no place in this architecture")]
    Unused(String),
    /// An operation cannot take what the weights and the config give it.
    #[error("building {op}: {error}")]
    Op {
        /// The operation.
        op: String,
        /// Why not.
        #[source]
        error: OpError,
    },
}

/// The names of the table.
fn known() -> String {
    let names: Vec<&str> = ARCHITECTURES.iter().map(|a| a.name).collect();
    names.join(", ")
}

impl From<BuildError> for CheckpointError {
    fn from(BuildError { op, error }: BuildError) -> Self {
        let op = op.into();
        Self::Op { op, error }
    }
}
