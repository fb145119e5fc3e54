//! Two models over the same tokens: how far the second's distributions are from the first's.

use serde::Serialize;

use super::{EvaluationError, Perplexity, Scorer};
use crate::choose::{log_probability, log_sum_exp};
use crate::engine::Token;

/// How far one model is from another, place by place.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Comparison {
    /// Places compared.
    pub places: usize,
    /// The mean divergence of Kullback and Leibler of the second from the first, in nats.
    pub mean_divergence: f64,
    /// The largest.
    pub worst_divergence: f64,
    /// The place of the largest, as a token's position.
    pub worst_place: usize,
    /// The share of places where both have the same likeliest token.
    pub same_top: f64,
    /// The mean cosine of the logits.
    pub mean_cosine: f64,
    /// What each thinks of the tokens.
    pub perplexity: [f64; 2],
}

/// Compares two models over tokens in pieces of `window`; `on_progress` hears how many are done.
///
/// # Errors
/// [`EvaluationError::OtherVocabulary`] where the rows differ in length; those of the engines.
pub fn compare(
    first: &mut Scorer,
    second: &mut Scorer,
    tokens: &[Token],
    window: usize,
    on_progress: &mut dyn FnMut(usize),
) -> Result<Comparison, EvaluationError> {
    if first.vocabulary() != second.vocabulary() {
        return Err(EvaluationError::OtherVocabulary(
            first.vocabulary(),
            second.vocabulary(),
        ));
    }
    let window = window.min(first.limit()).min(second.limit()).max(2);
    let mut sums = Sums::default();
    let mut done = 0;
    for piece in tokens.chunks(window).filter(|p| p.len() > 1) {
        for from in (1..piece.len()).step_by(ROWS) {
            let end = piece.len().min(from + ROWS);
            sums.score(first, second, &piece[..end], from, done)?;
        }
        done += piece.len();
        on_progress(done);
    }
    if sums.of.places == 0 {
        return Err(EvaluationError::TooShort(tokens.len()));
    }
    Ok(sums.mean())
}

/// Rows of logits that are held at a time.
const ROWS: usize = 64;

#[derive(Default)]
struct Sums {
    of: Comparison,
    losses: [Perplexity; 2],
}

impl Sums {
    /// Adds the tokens of a piece from a position on; both models hold those before it.
    fn score(
        &mut self,
        first: &mut Scorer,
        second: &mut Scorer,
        piece: &[Token],
        from: usize,
        before: usize,
    ) -> Result<(), EvaluationError> {
        let mut rows: Vec<Vec<f32>> = Vec::with_capacity(ROWS);
        first.score(piece, from, &mut |_, logits| rows.push(logits.to_vec()))?;
        let mut rows = rows.into_iter().zip(before + from..);
        let mut other = Vec::new();
        second.score(piece, from, &mut |token, logits| {
            logits.copy_to(&mut other);
            if let Some((row, place)) = rows.next() {
                self.add(&Place::of([&row, &other], token, place));
            }
        })
    }

    fn add(&mut self, place: &Place) {
        let of = &mut self.of;
        of.places += 1;
        of.mean_divergence += place.divergence;
        of.mean_cosine += place.cosine;
        if place.divergence > of.worst_divergence {
            (of.worst_divergence, of.worst_place) = (place.divergence, place.place);
        }
        of.same_top += f64::from(u8::from(place.same_top()));
        for (loss, log) in self.losses.iter_mut().zip(place.log_probabilities) {
            loss.tokens += 1;
            loss.log_probability += log;
        }
    }

    fn mean(self) -> Comparison {
        let places = self.of.places as f64;
        Comparison {
            mean_divergence: self.of.mean_divergence / places,
            mean_cosine: self.of.mean_cosine / places,
            same_top: self.of.same_top / places,
            perplexity: self.losses.map(|l| l.perplexity()),
            ..self.of
        }
    }
}

impl Comparison {
    /// The sum of some places; none where there are none.
    pub fn of<'a>(places: impl IntoIterator<Item = &'a Place>) -> Option<Self> {
        let mut sums = Sums::default();
        places.into_iter().for_each(|place| sums.add(place));
        (sums.of.places > 0).then(|| sums.mean())
    }
}

/// How far two rows of logits are apart that predict one token.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Place {
    /// The position of the token.
    pub place: usize,
    /// The token.
    pub token: Token,
    /// The divergence of Kullback and Leibler of the second from the first, in nats.
    pub divergence: f64,
    /// The cosine of the logits.
    pub cosine: f64,
    /// What each finds likeliest.
    pub top: [Token; 2],
    /// What each thinks of the token.
    pub log_probabilities: [f64; 2],
}

impl Place {
    /// Of two rows; entries that are not finite in both count for no cosine.
    pub fn of([a, b]: [&[f32]; 2], token: Token, place: usize) -> Self {
        let (sum_a, sum_b) = (log_sum_exp(a), log_sum_exp(b));
        let (mut divergence, mut dot, mut squares) = (0.0, 0.0, [0.0; 2]);
        for (x, y) in a.iter().zip(b) {
            let (p, q) = (log_probability(*x, sum_a), log_probability(*y, sum_b));
            if p > f64::NEG_INFINITY {
                divergence += p.exp() * (p - q);
            }
            let (x, y) = (f64::from(*x), f64::from(*y));
            if x.is_finite() && y.is_finite() {
                dot += x * y;
                squares[0] += x * x;
                squares[1] += y * y;
            }
        }
        let log = |(row, sum): (&[f32], f64)| {
            let logit = row.get(token as usize).copied().unwrap_or(f32::NAN);
            log_probability(logit, sum)
        };
        Self {
            place,
            token,
            divergence,
            cosine: dot / (squares[0] * squares[1]).sqrt().max(f64::MIN_POSITIVE),
            top: [a, b].map(|row| crate::Logits::F32(row).argmax()),
            log_probabilities: [(a, sum_a), (b, sum_b)].map(log),
        }
    }

    /// Whether both find the same token likeliest.
    pub fn same_top(&self) -> bool {
        self.top[0] == self.top[1]
    }
}
