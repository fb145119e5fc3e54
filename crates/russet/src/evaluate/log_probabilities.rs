//! Log-probabilities of tokens, from rows of logits.

use serde::Serialize;

use super::EvaluationError;
use crate::choose::{log_probability, log_sum_exp, top};
use crate::engine::Token;

/// Log-probabilities of tokens that were given, in nats.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LogProbabilities {
    /// One for each token; minus infinity for a token beyond the vocabulary, or of no probability.
    pub values: Vec<f64>,
    /// The likeliest tokens at each place with their log-probabilities, where they were asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub top: Vec<Vec<(Token, f64)>>,
}

impl LogProbabilities {
    /// Of tokens, each with the row of logits that predicted it, and of the `top_k` likeliest at each place.
    ///
    /// # Errors
    /// [`EvaluationError::CountMismatch`] for more or fewer rows than tokens, [`EvaluationError::InconsistentVocabulary`] for rows of
    /// different lengths.
    pub fn compute(
        rows: &[&[f32]],
        tokens: &[Token],
        top_k: usize,
    ) -> Result<Self, EvaluationError> {
        if rows.len() != tokens.len() {
            return Err(EvaluationError::CountMismatch {
                logits: rows.len(),
                tokens: tokens.len(),
            });
        }
        let expected = rows.first().map_or(0, |r| r.len());
        if let Some(row) = rows.iter().position(|r| r.len() != expected) {
            return Err(EvaluationError::InconsistentVocabulary {
                row,
                found: rows[row].len(),
                expected,
            });
        }
        let mut this = Self::default();
        for (row, token) in rows.iter().zip(tokens) {
            this.add(row, *token, top_k);
        }
        Ok(this)
    }

    /// Adds a token with the row that predicted it.
    pub fn add(&mut self, row: &[f32], token: Token, top_k: usize) {
        let sum = log_sum_exp(row);
        let logit = row.get(token as usize).copied().unwrap_or(f32::NAN);
        self.values.push(log_probability(logit, sum));
        if top_k > 0 {
            let likeliest = top(row, top_k).into_iter();
            self.top.push(
                likeliest
                    .map(|(t, l)| (t, log_probability(l, sum)))
                    .collect(),
            );
        }
    }

    /// Their sum: the log-probability of all tokens together.
    pub fn sum(&self) -> f64 {
        self.values.iter().sum()
    }

    /// The mean of those that are finite; 0 where there are none.
    pub fn mean(&self) -> f64 {
        let finite = || self.values.iter().filter(|v| v.is_finite());
        finite().sum::<f64>() / finite().count().max(1) as f64
    }

    /// `exp` of minus the mean: how many tokens the model could as well have chosen from.
    pub fn perplexity(&self) -> f64 {
        (-self.mean()).exp()
    }
}
