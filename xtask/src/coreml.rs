//! `cargo xtask conformance coreml DIR`: recorded conversations with Core ML packages in ANEMLL's layout, replayed call by call.
//!
//! `DIR/NAME/` is a package folder, `NAME.safetensors` what `coreml_lm.py` recorded with it: `tokens`; `calls` and `turns.calls`, the
//! positions and lengths of calls; `logits_f16` and `turns.logits_f16`, a row for every token, NaN where the calls give none
//! (or only some rows, and their tokens in `logits_f16.rows`); `state.<name>` after `calls`, where states are recorded. The rows are those of f32 arithmetic on f16
//! weights.

use std::fs;
use std::path::{Path, PathBuf};

use half::f16;
use half::slice::HalfFloatSliceExt;
use russet::{AnemllEngine, Engine, Model, OpenOptions, Precision};
use russet_graph::types::DType;
use safetensors::SafeTensors;

use crate::compare::{self, Distance};
use crate::record::numbers;
use crate::tally::{Failure, Tally, chain};

/// The arithmetic of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Compute {
    /// As the package says, rounded after every operation.
    F16,
    /// Everything in f32.
    F32,
}

/// How to replay.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mode {
    pub(crate) compute: Compute,
    pub(crate) fast: bool,
}

impl Mode {
    fn options(self) -> OpenOptions {
        let mut options = OpenOptions::default();
        options.precision = if self.fast {
            Precision::Fast
        } else {
            Precision::Exact
        };
        options.float32 = self.compute == Compute::F32;
        options
    }

    fn allowed(self, experts: bool) -> Allowed {
        match (self.compute, experts) {
            (Compute::F32, false) => Allowed {
                logits: 0.01,
                cosine: 0.9995,
                states: 0.01,
            },
            (Compute::F32, true) => Allowed {
                logits: 0.02,
                cosine: 0.998,
                states: 0.02,
            },
            (Compute::F16, false) => Allowed {
                logits: f64::INFINITY,
                cosine: 0.9995,
                states: 0.1,
            },
            (Compute::F16, true) => Allowed {
                logits: f64::INFINITY,
                cosine: 0.998,
                states: 0.2,
            },
        }
    }
}

/// What is accepted: the largest difference of a logit, the least cosine of a row, the largest `|d| / (1 + |x|)` of a state.
#[derive(Clone, Copy, Debug)]
struct Allowed {
    logits: f64,
    cosine: f64,
    states: f64,
}

/// Rows whose largest two logits are further apart must agree on which is the largest.
const DECIDED: f32 = 0.1;

/// Replays every package folder that has a recording.
pub(crate) fn replay_all(folder: &Path, mode: Mode) -> Result<Tally, Failure> {
    let mut tally = Tally::default();
    println!(
        "{:<22} {:>5} {:>10} {:>10} {:>10} {:>7} {:>10} {:>10}",
        "package", "rows", "largest d", "1-cosine", "turns d", "argmax", "states", "torch f16"
    );
    for package in packages(folder)? {
        let name = package
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let record = folder.join(format!("{name}.safetensors"));
        let passed = match replay(&package, &record, mode) {
            Ok(outcome) => outcome.print(&name),
            Err(failure) => {
                println!("{name:<22} {}", chain(&*failure));
                false
            }
        };
        tally.count(passed);
    }
    Ok(tally)
}

/// The folders that hold a `meta.yaml` and have a recording beside them, in order.
fn packages(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let entries = fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut found = entries
        .map(|e| Ok(e?.path()))
        .collect::<Result<Vec<_>, Failure>>()?;
    found.retain(|p| p.join("meta.yaml").is_file() && p.with_extension("safetensors").is_file());
    found.sort();
    Ok(found)
}

/// How far rows are apart.
#[derive(Clone, Copy, Debug)]
struct Rows {
    largest: f64,
    distance: Distance,
    /// Rows whose largest entry was decided and is another.
    wrong: usize,
}

struct Outcome {
    calls: Rows,
    turns: Rows,
    states: f64,
    /// What torch's own float16 arithmetic differs by.
    torch: String,
    allowed: Allowed,
}

impl Outcome {
    fn print(&self, name: &str) -> bool {
        let (calls, turns, allowed) = (&self.calls, &self.turns, self.allowed);
        let within = |r: &Rows| {
            r.largest <= allowed.logits
                && r.distance.cosine >= allowed.cosine
                && r.wrong == 0
                && r.distance.rows > 0
        };
        let passed = within(calls) && within(turns) && self.states <= allowed.states;
        let cosine = calls.distance.cosine.min(turns.distance.cosine);
        let rows = calls.distance.rows + turns.distance.rows;
        let same = rows - calls.distance.other - turns.distance.other;
        let wrong = calls.wrong + turns.wrong;
        println!(
            "{name:<22} {rows:>5} {:>10.2e} {:>10.2e} {:>10.2e} {:>7} {:>10.2e} {:>10}{}",
            calls.largest,
            1.0 - cosine,
            turns.largest,
            format!("{same}/{rows}"),
            self.states,
            self.torch,
            match (passed, wrong) {
                (true, _) => String::new(),
                (false, 0) => "  FAILED".into(),
                (false, n) => format!("  FAILED ({n} wrong)"),
            }
        );
        passed
    }
}

fn replay(package: &Path, record: &Path, mode: Mode) -> Result<Outcome, Failure> {
    let bytes = fs::read(record).map_err(|e| format!("{}: {e}", record.display()))?;
    let (_, header) = SafeTensors::read_metadata(&bytes)?;
    let notes = header.metadata().clone().unwrap_or_default();
    let shape: serde_json::Value =
        serde_json::from_str(notes.get("shape").ok_or("no shape is recorded")?)?;
    let record = SafeTensors::deserialize(&bytes)?;
    let model = Model::open(package, &mode.options())?;
    let (engine, calls) = play(&model, &record, "calls", "logits_f16")?;
    let (_, turns) = play(&model, &record, "turns.calls", "turns.logits_f16")?;
    Ok(Outcome {
        calls,
        turns,
        states: states(&engine, &record)?,
        torch: notes
            .get("error_f16_arithmetic")
            .cloned()
            .unwrap_or_default(),
        allowed: mode.allowed(shape["experts"].as_u64().unwrap_or(0) > 0),
    })
}

/// Makes every call of a sequence, and compares the logits it leaves.
fn play(
    model: &Model,
    record: &SafeTensors<'_>,
    calls: &str,
    logits: &str,
) -> Result<(AnemllEngine, Rows), Failure> {
    let tokens = numbers(record.tensor("tokens")?.data(), u32::from_le_bytes);
    let calls = numbers(record.tensor(calls)?.data(), u32::from_le_bytes);
    let table = Table::of(record, logits)?;
    let mut engine = model.anemll()?;
    let mut rows = Rows {
        largest: 0.0,
        distance: Distance::NONE,
        wrong: 0,
    };
    for call in calls.as_chunks::<2>().0 {
        let [at, len] = call.map(|n| n as usize);
        if engine.history().len() != at {
            return Err(format!("a call at {at} behind {} tokens", engine.history().len()).into());
        }
        let given = tokens.get(at..at + len).ok_or("a call beyond the tokens")?;
        engine.feed(given, &|| false)?;
        if let Some(row) = table.row(at + len - 1) {
            compare_row(&mut rows, &engine.logits().to_vec(), row);
        }
    }
    Ok((engine, rows))
}

/// Recorded logits.
struct Table {
    values: Vec<f32>,
    width: usize,
    /// The token of every row, where not every token has one.
    tokens: Option<Vec<u32>>,
}

impl Table {
    fn of(record: &SafeTensors<'_>, name: &str) -> Result<Self, Failure> {
        let table = record.tensor(name)?;
        let rows = record.tensor(&format!("{name}.rows")).ok();
        Ok(Self {
            values: numbers(table.data(), f32::from_le_bytes),
            width: table.shape().last().copied().unwrap_or(1).max(1),
            tokens: rows.map(|r| numbers(r.data(), u32::from_le_bytes)),
        })
    }

    /// The logits after a token, where they are numbers.
    fn row(&self, token: usize) -> Option<&[f32]> {
        let at = match &self.tokens {
            Some(tokens) => tokens.iter().position(|t| *t as usize == token)?,
            None => token,
        };
        let row = self.values.chunks(self.width).nth(at)?;
        row.iter().all(|x| x.is_finite()).then_some(row)
    }
}

fn compare_row(rows: &mut Rows, computed: &[f32], recorded: &[f32]) {
    let other = rows.distance.other;
    rows.distance.row(computed, recorded);
    let apart = computed
        .iter()
        .zip(recorded)
        .map(|(a, b)| f64::from((a - b).abs()));
    let apart = apart.fold(
        0.0,
        |m: f64, d| if d.is_nan() { f64::INFINITY } else { m.max(d) },
    );
    rows.largest = rows.largest.max(if computed.len() == recorded.len() {
        apart
    } else {
        f64::INFINITY
    });
    if rows.distance.other > other && compare::largest(recorded).1 > DECIDED {
        rows.wrong += 1;
    }
}

/// The worst distance of any recorded state; 0 where none is recorded.
fn states(engine: &AnemllEngine, record: &SafeTensors<'_>) -> Result<f64, Failure> {
    let (mut worst, mut seen) = (0.0_f64, 0);
    let names = record.names();
    let recorded = names.iter().filter(|n| n.starts_with("state.")).count();
    if recorded == 0 {
        return Ok(worst);
    }
    for (index, name) in engine.state_names().enumerate() {
        let recorded = record.tensor(&format!("state.{name}"))?;
        let (dtype, shape) = engine.states().ty(index);
        if shape != recorded.shape() {
            return Err(
                format!("state {name} is {shape:?}, recorded {:?}", recorded.shape()).into(),
            );
        }
        let held = floats(dtype, engine.states().bytes(index))?;
        worst = worst.max(compare::error(
            &held,
            &numbers(recorded.data(), f32::from_le_bytes),
        ));
        seen += 1;
    }
    if seen != recorded {
        return Err(format!("there are {seen} states, recorded are {recorded}").into());
    }
    Ok(worst)
}

fn floats(dtype: DType, bytes: &[u8]) -> Result<Vec<f32>, Failure> {
    match dtype {
        DType::F32 => Ok(numbers(bytes, f32::from_le_bytes)),
        DType::F16 => {
            let pairs = bytes.as_chunks::<2>().0.iter();
            Ok(pairs
                .map(|&b| f16::from_le_bytes(b))
                .collect::<Vec<_>>()
                .to_f32_vec())
        }
        other => Err(format!("a state of {other}").into()),
    }
}
