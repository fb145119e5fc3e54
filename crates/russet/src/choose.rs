//! One step's choice: what a row of logits becomes before a token is drawn from it, and what is kept of it.

use half::f16;

use crate::engine::{Logits, Token};
use crate::grammar::has;
use crate::open::Error;
use crate::sample::{Sampler, Sampling};
use crate::strategy::Strategy;

/// Which logits to keep of every token: those of the model, before penalties, biases and strategies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Record {
    /// None.
    #[default]
    None,
    /// Of the likeliest tokens, this many.
    Top(usize),
    /// All.
    Full,
}

/// What is kept of one step.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenLogits {
    /// The token that was chosen.
    pub token: Token,
    /// Its logit.
    pub logit: f32,
    /// The natural logarithm of its probability, over the whole vocabulary.
    pub log_probability: f64,
    /// The likeliest tokens with their logits, the likeliest first; ties in the vocabulary's order.
    pub top: Vec<(Token, f32)>,
    /// The logarithm of the sum of all `exp(logit)`: a logit less this is a log-probability.
    pub log_sum: f64,
    /// All logits where [`Record::Full`] asked for them.
    pub all: Vec<f16>,
}

/// Chooses token after token of one answer.
pub(crate) struct Chooser {
    sampler: Sampler,
    strategy: Option<Box<dyn Strategy>>,
    record: Record,
    row: Vec<f32>,
}

impl Chooser {
    pub(crate) fn new(
        sampling: &Sampling,
        strategy: Option<Box<dyn Strategy>>,
        record: Record,
    ) -> Result<Self, Error> {
        Ok(Self {
            sampler: Sampler::new(sampling)?,
            strategy,
            record,
            row: Vec::new(),
        })
    }

    /// Starts after these tokens.
    pub(crate) fn begin(&mut self, prompt: &[Token]) {
        self.sampler.begin(prompt);
        if let Some(strategy) = &mut self.strategy {
            strategy.begin(prompt);
        }
    }

    /// The next token: the one that is forced, or one that is chosen, of those that a mask allows (a bit for each, a word for 32).
    pub(crate) fn pick(
        &mut self,
        logits: Logits<'_>,
        forced: Option<Token>,
        mask: Option<&[u32]>,
    ) -> Result<Token, Error> {
        match (forced, self.strategy.is_some() || mask.is_some()) {
            (Some(token), _) => within(token, logits.len()),
            (None, false) => Ok(self.sampler.sample(logits)),
            (None, true) => self.of_row(logits, mask),
        }
    }

    /// Takes the token of a row of logits, and keeps what was asked for.
    pub(crate) fn take(&mut self, logits: Logits<'_>, token: Token) -> Option<TokenLogits> {
        self.accept(token);
        recorded(logits, token, self.record)
    }

    /// Takes a token of which nothing is kept.
    pub(crate) fn accept(&mut self, token: Token) {
        self.sampler.accept(token);
        if let Some(strategy) = &mut self.strategy {
            strategy.accept(token);
        }
    }

    /// Chooses from a copy of the logits, after penalties, mask and strategy.
    fn of_row(&mut self, logits: Logits<'_>, mask: Option<&[u32]>) -> Result<Token, Error> {
        logits.copy_to(&mut self.row);
        self.sampler.adjust(&mut self.row);
        forbid(&mut self.row, mask);
        let Some(strategy) = &mut self.strategy else {
            return Ok(self.sampler.choose(Logits::F32(&self.row)));
        };
        strategy.adjust(&mut self.row);
        forbid(&mut self.row, mask);
        let allowed = |t: &Token| mask.is_none_or(|m| has(m, *t));
        match strategy.pick(&self.row).filter(allowed) {
            Some(token) => within(token, self.row.len()),
            None => Ok(self.sampler.choose(Logits::F32(&self.row))),
        }
    }
}

/// Makes the logits of tokens that a mask does not allow minus infinity.
fn forbid(row: &mut [f32], mask: Option<&[u32]>) {
    let Some(mask) = mask else { return };
    let (whole, rest) = row.as_chunks_mut::<32>();
    let mut words = mask.iter().copied().chain(std::iter::repeat(0));
    for (part, word) in whole.iter_mut().zip(&mut words) {
        match word {
            u32::MAX => {}
            0 => part.fill(f32::NEG_INFINITY),
            word => forbid_some(part, word),
        }
    }
    forbid_some(rest, words.next().unwrap_or(0));
}

/// The same of up to 32 logits and their word. Without a branch, so that it is done to several at once.
fn forbid_some(part: &mut [f32], word: u32) {
    for (bit, logit) in part.iter_mut().enumerate() {
        let allowed = word & (1 << bit) != 0;
        *logit = if allowed { *logit } else { f32::NEG_INFINITY };
    }
}

/// A token that came from outside.
fn within(token: Token, vocabulary: usize) -> Result<Token, Error> {
    if (token as usize) < vocabulary {
        return Ok(token);
    }
    let what = format!("token {token} is beyond the vocabulary of {vocabulary}");
    Err(Error::Missing(what))
}

fn recorded(logits: Logits<'_>, token: Token, record: Record) -> Option<TokenLogits> {
    let (count, full) = match record {
        Record::None => return None,
        Record::Top(count) => (count, false),
        Record::Full => (0, true),
    };
    let row = logits.to_vec();
    let log_sum = log_sum_exp(&row);
    let logit = row
        .get(token as usize)
        .copied()
        .unwrap_or(f32::NEG_INFINITY);
    let all = if full {
        row.iter().map(|l| f16::from_f32(*l)).collect()
    } else {
        vec![]
    };
    Some(TokenLogits {
        token,
        logit,
        log_probability: log_probability(logit, log_sum),
        top: top(&row, count),
        log_sum,
        all,
    })
}

/// The logarithm of the sum of all `exp(logit)`, of the finite ones and those that are infinitely large; NaN counts for nothing.
pub(crate) fn log_sum_exp(row: &[f32]) -> f64 {
    let max = row.iter().fold(f32::NEG_INFINITY, |m, l| m.max(*l));
    if !max.is_finite() {
        return f64::from(max);
    }
    let max = f64::from(max);
    let terms = row.iter().filter(|l| !l.is_nan());
    let sum: f64 = terms.map(|l| (f64::from(*l) - max).exp()).sum();
    max + sum.ln()
}

/// The logarithm of a probability. Where some logits are infinitely large, those have all of it, and no share is told apart.
pub(crate) fn log_probability(logit: f32, log_sum: f64) -> f64 {
    match (logit == f32::INFINITY, log_sum == f64::INFINITY) {
        (true, true) => 0.0,
        _ if logit.is_nan() || log_sum == f64::NEG_INFINITY => f64::NEG_INFINITY,
        _ => f64::from(logit) - log_sum,
    }
}

/// The largest logits with their tokens, the largest first; ties in the vocabulary's order, NaN never.
pub(crate) fn top(row: &[f32], count: usize) -> Vec<(Token, f32)> {
    let all = row.iter().enumerate().filter(|(_, l)| !l.is_nan());
    let mut all: Vec<(Token, f32)> = all.map(|(id, l)| (id as Token, *l)).collect();
    let order = |a: &(Token, f32), b: &(Token, f32)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
    if count == 0 {
        return Vec::new();
    }
    if count < all.len() {
        all.select_nth_unstable_by(count - 1, order);
        all.truncate(count);
    }
    all.sort_unstable_by(order);
    all
}
