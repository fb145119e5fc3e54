//! Penalties on tokens that have occurred, and biases on any (contract F 1.5 and 10).

use std::collections::{HashMap, VecDeque};

use super::SamplingError;
use crate::engine::Token;

/// What makes a token less likely because it has occurred.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Penalties {
    /// Divides positive logits and multiplies negative ones, once however often the token occurred; 1 changes nothing.
    pub repetition: f64,
    /// Taken off for every time the token occurred.
    pub frequency: f64,
    /// Taken off once the token occurred.
    pub presence: f64,
    /// How many of the last tokens count; all where nothing is said.
    pub window: Option<usize>,
    /// Tokens of the prompt count, not only those of the answer.
    pub prompt: bool,
}

impl Default for Penalties {
    fn default() -> Self {
        Self {
            repetition: 1.0,
            frequency: 0.0,
            presence: 0.0,
            window: None,
            prompt: true,
        }
    }
}

impl Penalties {
    /// Whether they change nothing.
    pub fn is_none(&self) -> bool {
        self.repetition == 1.0 && self.frequency == 0.0 && self.presence == 0.0
    }

    pub(super) fn check(&self) -> Result<(), SamplingError> {
        let off = |name, value: String, allowed| {
            Err(SamplingError {
                name,
                value,
                allowed,
            })
        };
        if !(self.repetition.is_finite() && self.repetition >= 1.0) {
            return off(
                "repetition penalty",
                self.repetition.to_string(),
                "1 or more",
            );
        }
        for (name, value) in [
            ("frequency penalty", self.frequency),
            ("presence penalty", self.presence),
        ] {
            if !(-2.0..=2.0).contains(&value) {
                return off(name, value.to_string(), "from -2 to 2");
            }
        }
        if self.window == Some(0) {
            return off("repetition penalty window", "0".into(), "1 or more");
        }
        Ok(())
    }
}

/// The tokens that count, and how often each occurred.
#[derive(Clone, Debug, Default)]
pub(super) struct Occurrences {
    counts: HashMap<Token, u32>,
    window: VecDeque<Token>,
}

impl Occurrences {
    /// Starts over with a prompt.
    pub(super) fn begin(&mut self, penalties: &Penalties, prompt: &[Token]) {
        self.counts.clear();
        self.window.clear();
        if penalties.prompt && !penalties.is_none() {
            let last = penalties.window.unwrap_or(prompt.len()).min(prompt.len());
            for token in &prompt[prompt.len() - last..] {
                self.add(penalties, *token);
            }
        }
    }

    pub(super) fn add(&mut self, penalties: &Penalties, token: Token) {
        if penalties.is_none() {
            return;
        }
        *self.counts.entry(token).or_default() += 1;
        let Some(window) = penalties.window else {
            return;
        };
        self.window.push_back(token);
        if self.window.len() > window
            && let Some(old) = self.window.pop_front()
            && let Some(count) = self.counts.get_mut(&old)
        {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&old);
            }
        }
    }

    /// Changes the logits of what occurred; tokens beyond them are passed over.
    pub(super) fn penalize(&self, penalties: &Penalties, logits: &mut [f32]) {
        let repetition = penalties.repetition as f32;
        for (token, count) in &self.counts {
            let Some(logit) = logits.get_mut(*token as usize) else {
                continue;
            };
            *logit = if *logit > 0.0 {
                *logit / repetition
            } else {
                *logit * repetition
            };
            let taken = penalties.frequency * f64::from(*count) + penalties.presence;
            *logit -= taken as f32;
        }
    }
}
