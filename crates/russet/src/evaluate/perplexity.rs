//! Perplexity of a text, in windows.

use serde::Serialize;

use super::continuation::scored;
use super::{EvaluationError, Scorer};
use crate::engine::Token;

/// How well a model predicts a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Perplexity {
    /// Tokens that were predicted.
    pub tokens: usize,
    /// The sum of their log-probabilities, in nats.
    pub log_probability: f64,
    /// Tokens of no probability, which are left out of the sum.
    pub impossible: usize,
    /// Bytes of the text.
    pub bytes: usize,
}

impl Perplexity {
    /// `exp` of the mean negative log-probability of a token.
    pub fn perplexity(&self) -> f64 {
        (-self.log_probability / self.tokens.max(1) as f64).exp()
    }

    /// Bits a byte of the text takes: comparable between tokenizers.
    pub fn bits_per_byte(&self) -> f64 {
        -self.log_probability / std::f64::consts::LN_2 / self.bytes.max(1) as f64
    }
}

/// Perplexity of tokens in windows of `window` tokens, each `stride` after the one before; of a window, tokens that the one before
/// had are context only. `bytes` is the length of their text. `on_progress` hears how many tokens are done.
///
/// # Errors
/// [`EvaluationError::TooShort`] for fewer than two tokens, or a window of fewer; those of the engine.
pub fn perplexity(
    scorer: &mut Scorer,
    tokens: &[Token],
    bytes: usize,
    (window, stride): (usize, usize),
    on_progress: &mut dyn FnMut(usize),
) -> Result<Perplexity, EvaluationError> {
    let window = window.min(scorer.limit());
    if window < 2 || tokens.len() < 2 {
        return Err(EvaluationError::TooShort(window.min(tokens.len())));
    }
    let stride = stride.clamp(1, window - 1);
    let mut sum = Perplexity {
        bytes,
        ..Perplexity::default()
    };
    let (mut start, mut done) = (0, 1);
    while done < tokens.len() {
        let end = tokens.len().min(start + window);
        let (scores, _) = scored(scorer, &tokens[start..end], done - start, 0)?;
        for value in scores.values {
            sum.tokens += 1;
            if value.is_finite() {
                sum.log_probability += value;
            } else {
                sum.impossible += 1;
            }
        }
        done = end;
        on_progress(done);
        start += stride;
    }
    Ok(sum)
}
