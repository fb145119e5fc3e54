//! Judging a model by the probabilities it gives: perplexity, continuations, multiple choice, comparison of two models, and logits in
//! files (contract F 1.5).
//!
//! Everything rests on one thing, [`Scorer::score`]: tokens that are given, and for each the logits that predicted it.

mod choices;
mod compare;
mod continuation;
mod log_probabilities;
mod logits_file;
mod perplexity;
mod score;
#[cfg(test)]
mod tests;

pub use choices::{ChoiceResult, ChoicesReport, Question, choices, read_questions};
pub use compare::{Comparison, Place, compare};
pub use continuation::{Continuation, continuation};
pub use log_probabilities::LogProbabilities;
pub use logits_file::{LogitsFile, continuation_file, tokens_file};
pub use perplexity::{Perplexity, perplexity};
pub use score::Scorer;

/// Why something cannot be judged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EvaluationError {
    /// The model, its tokenizer, or its engine.
    #[error(transparent)]
    Model(#[from] crate::Error),
    /// There is nothing to predict.
    #[error("there are {0} tokens, and it takes two: one to begin with and one to predict")]
    TooShort(usize),
    /// The continuation is no text.
    #[error("the continuation is empty")]
    EmptyContinuation,
    /// Nothing comes before the continuation.
    #[error("the context is empty: a first token has no probability without one before it")]
    EmptyContext,
    /// A file of questions.
    #[error("{place}: {reason}")]
    Questions {
        /// File and line.
        place: String,
        /// What is wrong.
        reason: String,
    },
    /// Logits and tokens that do not belong together.
    #[error("{logits} rows of logits for {tokens} tokens")]
    CountMismatch {
        /// Rows.
        logits: usize,
        /// Tokens.
        tokens: usize,
    },
    /// Rows of different lengths.
    #[error("row {row} has {found} logits, the first has {expected}")]
    InconsistentVocabulary {
        /// Which row, from 0.
        row: usize,
        /// Its length.
        found: usize,
        /// The first one's.
        expected: usize,
    },
    /// Two models that cannot be compared.
    #[error("the vocabularies differ: {0} entries and {1}")]
    OtherVocabulary(usize, usize),
}

impl From<crate::EngineError> for EvaluationError {
    fn from(error: crate::EngineError) -> Self {
        Self::Model(error.into())
    }
}
