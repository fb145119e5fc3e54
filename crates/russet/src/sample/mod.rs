//! The sampler: one token from a row of logits, on the CPU (contract B §9, F 1.5).
//!
//! Order: temperature, min-p, top-p, top-k, softmax, draw. Each filter works on the distribution the one before left.

mod rng;

pub use rng::SplitMix64;

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
    pub fn check(&self) -> Result<(), SamplingError> {
        let fail = |name, value: String, allowed| Err(SamplingError { name, value, allowed });
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
    fn normalized(&self) -> Self {
        if self.temperature == 0.0 || self.top_k == Some(1) {
            return Self { seed: self.seed, ..Self::default() };
        }
        Self { top_p: self.top_p.filter(|p| *p < 1.0), ..self.clone() }
    }
}

/// Draws tokens. Keeps its memory between draws.
#[derive(Clone, Debug)]
pub struct Sampler {
    sampling: Sampling,
    rng: SplitMix64,
    candidates: Vec<(f32, u32)>,
}

impl Sampler {
    /// A sampler with checked numbers.
    pub fn new(sampling: &Sampling) -> Result<Self, SamplingError> {
        sampling.check()?;
        let rng = sampling.seed.map_or_else(SplitMix64::from_entropy, SplitMix64::new);
        Ok(Self { sampling: sampling.normalized(), rng, candidates: Vec::new() })
    }

    /// One token. Ties go to the first; NaN and minus infinity are never drawn; where nothing is left, token 0.
    pub fn sample(&mut self, logits: &[f32]) -> u32 {
        if self.sampling.temperature == 0.0 {
            return argmax(logits);
        }
        let scale = 1.0 / self.sampling.temperature as f32;
        self.candidates.clear();
        let usable = logits.iter().zip(0u32..).filter(|(l, _)| !l.is_nan() && **l > f32::NEG_INFINITY);
        self.candidates.extend(usable.map(|(l, id)| (l * scale, id)));
        let max = self.candidates.iter().fold(f32::NEG_INFINITY, |m, c| m.max(c.0));
        if self.candidates.is_empty() || max == f32::INFINITY {
            return argmax(logits);
        }
        if let Some(p) = self.sampling.min_p {
            let threshold = max + (p as f32).ln();
            self.candidates.retain(|c| c.0 >= threshold);
        }
        self.candidates.iter_mut().for_each(|c| c.0 = (c.0 - max).exp());
        if let Some(p) = self.sampling.top_p {
            self.keep_mass(p as f32);
        }
        if let Some(k) = self.sampling.top_k.filter(|k| *k < self.candidates.len()) {
            self.candidates.select_nth_unstable_by(k - 1, likelier);
            self.candidates.truncate(k);
        }
        self.draw()
    }

    /// Keeps the smallest prefix of the sorted candidates that holds the mass `p`.
    fn keep_mass(&mut self, p: f32) {
        self.candidates.sort_unstable_by(likelier);
        let total: f32 = self.candidates.iter().map(|c| c.0).sum();
        let mut mass = 0.0;
        let count = self.candidates.iter().position(|c| {
            mass += c.0;
            mass >= p * total
        });
        self.candidates.truncate(count.map_or(self.candidates.len(), |i| i + 1));
    }

    fn draw(&mut self) -> u32 {
        let total: f64 = self.candidates.iter().map(|c| f64::from(c.0)).sum();
        let mut left = self.rng.unit() * total;
        for c in &self.candidates {
            left -= f64::from(c.0);
            if left < 0.0 {
                return c.1;
            }
        }
        self.candidates.last().map_or(0, |c| c.1)
    }
}

fn likelier(a: &(f32, u32), b: &(f32, u32)) -> std::cmp::Ordering {
    b.0.total_cmp(&a.0).then(a.1.cmp(&b.1))
}

/// The first of the largest logits; NaN is passed over; 0 for an empty row.
pub fn argmax(logits: &[f32]) -> u32 {
    let mut best = (f32::NEG_INFINITY, 0);
    for (&l, id) in logits.iter().zip(0u32..) {
        if l > best.0 {
            best = (l, id);
        }
    }
    best.1
}

#[cfg(test)]
mod tests;
