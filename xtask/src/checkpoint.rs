//! `cargo xtask conformance checkpoint DIR`: tiny Hugging Face checkpoints against what transformers computed for them in float32.
//!
//! `DIR/NAME/` is a checkpoint, `NAME.safetensors` what `hf_checkpoints.py` recorded with it: `tokens`, `logits` of one call, and
//! where they differ `steps`, the logits of a call for each token. Every model is run as one call, token by token, and in three
//! pieces; pieces are compared where the frequencies do not depend on the length of a call.

use std::fs;
use std::path::{Path, PathBuf};

use russet::{Engine, Model, OpenOptions, Precision};
use safetensors::SafeTensors;

use crate::record::numbers;
use crate::tally::{Failure, Tally, chain};

/// The largest difference of a logit.
const ALLOWED: f64 = 1e-4;

/// Replays every checkpoint that has a recording.
pub(crate) fn replay_all(folder: &Path, fast: bool) -> Result<Tally, Failure> {
    let mut tally = Tally::default();
    println!(
        "{:<24} {:>6} {:>9} {:>9} {:>9} {:>9}",
        "checkpoint", "rows", "largest", "one call", "steps", "pieces"
    );
    for record in records(folder)? {
        let name = record.file_stem().unwrap_or_default();
        let name = name.to_string_lossy().into_owned();
        let passed = match replay(&record.with_extension(""), &record, fast) {
            Ok(outcome) => outcome.print(&name),
            Err(failure) => {
                println!("{name:<24} {}", chain(&*failure));
                false
            }
        };
        tally.count(passed);
    }
    Ok(tally)
}

/// The recordings, in order.
fn records(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let entries = fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut found = entries
        .map(|e| Ok(e?.path()))
        .collect::<Result<Vec<_>, Failure>>()?;
    found.retain(|p| p.extension().is_some_and(|e| e == "safetensors"));
    found.sort();
    Ok(found)
}

struct Outcome {
    rows: usize,
    largest: f32,
    /// Differences along one call, calls of one token, three calls; the last where it is compared.
    apart: [Option<f64>; 3],
}

impl Outcome {
    fn print(&self, name: &str) -> bool {
        let passed = self.rows > 0 && self.apart.iter().flatten().all(|d| *d <= ALLOWED);
        let [whole, steps, pieces] = self
            .apart
            .map(|d| d.map_or_else(|| "-".into(), |d| format!("{d:.1e}")));
        let failed = if passed { "" } else { "  FAILED" };
        println!(
            "{name:<24} {:>6} {:>9.2} {whole:>9} {steps:>9} {pieces:>9}{failed}",
            self.rows, self.largest
        );
        passed
    }
}

fn replay(checkpoint: &Path, record: &Path, fast: bool) -> Result<Outcome, Failure> {
    let bytes = fs::read(record).map_err(|e| format!("{}: {e}", record.display()))?;
    let record = SafeTensors::deserialize(&bytes)?;
    let tokens = numbers(record.tensor("tokens")?.data(), u32::from_le_bytes);
    let table = |name| -> Result<Vec<f32>, Failure> {
        Ok(numbers(record.tensor(name)?.data(), f32::from_le_bytes))
    };
    let (whole, steps) = (table("logits")?, table("steps").ok());
    let mut options = OpenOptions::default();
    options.all_logits = true;
    options.precision = match fast {
        true => Precision::Fast,
        false => Precision::Exact,
    };
    let model = Model::open(checkpoint, &options)?;
    let n = tokens.len();
    let sizes = [vec![n], vec![1; n], vec![n / 3, n / 4, n - n / 3 - n / 4]];
    let mut apart = [None; 3];
    for (i, sizes) in sizes.iter().enumerate() {
        let got = run(&model, &tokens, sizes)?;
        let want = match (i, &steps) {
            (2, Some(_)) => continue,
            (1, Some(steps)) => steps,
            _ => &whole,
        };
        apart[i] = Some(difference(&got, want)?);
    }
    Ok(Outcome {
        rows: n,
        largest: whole.iter().fold(0.0, |a, v| v.abs().max(a)),
        apart,
    })
}

/// The logits of all tokens, in calls of these sizes.
fn run(model: &Model, tokens: &[u32], sizes: &[usize]) -> Result<Vec<f32>, Failure> {
    let mut engine = model.sequential()?;
    let mut all = Vec::new();
    let mut rest = tokens;
    for size in sizes {
        let (now, later) = rest
            .split_at_checked(*size)
            .ok_or("a call beyond the tokens")?;
        let view = engine.call(now)?;
        let mut row = vec![0.0; view.len() / now.len()];
        for i in 0..now.len() {
            view.read_row(i, &mut row);
            all.extend_from_slice(&row);
        }
        rest = later;
    }
    assert_eq!(engine.history().len(), tokens.len());
    Ok(all)
}

fn difference(got: &[f32], want: &[f32]) -> Result<f64, Failure> {
    if got.len() != want.len() {
        return Err(format!("{} logits, {} are recorded", got.len(), want.len()).into());
    }
    let one = |(a, b): (&f32, &f32)| f64::from(a - b).abs();
    // A NaN is as far off as can be.
    let largest = got
        .iter()
        .zip(want)
        .map(one)
        .fold(0.0, |a, d| if d > a || d.is_nan() { d } else { a });
    Ok(if largest.is_nan() {
        f64::INFINITY
    } else {
        largest
    })
}
