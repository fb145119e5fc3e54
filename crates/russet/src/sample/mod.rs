//! The sampler: one token from a row of logits, on the CPU (contract B §9, F 1.5).
//!
//! Order: temperature, min-p, top-p, top-k, softmax, draw. Each filter works on the distribution the one before left. A seed
//! fixes all draws: [`SplitMix64`] gives one number for each draw, and greedy sampling draws none.

mod rng;

use std::cmp::Ordering;

pub use rng::SplitMix64;

use crate::engine::Logits;

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
        Ok(())
    }

    /// The same sampling without filters that do nothing: top-k of 1 is greedy, greedy needs no filters, top-p of 1 is none.
    pub fn normalized(&self) -> Self {
        if self.temperature == 0.0 || self.top_k == Some(1) {
            return Self {
                seed: self.seed,
                ..Self::default()
            };
        }
        Self {
            top_p: self.top_p.filter(|p| *p < 1.0),
            ..self.clone()
        }
    }
}

/// How far a token's scaled logit is from the largest, later its weight `exp` of that; and the token.
type Candidate = (f32, u32);

/// Draws tokens. Keeps its memory between draws: after the first, none allocates.
#[derive(Clone, Debug)]
pub struct Sampler {
    sampling: Sampling,
    rng: SplitMix64,
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
            candidates: Vec::new(),
        })
    }

    /// One token. Ties go to the first; NaN and minus infinity are never drawn; where nothing is left, token 0.
    pub fn sample<'a>(&mut self, logits: impl Into<Logits<'a>>) -> u32 {
        let logits = logits.into();
        if self.sampling.temperature == 0.0 {
            return logits.argmax();
        }
        let max = logits.max();
        if !max.is_finite() {
            return logits.argmax();
        }
        self.collect(logits, max);
        for c in &mut self.candidates {
            c.0 = c.0.exp();
        }
        if let Some(p) = self.sampling.top_p {
            keep_mass(&mut self.candidates, p);
        }
        if let Some(k) = self.sampling.top_k.filter(|k| *k < self.candidates.len()) {
            self.candidates.select_nth_unstable_by(k - 1, likelier);
            self.candidates.truncate(k);
        }
        self.draw()
    }

    /// Temperature and min-p. Differences to the largest are divided, so that no temperature, however small, makes a NaN.
    fn collect(&mut self, logits: Logits<'_>, max: f32) {
        let temperature = (self.sampling.temperature as f32).max(f32::MIN_POSITIVE);
        let floor = self
            .sampling
            .min_p
            .map_or(f32::NEG_INFINITY, |p| p.ln() as f32);
        let candidates = &mut self.candidates;
        candidates.clear();
        candidates.reserve(logits.len());
        logits.blocks(|first, part| {
            let scaled = part.iter().zip(first..);
            let scaled = scaled.map(|(l, id)| ((l - max) / temperature, id));
            // NaN is not above anything, and minus infinity is not above itself.
            candidates.extend(scaled.filter(|c| c.0 >= floor && c.0 > f32::NEG_INFINITY));
        });
    }

    fn draw(&mut self) -> u32 {
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
