//! The sampler: one token from a row of logits, on the CPU (contract B §9, F 1.5).
//!
//! Order: penalties, biases, temperature, min-p, top-p, top-k, softmax, draw; or the order of other runtimes
//! ([`FilterOrder`]). Each filter works on the distribution the one before left. A seed fixes all draws: [`SplitMix64`] gives one
//! number for each draw, and greedy sampling draws none. Where nothing changes single logits, they are read where the model left
//! them.

mod penalties;
mod rng;

use std::cmp::Ordering;

pub use penalties::Penalties;
pub use rng::SplitMix64;

use crate::engine::{Logits, Token};
use penalties::Occurrences;

/// In which order filters narrow the choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FilterOrder {
    /// Temperature, min-p, top-p, top-k (contract B §9.1).
    #[default]
    TemperatureFirst,
    /// Top-k, top-p, min-p, temperature, as in llama.cpp: filters look at the model's own distribution.
    TopKFirst,
}

/// How to sample. [`Sampling::default`] is greedy.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sampling {
    /// Divides the logits; 0 takes the largest.
    pub temperature: f64,
    /// Keeps the `k` largest.
    pub top_k: Option<usize>,
    /// Keeps the smallest set of largest tokens that holds this probability.
    pub top_p: Option<f64>,
    /// Keeps tokens at least this fraction as likely as the likeliest.
    pub min_p: Option<f64>,
    /// Makes draws repeatable; without it every sampler draws differently.
    pub seed: Option<u64>,
    /// In which order filters work.
    pub order: FilterOrder,
    /// What makes tokens less likely that have occurred.
    pub penalties: Penalties,
    /// Added to the logits of tokens; minus infinity bans one.
    pub logit_bias: Vec<(Token, f32)>,
}

/// A number outside its range.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{name} is {value}, it must be {allowed}")]
pub struct SamplingError {
    /// Which number.
    pub name: &'static str,
    /// Its value.
    pub value: String,
    /// What is allowed.
    pub allowed: &'static str,
}

impl Sampling {
    /// Always the likeliest token.
    pub fn greedy() -> Self {
        Self::default()
    }

    /// Checks every number.
    ///
    /// # Errors
    /// The first number outside its range, even one that would not be used.
    pub fn check(&self) -> Result<(), SamplingError> {
        let fail = |name, value: String, allowed| {
            Err(SamplingError {
                name,
                value,
                allowed,
            })
        };
        if !(self.temperature.is_finite() && self.temperature >= 0.0) {
            return fail("temperature", self.temperature.to_string(), "0 or more");
        }
        if self.top_k == Some(0) {
            return fail("top-k", "0".into(), "1 or more");
        }
        for (name, value) in [("top-p", self.top_p), ("min-p", self.min_p)] {
            if let Some(v) = value.filter(|v| !(*v > 0.0 && *v <= 1.0)) {
                return fail(name, v.to_string(), "above 0 and at most 1");
            }
        }
        if let Some((token, bias)) = self
            .logit_bias
            .iter()
            .find(|(_, b)| b.is_nan() || *b == f32::INFINITY)
        {
            let value = format!("{bias} for token {token}");
            return fail(
                "logit bias",
                value,
                "a number, or minus infinity to ban a token",
            );
        }
        self.penalties.check()
    }

    /// What is given up or makes no difference, for somebody who wrote the numbers down (contract B §9.1).
    pub fn warnings(&self) -> Vec<&'static str> {
        let filters = self.top_k.is_some() || self.top_p.is_some() || self.min_p.is_some();
        let all = [
            (
                self.temperature == 0.0 && filters,
                "at temperature 0 the likeliest token is taken; top-k, top-p and min-p do nothing",
            ),
            (
                self.temperature > 0.0 && self.top_k == Some(1),
                "top-k of 1 takes the likeliest token at any temperature",
            ),
            (self.top_p == Some(1.0), "top-p of 1 keeps every token"),
            (
                self.min_p == Some(1.0),
                "min-p of 1 keeps the likeliest token only",
            ),
            (
                self.top_p.is_some() && self.min_p.is_some(),
                "top-p and min-p together: each narrows what the other left",
            ),
        ];
        all.into_iter()
            .filter(|(is, _)| *is)
            .map(|(_, what)| what)
            .collect()
    }

    /// Whether single logits are changed before the filters.
    fn changes_logits(&self) -> bool {
        !(self.penalties.is_none() && self.logit_bias.is_empty())
    }

    /// The same sampling without filters that do nothing: top-k of 1 is greedy, greedy needs no filters, top-p of 1 is none.
    pub fn normalized(&self) -> Self {
        if self.temperature == 0.0 || self.top_k == Some(1) {
            return Self {
                temperature: 0.0,
                top_k: None,
                top_p: None,
                min_p: None,
                ..self.clone()
            };
        }
        Self {
            top_p: self.top_p.filter(|p| *p < 1.0),
            ..self.clone()
        }
    }
}

/// A token's weight, which is 1 for the likeliest; and the token.
type Candidate = (f32, u32);

/// Draws tokens. Keeps its memory between draws: after the first, none allocates.
#[derive(Clone, Debug)]
pub struct Sampler {
    sampling: Sampling,
    rng: SplitMix64,
    occurred: Occurrences,
    row: Vec<f32>,
    candidates: Vec<Candidate>,
}

impl Sampler {
    /// A sampler with checked numbers.
    ///
    /// # Errors
    /// Those of [`Sampling::check`].
    pub fn new(sampling: &Sampling) -> Result<Self, SamplingError> {
        sampling.check()?;
        let rng = sampling
            .seed
            .map_or_else(SplitMix64::from_entropy, SplitMix64::new);
        Ok(Self {
            sampling: sampling.normalized(),
            rng,
            occurred: Occurrences::default(),
            row: Vec::new(),
            candidates: Vec::new(),
        })
    }

    /// Starts an answer: penalties count the prompt's tokens, and nothing of an earlier answer.
    pub fn begin(&mut self, prompt: &[Token]) {
        self.occurred.begin(&self.sampling.penalties, prompt);
    }

    /// Tells of a token of the answer, for penalties.
    pub fn accept(&mut self, token: Token) {
        self.occurred.add(&self.sampling.penalties, token);
    }

    /// One token. Ties go to the first; NaN and minus infinity are never drawn; where nothing is left, token 0.
    pub fn sample<'a>(&mut self, logits: impl Into<Logits<'a>>) -> Token {
        let logits = logits.into();
        if !self.sampling.changes_logits() {
            return self.choose(logits);
        }
        let mut row = std::mem::take(&mut self.row);
        logits.copy_to(&mut row);
        self.adjust(&mut row);
        let token = self.choose(Logits::F32(&row));
        self.row = row;
        token
    }

    /// Penalties and biases.
    pub fn adjust(&self, logits: &mut [f32]) {
        self.occurred.penalize(&self.sampling.penalties, logits);
        for (token, bias) in &self.sampling.logit_bias {
            if let Some(logit) = logits.get_mut(*token as usize) {
                *logit += bias;
            }
        }
    }

    /// One token of logits as they are, without penalties and biases.
    pub fn choose(&mut self, logits: Logits<'_>) -> Token {
        if self.sampling.temperature == 0.0 {
            return logits.argmax();
        }
        let max = logits.max();
        if !max.is_finite() {
            return logits.argmax();
        }
        match self.sampling.order {
            FilterOrder::TemperatureFirst => {
                let floor = self
                    .sampling
                    .min_p
                    .map_or(f32::NEG_INFINITY, |p| p.ln() as f32);
                self.collect(logits, max, self.sampling.temperature as f32, floor);
                self.keep_mass();
                self.keep_top_k();
            }
            FilterOrder::TopKFirst => {
                self.collect(logits, max, 1.0, f32::NEG_INFINITY);
                self.keep_top_k();
                self.keep_mass();
                let floor = self.sampling.min_p.unwrap_or(0.0) as f32;
                self.candidates.retain(|c| c.0 >= floor);
                let power = 1.0 / (self.sampling.temperature as f32).max(f32::MIN_POSITIVE);
                self.candidates
                    .iter_mut()
                    .for_each(|c| c.0 = c.0.powf(power));
            }
        }
        self.draw()
    }

    /// Weights of the tokens whose logit, as a distance to the largest divided by the temperature, is `floor` or more. Distances
    /// are divided, so that no temperature, however small, makes a NaN.
    fn collect(&mut self, logits: Logits<'_>, max: f32, temperature: f32, floor: f32) {
        let temperature = temperature.max(f32::MIN_POSITIVE);
        let candidates = &mut self.candidates;
        candidates.clear();
        candidates.reserve(logits.len());
        logits.blocks(|first, part| {
            let scaled = part.iter().zip(first..);
            let scaled = scaled.map(|(l, id)| ((l - max) / temperature, id));
            // NaN is not above anything, and minus infinity is not above itself.
            let kept = scaled.filter(|c| c.0 >= floor && c.0 > f32::NEG_INFINITY);
            candidates.extend(kept.map(|(distance, id)| (distance.exp(), id)));
        });
    }

    /// Top-p.
    fn keep_mass(&mut self) {
        if let Some(p) = self.sampling.top_p {
            keep_mass(&mut self.candidates, p);
        }
    }

    /// Top-k.
    fn keep_top_k(&mut self) {
        if let Some(k) = self.sampling.top_k.filter(|k| *k < self.candidates.len()) {
            self.candidates.select_nth_unstable_by(k - 1, likelier);
            self.candidates.truncate(k);
        }
    }

    fn draw(&mut self) -> Token {
        let total: f64 = self.candidates.iter().map(|c| f64::from(c.0)).sum();
        let mut left = self.rng.unit() * total;
        let mut last = 0;
        for &(weight, id) in self.candidates.iter().filter(|c| c.0 > 0.0) {
            left -= f64::from(weight);
            last = id;
            if left < 0.0 {
                break;
            }
        }
        last
    }
}

/// Keeps the smallest set of likeliest candidates that holds the share `p` of the weight. Only as many are sorted as it takes:
/// a vocabulary has many tokens, the share is mostly in few.
fn keep_mass(candidates: &mut Vec<Candidate>, p: f64) {
    let wanted = p * candidates.iter().map(|c| f64::from(c.0)).sum::<f64>();
    let (mut mass, mut done, mut block) = (0.0, 0, 64);
    while done < candidates.len() {
        let rest = &mut candidates[done..];
        let sorted = block.min(rest.len());
        if sorted < rest.len() {
            rest.select_nth_unstable_by(sorted, likelier);
        }
        rest[..sorted].sort_unstable_by(likelier);
        for c in &rest[..sorted] {
            mass += f64::from(c.0);
            done += 1;
            if mass >= wanted {
                candidates.truncate(done);
                return;
            }
        }
        block *= 4;
    }
}

fn likelier(a: &Candidate, b: &Candidate) -> Ordering {
    b.0.total_cmp(&a.0).then(a.1.cmp(&b.1))
}

#[cfg(test)]
mod tests;
