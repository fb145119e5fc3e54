//! Why a checkpoint cannot be made into a program.

use russet_graph::error::OpError;
use thiserror::Error;

use crate::builder::BuildError;
use crate::gguf::GgufError;

/// The result of building a program.
pub type Result<T> = std::result::Result<T, CheckpointError>;

/// Why a checkpoint cannot be made into a program.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// Something is wrong with the file.
    #[error(transparent)]
    File(#[from] GgufError),
    /// The table has no such architecture.
    #[error("architecture {0:?} is not known (known: llama)")]
    Architecture(String),
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

impl From<BuildError> for CheckpointError {
    fn from(BuildError { op, error }: BuildError) -> Self {
        let op = op.into();
        Self::Op { op, error }
    }
}
