//! `cargo xtask precision MODEL TEXT...`: how far fast mode is from exact mode, token by token, over ordinary text.
//!
//! Both read the same tokens. For every place: the divergence of Kullback and Leibler of the fast distribution from the exact one (in
//! nats), whether both have the same likeliest token, and what each thinks of the token that follows.

use std::fs;
use std::path::{Path, PathBuf};

use russet::evaluate::{Scorer, compare as distance};
use russet::{Model, Precision};

use crate::tally::{Failure, Tally};

/// Tokens in one piece: a context.
const PIECE: usize = 512;
/// What is accepted: mean divergence, share of equal likeliest tokens, ratio of perplexities.
const ACCEPTED: (f64, f64, f64) = (0.01, 0.97, 1.01);

/// Compares both modes over the first `limit` tokens of every text.
pub(crate) fn compare(model: &Path, texts: &[PathBuf], limit: usize) -> Result<Tally, Failure> {
    let open = |precision| {
        let mut options = crate::reference_options();
        options.precision = precision;
        Model::open(model, &options)
    };
    let (exact, fast) = (open(Precision::Exact)?, open(Precision::Fast)?);
    let mut tokens = Vec::new();
    for path in texts {
        let text = fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
        let mut some = exact.plain_prompt(&text)?;
        some.truncate(limit);
        println!("{}: {} tokens", path.display(), some.len());
        tokens.extend(some);
    }
    let (mut exact, mut fast) = (Scorer::new(&exact)?, Scorer::new(&fast)?);
    let apart = distance(&mut exact, &mut fast, &tokens, PIECE, &mut |_| ())?;
    let [exact, fast] = apart.perplexity;
    println!("{} places", apart.places);
    println!(
        "divergence: mean {:.5}, worst {:.4} nats",
        apart.mean_divergence, apart.worst_divergence
    );
    println!("same likeliest token: {:.2} %", 100.0 * apart.same_top);
    println!(
        "perplexity: exact {exact:.3}, fast {fast:.3} ({:+.2} %)",
        100.0 * (fast / exact - 1.0)
    );
    let mut tally = Tally::default();
    tally.count(apart.mean_divergence <= ACCEPTED.0);
    tally.count(apart.same_top >= ACCEPTED.1);
    tally.count(fast / exact <= ACCEPTED.2 && exact / fast <= ACCEPTED.2);
    Ok(tally)
}
