//! `cargo xtask conformance lm DIR`: recorded conversations, replayed through the library.
//!
//! `DIR/NAME/` is a bundle, `NAME.safetensors` (beside it, or in another folder) the recording. Every call is made as it was
//! recorded, its logits compared row by row, and at the end the states.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use russet::{Model, SequentialEngine};
use russet_graph::types::DType;

use crate::compare::{Distance, Tolerance, error};
use crate::record::{self, Call, Record};
use crate::tally::{Failure, Tally, chain};

/// Replays every bundle of a folder that has a recording.
pub(crate) fn replay_all(folder: &Path, records: Option<&Path>) -> Result<Tally, Failure> {
    let mut tally = Tally::default();
    println!(
        "{:<18} {:<9} {:>10} {:>10} {:>14} {:>10}",
        "model", "precision", "worst", "1-cosine", "argmax", "states"
    );
    for bundle in bundles(folder)? {
        let name = bundle
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let record = records
            .unwrap_or(folder)
            .join(format!("{name}.safetensors"));
        let replayed = catch_unwind(AssertUnwindSafe(|| replay(&bundle, &record)));
        let passed = match replayed.unwrap_or_else(|_| Err("it panicked".into())) {
            Ok(outcome) => outcome.print(&name),
            Err(failure) => {
                println!("{name:<18} {}", chain(&*failure));
                false
            }
        };
        tally.count(passed);
    }
    Ok(tally)
}

/// The folders that hold a `metadata.json`, in order.
fn bundles(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let entries = fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut found = entries
        .map(|e| Ok(e?.path()))
        .collect::<Result<Vec<_>, Failure>>()?;
    found.retain(|p| p.join("metadata.json").is_file());
    found.sort();
    Ok(found)
}

/// What a replay found.
struct Outcome {
    precision: String,
    tolerance: Tolerance,
    logits: Distance,
    /// The worst `|d| / (1 + |x|)` of any state.
    states: f64,
}

impl Outcome {
    /// Prints a line and says whether all is close enough.
    fn print(&self, name: &str) -> bool {
        let passed = self.logits.within(self.tolerance) && self.states <= self.tolerance.error;
        let agree = format!(
            "{}/{}",
            self.logits.rows - self.logits.other,
            self.logits.rows
        );
        let wrong = if self.logits.wrong > 0 {
            format!(" ({} wrong)", self.logits.wrong)
        } else {
            String::new()
        };
        let verdict = if passed { "" } else { "  FAILED" };
        println!(
            "{name:<18} {:<9} {:>10.3e} {:>10.2e} {:>14} {:>10.3e}{verdict}",
            self.precision,
            self.logits.error,
            1.0 - self.logits.cosine,
            agree + &wrong,
            self.states,
        );
        passed
    }
}

fn replay(bundle: &Path, record: &Path) -> Result<Outcome, Failure> {
    let record = record::read(record)?;
    let tolerance = Tolerance::of(&record.precision)
        .ok_or_else(|| format!("no tolerance for {}", record.precision))?;
    let model = Model::open(bundle, &crate::reference_options())?;
    let mut engine = model.sequential()?;
    let mut logits = Distance::NONE;
    for call in &record.calls {
        compare_call(&mut engine, call, &mut logits)?;
    }
    if logits.rows == 0 {
        return Err("the recording holds no calls".into());
    }
    Ok(Outcome {
        states: compare_states(&engine, &record)?,
        precision: record.precision,
        tolerance,
        logits,
    })
}

fn compare_call(
    engine: &mut SequentialEngine,
    call: &Call,
    distance: &mut Distance,
) -> Result<(), Failure> {
    let view = engine.call(&call.tokens)?;
    let expected = [1, call.tokens.len(), call.vocab()];
    if view.shape() != expected {
        return Err(format!("logits are {:?}, recorded {expected:?}", view.shape()).into());
    }
    let mut row = vec![0.0; call.vocab()];
    for (i, recorded) in call.logits.chunks(call.vocab()).enumerate() {
        view.read_row(i, &mut row);
        distance.row(&row, recorded);
    }
    Ok(())
}

/// The worst distance of any recorded state.
fn compare_states(engine: &SequentialEngine, record: &Record) -> Result<f64, Failure> {
    let mut worst: f64 = 0.0;
    for (name, shape, recorded) in &record.states {
        let mut names = engine.plan().states().iter();
        let index = names
            .position(|s| *s.name == **name)
            .ok_or_else(|| format!("there is no state {name}"))?;
        let (dtype, extents) = engine.states().ty(index);
        if extents != shape {
            return Err(format!("state {name} is {extents:?}, recorded {shape:?}").into());
        }
        worst = worst.max(error(
            &floats(dtype, engine.states().bytes(index))?,
            recorded,
        ));
    }
    Ok(worst)
}

fn floats(dtype: DType, bytes: &[u8]) -> Result<Vec<f32>, Failure> {
    let pairs = || bytes.as_chunks::<2>().0.iter();
    match dtype {
        DType::F32 => Ok(bytes
            .as_chunks::<4>()
            .0
            .iter()
            .map(|&b| f32::from_le_bytes(b))
            .collect()),
        DType::F16 => Ok(pairs()
            .map(|&b| f16::from_le_bytes(b))
            .collect::<Vec<_>>()
            .to_f32_vec()),
        DType::BF16 => Ok(pairs()
            .map(|&b| bf16::from_le_bytes(b))
            .collect::<Vec<_>>()
            .to_f32_vec()),
        other => Err(format!("a state of {other}").into()),
    }
}
