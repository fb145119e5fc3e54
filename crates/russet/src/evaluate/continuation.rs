//! How likely a text is after another.

use super::{EvaluationError, LogProbabilities, Scorer};
use crate::engine::Token;
use crate::open::Model;

/// A continuation with the probability of each of its tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct Continuation {
    /// Tokens of the context.
    pub context: Vec<Token>,
    /// Tokens of the continuation.
    pub tokens: Vec<Token>,
    /// Their log-probabilities.
    pub log_probabilities: LogProbabilities,
    /// Whether each was the likeliest token: the model would have said just this.
    pub greedy: bool,
}

/// Scores a continuation. Both texts are tokenised together, since a token may reach over the seam: the continuation begins with the
/// first token that the context alone does not have.
///
/// # Errors
/// [`EvaluationError::EmptyContinuation`], [`EvaluationError::EmptyContext`], and those of the model.
pub fn continuation(
    model: &Model,
    scorer: &mut Scorer,
    context: &str,
    continuation: &str,
    top_k: usize,
) -> Result<Continuation, EvaluationError> {
    if continuation.is_empty() {
        return Err(EvaluationError::EmptyContinuation);
    }
    let before = model.plain_prompt(context)?;
    let tokens = model.plain_prompt(&format!("{context}{continuation}"))?;
    let same = before.iter().zip(&tokens).take_while(|(a, b)| a == b);
    // Tokens that a tokenizer puts at the end of every text belong to no continuation; where nothing else is left, its last token does.
    let boundary = same.count().min(tokens.len().saturating_sub(1));
    if boundary == 0 {
        return Err(EvaluationError::EmptyContext);
    }
    let (log_probabilities, greedy) = scored(scorer, &tokens, boundary, top_k)?;
    Ok(Continuation {
        context: tokens[..boundary].to_vec(),
        tokens: tokens[boundary..].to_vec(),
        log_probabilities,
        greedy,
    })
}

/// Log-probabilities of tokens from a position on, and whether each was the likeliest.
pub(super) fn scored(
    scorer: &mut Scorer,
    tokens: &[Token],
    from: usize,
    top_k: usize,
) -> Result<(LogProbabilities, bool), EvaluationError> {
    let mut log_probabilities = LogProbabilities::default();
    let mut greedy = true;
    let mut row = Vec::new();
    scorer.score(tokens, from, &mut |token, logits| {
        logits.copy_to(&mut row);
        log_probabilities.add(&row, token, top_k);
        greedy &= logits.argmax() == token;
    })?;
    Ok((log_probabilities, greedy))
}
