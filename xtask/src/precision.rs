//! `cargo xtask precision MODEL TEXT...`: how far fast mode is from exact mode, token by token, over ordinary text.
//!
//! Both read the same tokens. For every place: the divergence of Kullback and Leibler of the fast distribution from the exact one (in
//! nats), whether both have the same likeliest token, and what each thinks of the token that follows.

use std::fs;
use std::path::{Path, PathBuf};

use russet::{Model, Precision, SequentialEngine, Token};

use crate::tally::{Failure, Tally};

/// Tokens in one piece: a context, and a chunk.
const PIECE: usize = 512;
/// What is accepted: mean divergence, share of equal likeliest tokens, ratio of perplexities.
const ACCEPTED: (f64, f64, f64) = (0.01, 0.97, 1.01);

#[derive(Default)]
struct Sums {
    places: usize,
    divergence: f64,
    worst: f64,
    same: usize,
    /// Negative log-likelihoods of the tokens that follow: exact, fast.
    loss: [f64; 2],
}

/// Compares both modes over the first `limit` tokens of every text.
pub(crate) fn compare(model: &Path, texts: &[PathBuf], limit: usize) -> Result<Tally, Failure> {
    let open = |precision| {
        let mut options = crate::reference_options();
        options.precision = precision;
        Model::open(model, &options)
    };
    let (exact, fast) = (open(Precision::Exact)?, open(Precision::Fast)?);
    let mut sums = Sums::default();
    for path in texts {
        let text = fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
        let mut tokens = exact.plain_prompt(&text)?;
        tokens.truncate(limit);
        for piece in tokens.chunks(PIECE).filter(|p| p.len() > 1) {
            add(
                &mut sums,
                (&mut exact.sequential()?, &mut fast.sequential()?),
                piece,
            )?;
        }
        println!("{}: {} tokens", path.display(), tokens.len());
    }
    Ok(report(&sums))
}

fn add(
    sums: &mut Sums,
    (exact, fast): (&mut SequentialEngine, &mut SequentialEngine),
    tokens: &[Token],
) -> Result<(), Failure> {
    let (a, b) = (exact.call(tokens)?, fast.call(tokens)?);
    let vocab = a.shape().last().copied().unwrap_or(0);
    let (mut p, mut q) = (vec![0.0; vocab], vec![0.0; vocab]);
    for (i, next) in tokens[1..].iter().enumerate() {
        a.read_row(i, &mut p);
        b.read_row(i, &mut q);
        let (p, q) = (log_probabilities(&p), log_probabilities(&q));
        let divergence: f64 = p.iter().zip(&q).map(|(p, q)| p.exp() * (p - q)).sum();
        sums.places += 1;
        sums.divergence += divergence;
        sums.worst = sums.worst.max(divergence);
        sums.same += usize::from(largest(&p) == largest(&q));
        sums.loss[0] -= p[*next as usize];
        sums.loss[1] -= q[*next as usize];
    }
    Ok(())
}

fn log_probabilities(logits: &[f32]) -> Vec<f64> {
    let max = logits.iter().fold(f32::NEG_INFINITY, |m, v| m.max(*v));
    let sum: f64 = logits.iter().map(|v| f64::from(v - max).exp()).sum();
    let shift = f64::from(max) + sum.ln();
    logits.iter().map(|v| f64::from(*v) - shift).collect()
}

fn largest(row: &[f64]) -> Option<usize> {
    let best = row.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
    best.map(|(i, _)| i)
}

fn report(sums: &Sums) -> Tally {
    let places = sums.places.max(1) as f64;
    let divergence = sums.divergence / places;
    let same = sums.same as f64 / places;
    let [exact, fast] = sums.loss.map(|loss| (loss / places).exp());
    println!("{} places", sums.places);
    println!(
        "divergence: mean {divergence:.5}, worst {:.4} nats",
        sums.worst
    );
    println!("same likeliest token: {:.2} %", 100.0 * same);
    println!(
        "perplexity: exact {exact:.3}, fast {fast:.3} ({:+.2} %)",
        100.0 * (fast / exact - 1.0)
    );
    let mut tally = Tally::default();
    tally.count(divergence <= ACCEPTED.0 && sums.places > 0);
    tally.count(same >= ACCEPTED.1);
    tally.count(fast / exact <= ACCEPTED.2 && exact / fast <= ACCEPTED.2);
    tally
}
