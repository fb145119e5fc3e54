//! Measuring a model: prompts and generation in tokens a second, by the protocol of Apple's `llm-benchmark` (contract F 1.10).
//!
//! A trial processes a prompt of random tokens and then generates greedily; with a depth, both happen behind a context of that
//! many tokens, whose processing is not measured. The first trial warms up and is not counted.

use std::time::{Duration, Instant};

use serde::Serialize;

use crate::engine::{Engine, EngineError, Token};
use crate::open::{Error, Model};

/// What to measure.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BenchOptions {
    /// Tokens of the prompt; 0 to measure generation alone.
    pub prompt: usize,
    /// Tokens to generate; 0 to measure prompts alone.
    pub generate: usize,
    /// Trials that count.
    pub trials: usize,
    /// Tokens of context before the prompt.
    pub depth: usize,
    /// Chooses the random tokens.
    pub seed: u64,
}

impl Default for BenchOptions {
    fn default() -> Self {
        Self {
            prompt: 512,
            generate: 128,
            trials: 5,
            depth: 0,
            seed: 0,
        }
    }
}

/// One trial.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Trial {
    /// Tokens of the prompt processed in a second.
    pub prompt_tps: f64,
    /// Tokens generated in a second.
    pub gen_tps: f64,
    /// Seconds that every generated token took.
    #[serde(skip)]
    pub token_seconds: Vec<f64>,
}

/// The most tokens of a trial.
const MOST_TOKENS: usize = 1 << 24;

/// Measures a model trial by trial, so that several can be measured in turn.
pub struct Bench {
    engine: Box<dyn Engine>,
    options: BenchOptions,
    vocabulary: usize,
    random: SplitMix,
}

impl Bench {
    /// Ready for the first trial.
    ///
    /// # Errors
    /// If the tokens do not fit into the context, or the model fails.
    pub fn new(model: &Model, options: &BenchOptions) -> Result<Self, Error> {
        let mut engine = model.engine()?;
        let new = options.prompt.saturating_add(options.generate);
        // An engine without a limit would be asked to make up more tokens than there is memory for.
        let limit = engine.limit().min(MOST_TOKENS);
        if options.depth.saturating_add(new) > limit {
            return Err(Error::Engine(EngineError::ContextFull {
                position: options.depth,
                new,
                limit,
            }));
        }
        // A first token tells how many there are.
        engine.feed(&[0], &|| false)?;
        let vocabulary = engine.logits().len();
        Ok(Self {
            engine,
            options: options.clone(),
            vocabulary,
            random: SplitMix(options.seed),
        })
    }

    /// One trial. The first warms up.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn trial(&mut self) -> Result<Trial, Error> {
        let never = || false;
        let (engine, options) = (&mut *self.engine, &self.options);
        engine.rewind(0)?;
        let context = self.random.tokens(options.depth, self.vocabulary);
        if !context.is_empty() {
            engine.feed(&context, &never)?;
        }
        // Generation without a prompt goes on from one token, which belongs to neither.
        let length = options.prompt.max(usize::from(options.depth == 0));
        let prompt = self.random.tokens(length, self.vocabulary);
        let start = Instant::now();
        if !prompt.is_empty() {
            engine.feed(&prompt, &never)?;
        }
        let prefill = start.elapsed();
        let mut token_seconds = Vec::with_capacity(options.generate);
        let start = Instant::now();
        let mut before = start;
        for _ in 0..options.generate {
            let token = engine.logits().argmax();
            engine.feed(&[token], &never)?;
            let now = Instant::now();
            token_seconds.push((now - before).as_secs_f64());
            before = now;
        }
        Ok(Trial {
            prompt_tps: rate(options.prompt, prefill),
            gen_tps: rate(options.generate, start.elapsed()),
            token_seconds,
        })
    }
}

/// Measures a model; `on_trial` hears of every trial that counts.
///
/// # Errors
/// If the tokens do not fit into the context, or the model fails.
pub fn bench(
    model: &Model,
    options: &BenchOptions,
    on_trial: &mut dyn FnMut(&Trial),
) -> Result<Vec<Trial>, Error> {
    let mut bench = Bench::new(model, options)?;
    bench.trial()?;
    let trial = |_| {
        let trial = bench.trial()?;
        on_trial(&trial);
        Ok(trial)
    };
    (0..options.trials).map(trial).collect()
}

/// How long tokens took: half of them, nine in ten, and all but one in a hundred no longer than this, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Percentiles {
    /// Half.
    pub p50: f64,
    /// Nine in ten.
    pub p90: f64,
    /// All but one in a hundred.
    pub p99: f64,
}

impl Percentiles {
    /// Those of some numbers; 0 where there are none.
    pub fn of(numbers: impl Iterator<Item = f64>) -> Self {
        let [p50, p90, p99] = quantiles(numbers, [0.5, 0.9, 0.99]);
        Self { p50, p90, p99 }
    }
}

/// The numbers that these shares of all are no larger than; 0 where there are none.
pub(crate) fn quantiles<const N: usize>(
    numbers: impl Iterator<Item = f64>,
    shares: [f64; N],
) -> [f64; N] {
    let mut sorted: Vec<f64> = numbers.collect();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().saturating_sub(1);
    shares.map(|share| {
        let place = (share * sorted.len() as f64).ceil() as usize;
        let at = place.saturating_sub(1).min(last);
        sorted.get(at).copied().unwrap_or(0.0)
    })
}

fn rate(tokens: usize, time: Duration) -> f64 {
    tokens as f64 / time.as_secs_f64().max(f64::MIN_POSITIVE)
}

/// Steele, Lea and Flood's generator (OOPSLA 2014), from a seed: the tokens of `llm-benchmark`'s prompts.
#[derive(Clone, Debug)]
pub struct SplitMix(pub u64);

impl SplitMix {
    /// The next number.
    #[allow(clippy::should_implement_trait, reason = "it never ends")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn tokens(&mut self, count: usize, vocab: usize) -> Vec<Token> {
        let vocab = vocab.max(1) as u64;
        (0..count).map(|_| (self.next() % vocab) as Token).collect()
    }
}

/// The middle of some numbers; the mean of the two middle ones of an even count, 0 of none.
pub fn median(numbers: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = numbers.collect();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    match (sorted.len() % 2, sorted.get(half)) {
        (_, None) => 0.0,
        (0, Some(high)) => (sorted[half - 1] + high) / 2.0,
        (_, Some(middle)) => *middle,
    }
}

/// Where numbers lie: the middle one, the least and the greatest; all 0 where there are none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    /// The middle, as [`median`] has it.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
}

impl Spread {
    /// The spread of some numbers.
    pub fn of(numbers: impl Iterator<Item = f64>) -> Self {
        let all: Vec<f64> = numbers.collect();
        Self {
            median: median(all.iter().copied()),
            min: all.iter().copied().reduce(f64::min).unwrap_or(0.0),
            max: all.iter().copied().reduce(f64::max).unwrap_or(0.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_is_the_published_one() {
        let mut random = SplitMix(1_234_567);
        assert_eq!(random.next(), 6_457_827_717_110_365_317);
        assert_eq!(random.next(), 3_203_168_211_198_807_973);
        assert!(random.tokens(1000, 320).iter().all(|t| *t < 320));
    }

    #[test]
    fn percentiles_are_numbers_that_were_seen() {
        let all = Percentiles::of((1..=200).rev().map(f64::from));
        assert_eq!((all.p50, all.p90, all.p99), (100.0, 180.0, 198.0));
        let one = Percentiles::of([2.5].into_iter());
        assert_eq!((one.p50, one.p99), (2.5, 2.5));
        assert_eq!(Percentiles::of(std::iter::empty()), Percentiles::default());
    }

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0].into_iter()), 2.5);
        assert_eq!(median(std::iter::empty()), 0.0);
    }

    #[test]
    fn a_spread_has_the_middle_and_both_ends() {
        let spread = Spread::of([3.0, 1.0, 8.0].into_iter());
        let [median, min, max] = [3.0, 1.0, 8.0];
        assert_eq!(spread, Spread { median, min, max });
        assert_eq!(Spread::of(std::iter::empty()), Spread::default());
    }
}
