//! Engines: what turns tokens into logits.
//!
//! The trait holds only what every engine must answer. Today there is one, [`SequentialEngine`] (contract B §5.3).

mod io;
mod sequential;

use russet_graph::exec::{PlanError, RunError};

pub use io::{Io, StateKind};
pub(crate) use io::{LOGITS, POSITIONS, TOKENS, logits_of};
pub use sequential::{EngineOptions, SequentialEngine};

/// A token's number in the vocabulary.
pub type Token = u32;

/// Why an engine cannot be built or cannot go on.
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
    /// No token was given.
    #[error("no tokens to process")]
    Empty,
}

/// What every engine answers.
pub trait Engine: Send {
    /// Processes tokens after those already held; afterwards [`Engine::logits`] are those of the last one. `cancelled` is asked
    /// between chunks: where it says so, the engine stops early and returns how many tokens it took.
    fn feed(
        &mut self,
        tokens: &[Token],
        cancelled: &dyn Fn() -> bool,
    ) -> Result<usize, EngineError>;

    /// Logits of the last token processed: one number for each entry of the vocabulary.
    fn logits(&self) -> &[f32];

    /// Tokens processed so far, in order.
    fn history(&self) -> &[Token];

    /// Forgets all tokens from position `to` on.
    fn rewind(&mut self, to: usize) -> Result<(), EngineError>;

    /// The most tokens it can hold.
    fn limit(&self) -> usize;

    /// Whether [`Engine::rewind`] to positions other than 0 works.
    fn can_rewind(&self) -> bool;
}

/// Brings an engine to hold exactly `tokens`, reusing the longest prefix it already holds, and returns how many tokens were
/// reused. At least the last token is processed anew, so that its logits are there.
pub fn resume(
    engine: &mut dyn Engine,
    tokens: &[Token],
    cancelled: &dyn Fn() -> bool,
) -> Result<usize, EngineError> {
    let last = tokens.len().checked_sub(1).ok_or(EngineError::Empty)?;
    let common = engine
        .history()
        .iter()
        .zip(tokens)
        .take_while(|(a, b)| a == b)
        .count()
        .min(last);
    let keep = if common == engine.history().len() || engine.can_rewind() {
        common
    } else {
        0
    };
    engine.rewind(keep)?;
    engine.feed(&tokens[keep..], cancelled)?;
    Ok(keep)
}
