//! Why an engine cannot be built or cannot go on.

use russet_graph::exec::{PlanError, RunError};

use super::Token;

/// See the module page.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The function does not have the inputs and outputs that the engine needs.
    #[error("function {function:?} is not a language model: {reason}")]
    Contract {
        /// The function.
        function: String,
        /// What is missing.
        reason: String,
    },
    /// An engine that does not exist.
    #[error(
        "Unknown variant '{0}'. Valid: auto, coreai-sequential, coreai-pipelined, static-shape"
    )]
    UnknownVariant(String),
    /// An engine that cannot run the model.
    #[error("{0}")]
    VariantMismatch(&'static str),
    /// A cache strategy that does not exist.
    #[error("unknown cache strategy '{0}'; valid: auto, growing, fixed_size, chunked")]
    UnknownStrategy(String),
    /// A cache strategy that the model does not allow.
    #[error("cache strategy '{strategy}' cannot be used: {reason}")]
    Strategy {
        /// The strategy.
        strategy: &'static str,
        /// Why not, and what to do.
        reason: String,
    },
    /// The plan.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A step.
    #[error(transparent)]
    Run(#[from] RunError),
    /// No room left.
    #[error("the context is full: {position} tokens are held, {new} more do not fit into {limit}")]
    ContextFull {
        /// Tokens held.
        position: usize,
        /// Tokens that were to be added.
        new: usize,
        /// The most tokens the model takes.
        limit: usize,
    },
    /// A token outside the vocabulary.
    #[error("token {token} is outside the vocabulary of {vocab}")]
    Token {
        /// The token.
        token: Token,
        /// Size of the vocabulary.
        vocab: usize,
    },
    /// A rewind that the states do not allow.
    #[error("cannot go back to position {to}: {reason}")]
    Rewind {
        /// Where to.
        to: usize,
        /// Why not.
        reason: String,
    },
    /// A snapshot that does not fit.
    #[error("the saved session does not fit this model: {0}")]
    Snapshot(String),
    /// No token was given.
    #[error("no tokens to process")]
    Empty,
}
