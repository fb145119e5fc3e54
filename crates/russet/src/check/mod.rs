//! Judging a package by the checkpoint it was made from.
//!
//! The checkpoint, computed in f32, continues some prompts greedily. The package is given the same tokens in the calls it is used
//! with, a prompt and then one token at a time, and for every token its logits are compared with the checkpoint's. Where a package
//! is off, [`layers()`] says from which layer on.

mod layers;
mod residual;
#[cfg(test)]
mod tests;

use serde::Serialize;

use crate::engine::{Engine, Token};
use crate::evaluate::{Comparison, EvaluationError, Place};
use crate::open::Model;

pub use layers::{LayerDistance, Layers, layers};

/// Prompts where nobody gives any: prose, knowledge, code, another language.
pub const PROMPTS: [&str; 4] = [
    "The history of the steam engine begins",
    "Question: Which planet is the largest in the solar system?\nAnswer:",
    "def fibonacci(n):\n    \"\"\"The n-th Fibonacci number.\"\"\"\n",
    "Il était une fois, dans un village au bord de la mer,",
];

/// What is accepted of a package, as means over all places.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Limits {
    /// The least cosine of the logits.
    pub min_cosine: f64,
    /// The largest divergence of Kullback and Leibler, in nats.
    pub max_kl: f64,
    /// The least share of places with the same likeliest token.
    pub min_top1: f64,
}

impl Default for Limits {
    /// What weights of four bits keep; those of f16 are a hundred times nearer.
    fn default() -> Self {
        Self {
            min_cosine: 0.98,
            max_kl: 0.1,
            min_top1: 0.85,
        }
    }
}

impl Limits {
    /// Whether some means are within.
    pub fn allow(&self, found: &Comparison) -> bool {
        found.mean_cosine >= self.min_cosine
            && found.mean_divergence <= self.max_kl
            && found.same_top >= self.min_top1
    }
}

/// One prompt.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Checked {
    /// Its tokens.
    pub prompt: Vec<Token>,
    /// What the checkpoint says after it.
    pub continuation: Vec<Token>,
    /// How far the package is off at each of those.
    pub places: Vec<Place>,
}

/// A package beside its checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Check {
    /// Over all prompts.
    pub all: Comparison,
    /// Prompt by prompt.
    pub prompts: Vec<Checked>,
}

impl Check {
    /// The places with the largest divergence, and the prompts they are behind.
    pub fn worst(&self, count: usize) -> Vec<(usize, &Place)> {
        let each = self.prompts.iter().enumerate();
        let mut all: Vec<(usize, &Place)> = each
            .flat_map(|(i, p)| p.places.iter().map(move |place| (i, place)))
            .collect();
        all.sort_by(|a, b| b.1.divergence.total_cmp(&a.1.divergence));
        all.truncate(count);
        all
    }
}

/// Continues every prompt with up to `tokens` tokens; `on_progress` hears how many prompts are done.
///
/// # Errors
/// [`EvaluationError::OtherVocabulary`] where the logits differ in number; [`EvaluationError::TooShort`] without a token to predict
/// from; those of the engines, such as a prompt that does not fit.
pub fn check(
    checkpoint: &Model,
    package: &Model,
    prompts: &[Vec<Token>],
    tokens: usize,
    on_progress: &mut dyn FnMut(usize),
) -> Result<Check, EvaluationError> {
    let mut engines = [checkpoint.engine()?, package.engine()?];
    let mut checked = Vec::with_capacity(prompts.len());
    for (i, prompt) in prompts.iter().enumerate() {
        checked.push(one(&mut engines, prompt, tokens, checkpoint.stop_tokens())?);
        on_progress(i + 1);
    }
    let all = Comparison::of(checked.iter().flat_map(|c: &Checked| &c.places));
    Ok(Check {
        all: all.ok_or(EvaluationError::TooShort(0))?,
        prompts: checked,
    })
}

/// One prompt, until the checkpoint would stop or there is no room.
fn one(
    engines: &mut [Box<dyn Engine>; 2],
    prompt: &[Token],
    tokens: usize,
    stops: &[Token],
) -> Result<Checked, EvaluationError> {
    if prompt.is_empty() {
        return Err(EvaluationError::TooShort(0));
    }
    let limit = engines.iter().map(|e| e.limit()).min().unwrap_or(0);
    for engine in &mut *engines {
        engine.rewind(0)?;
        engine.feed(prompt, &|| false)?;
    }
    let (mut continuation, mut places) = (Vec::new(), Vec::new());
    let (mut first, mut second) = (Vec::new(), Vec::new());
    while continuation.len() < tokens {
        let [reference, judged] = &mut *engines;
        reference.logits().copy_to(&mut first);
        judged.logits().copy_to(&mut second);
        if first.len() != second.len() {
            return Err(EvaluationError::OtherVocabulary(first.len(), second.len()));
        }
        let token = reference.logits().argmax();
        let place = prompt.len() + continuation.len();
        places.push(Place::of([&first, &second], token, place));
        continuation.push(token);
        if stops.contains(&token) || place + 1 >= limit || continuation.len() == tokens {
            break;
        }
        reference.feed(&[token], &|| false)?;
        judged.feed(&[token], &|| false)?;
    }
    Ok(Checked {
        prompt: prompt.to_vec(),
        continuation,
        places,
    })
}
