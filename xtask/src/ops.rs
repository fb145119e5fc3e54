//! `cargo xtask conformance ops DIR`: recorded calls of one-operation assets, repeated through the library or by the command.
//!
//! `DIR/OP/CASE.aimodel` is an asset with the function `main`, `DIR/OP/CASE.safetensors` its recording: inputs `in.NAME`,
//! states before the call `state.NAME`, results `out.NAME`, states after it `after.NAME`. How close a result must be follows
//! from its kind and the operation ([`ulps`]).

mod ulps;

use std::collections::BTreeMap;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use russet::tensors::{self, NamedTensors};
use russet::{Function, Results};
use russet_graph::exec::{PlanOptions, Precision};
use russet_graph::graph::Module;
use russet_graph::ops::decompose::composites;
use russet_graph::ops::shape::unravel;
use russet_graph::passes::flatten;
use russet_graph::tensor::{Tensor, TensorMut, strides};

use crate::caller::{Binary, Callee};
use crate::tally::{Failure, Tally, chain};
use ulps::{Bound, By, Case};

/// Repeats every recorded call below a folder, with a line for every operation and one for every case that failed.
pub(crate) fn replay_all(folder: &Path, binary: Option<&Binary>) -> Result<Tally, Failure> {
    let mut by_op: BTreeMap<String, (Tally, f64)> = BTreeMap::new();
    for (op, asset) in cases(folder)? {
        let outcome = catch_unwind(AssertUnwindSafe(|| replay(&op, &asset, binary)));
        let outcome = outcome.unwrap_or_else(|_| Err("it panicked".into()));
        let (tally, worst) = by_op.entry(op.clone()).or_default();
        match &outcome {
            Ok(distance) => *worst = worst.max(*distance),
            Err(failure) => {
                let name = asset.file_stem().unwrap_or_default().to_string_lossy();
                println!("{op}/{name}: {}", chain(&**failure));
            }
        }
        tally.count(outcome.is_ok());
    }
    let mut all = Tally::default();
    println!(
        "{:<34} {:>7} {:>7}  worst, in parts of what is allowed",
        "operation", "passed", "failed"
    );
    for (op, (tally, worst)) in by_op {
        println!(
            "{op:<34} {:>7} {:>7}  {worst:.2}",
            tally.passed, tally.failed
        );
        all.passed += tally.passed;
        all.failed += tally.failed;
    }
    Ok(all)
}

/// Operation and asset of every recorded case, in order.
fn cases(folder: &Path) -> Result<Vec<(String, PathBuf)>, Failure> {
    let mut found = Vec::new();
    for op in entries(folder)?.into_iter().filter(|p| p.is_dir()) {
        let name = op
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let recorded = |p: &PathBuf| {
            p.extension().is_some_and(|e| e == "aimodel")
                && p.with_extension("safetensors").is_file()
        };
        let assets = entries(&op)?.into_iter().filter(recorded);
        found.extend(assets.map(|asset| (name.clone(), asset)));
    }
    Ok(found)
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let read = fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut paths = read
        .map(|e| Ok(e?.path()))
        .collect::<Result<Vec<_>, Failure>>()?;
    paths.sort();
    Ok(paths)
}

/// Recorded tensors whose elements lie in the order of other axes than their shape says: operation, tensor, the axes in the
/// order of storage. The recording script hands these to its writer as transposed views, which stores them as they lie.
const STORED_ASKEW: [(&str, &str, [usize; 4]); 1] = [("scatter_along_axis", "in.i", [0, 2, 3, 1])];

/// A recorded tensor with its elements where its shape says.
fn straight(op: &str, key: &str, tensor: Tensor) -> Result<Tensor, Failure> {
    let row = STORED_ASKEW.iter().find(|(o, k, _)| (*o, *k) == (op, key));
    let Some((_, _, order)) = row.filter(|(_, _, order)| order.len() == tensor.shape.len()) else {
        return Ok(tensor);
    };
    let stored: Vec<usize> = order.iter().map(|&a| tensor.shape[a]).collect();
    let step = strides(&stored);
    let mut out = TensorMut::zeros(tensor.dtype, &tensor.shape)?;
    for i in 0..out.len() {
        let at = unravel(i, &tensor.shape);
        let place = order.iter().zip(&step).map(|(&a, s)| at[a] * s).sum();
        out.set(i, tensor.get(place));
    }
    Ok(out.finish())
}

/// The tensors of a recording by their part in the call.
#[derive(Default)]
struct Record {
    inputs: NamedTensors,
    states: NamedTensors,
    outputs: NamedTensors,
    after: NamedTensors,
}

impl Record {
    fn read(op: &str, path: &Path) -> Result<Self, Failure> {
        let mut record = Self::default();
        for (key, tensor) in tensors::read(path)? {
            let (part, name) = key
                .split_once('.')
                .ok_or_else(|| format!("{key:?} has no part"))?;
            let list = match part {
                "in" => &mut record.inputs,
                "state" => &mut record.states,
                "out" => &mut record.outputs,
                "after" => &mut record.after,
                _ => return Err(format!("{key:?} is of no known part").into()),
            };
            let tensor = straight(op, &key, tensor)?;
            list.push((name.to_owned(), tensor));
        }
        Ok(record)
    }
}

/// Repeats one call, and gives the distance of the worst element, in parts of what is allowed.
fn replay(op: &str, asset: &Path, binary: Option<&Binary>) -> Result<f64, Failure> {
    let record = Record::read(op, &asset.with_extension("safetensors"))?;
    let name = asset.file_stem().unwrap_or_default().to_string_lossy();
    let case = Case { op, name: &name };
    match Callee::open(asset, binary)? {
        Callee::Module(module) => replay_here(case, &record, &module),
        command => {
            let results = command.call("main", &record.inputs, &record.states)?;
            compare(case, &record, &results, By::Plan)
        }
    }
}

/// By exact plans with composites whole and with their bodies, by a fast plan and by the interpreter.
fn replay_here(case: Case<'_>, record: &Record, module: &Arc<Module>) -> Result<f64, Failure> {
    if composites().any(|name| name == case.op) && !runs_whole(case.op, module)? {
        return Err("it does not run whole".into());
    }
    let mut bodies = PlanOptions::default();
    bodies.whole_composites = false;
    let mut worst: f64 = 0.0;
    let mut fast = PlanOptions::default();
    fast.precision = Precision::Fast;
    let plans = [
        ("whole", By::Plan, PlanOptions::default()),
        ("by bodies", By::Plan, bodies),
        ("fast", By::FastPlan, fast),
    ];
    for (how, by, options) in plans {
        let mut function = Function::planned(module.clone(), "main", 1, &options)?;
        let results = function.call(&record.inputs, &record.states);
        let distance = compare(case, record, &results?, by);
        worst = worst.max(distance.map_err(|e| format!("{how}, {e}"))?);
        if how == "whole" {
            let results = function.interpreted().call(&record.inputs, &record.states);
            let distance = compare(case, record, &results?, By::Interpreter);
            worst = worst.max(distance.map_err(|e| format!("interpreted, {e}"))?);
        }
    }
    Ok(worst)
}

/// Whether the function of a composite's case becomes one with the operation of that name.
fn runs_whole(op: &str, module: &Module) -> Result<bool, Failure> {
    let main = module
        .graph("main")
        .ok_or("there is no function \"main\"")?;
    let flat = flatten(module, main, true)?;
    Ok(flat.body.nodes.iter().any(|node| node.op.name() == op))
}

fn compare(case: Case<'_>, record: &Record, results: &Results, by: By) -> Result<f64, Failure> {
    if record.outputs.len() != results.outputs.len() {
        return Err(format!(
            "{} results, recorded {}",
            results.outputs.len(),
            record.outputs.len()
        )
        .into());
    }
    let pairs = [
        (&record.outputs, &results.outputs),
        (&record.after, &results.states),
    ];
    let mut worst: f64 = 0.0;
    for (expected, computed) in pairs {
        for (name, want) in expected {
            let got = computed.iter().find(|(n, _)| n == name);
            let (_, got) = got.ok_or_else(|| format!("there is no result {name:?}"))?;
            worst = worst.max(distance(Bound::of(case, want, by), name, got, want)?);
        }
    }
    Ok(worst)
}

/// The worst distance of an element of one result, in parts of what is allowed; an error where that is above 1.
fn distance(bound: Bound, name: &str, got: &Tensor, want: &Tensor) -> Result<f64, Failure> {
    if (got.dtype, &got.shape) != (want.dtype, &want.shape) {
        return Err(format!("{name} is {}, recorded {}", got.ty(), want.ty()).into());
    }
    let mut wrong = Vec::new();
    let mut worst: f64 = 0.0;
    for (i, (x, y)) in got.scalars().zip(want.scalars()).enumerate() {
        let d = bound.distance(x, y);
        worst = worst.max(d);
        if d > 1.0 {
            wrong.push(format!("[{i}] {x:?}, recorded {y:?}"));
        }
    }
    if wrong.is_empty() {
        return Ok(worst);
    }
    let total = wrong.len();
    wrong.truncate(4);
    Err(format!(
        "{name}: {total} of {} elements: {}",
        got.len(),
        wrong.join("; ")
    )
    .into())
}
