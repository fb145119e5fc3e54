//! `cargo xtask conformance coreml-ops DIR`: operations of Core ML, many to a package, against what coremltools computes for them.
//!
//! `DIR/GROUP.mlpackage` holds the cases of a group as one function, an output a case; `GROUP.safetensors` its inputs (`in.<name>`) and
//! what every output should be (`out.<name>`), as `conformance/coreml_ops.py` writes them.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use russet::Function;
use russet::tensors::{self, NamedTensors};
use russet_graph::tensor::Tensor;
use russet_graph::types::DType;

use crate::tally::{Failure, Tally, chain};

/// The largest `|d| / (1 + |x|)` of an element: a few roundings of its kind; integers are exact.
fn allowed(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 2.0e-3,
        DType::F32 => 1.0e-5,
        _ => 0.0,
    }
}

/// Replays every group of a folder.
pub(crate) fn replay_all(folder: &Path) -> Result<Tally, Failure> {
    let mut tally = Tally::default();
    let entries = fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut groups = entries
        .map(|e| Ok(e?.path()))
        .collect::<Result<Vec<PathBuf>, Failure>>()?;
    groups.retain(|p| p.extension().is_some_and(|e| e == "mlpackage"));
    groups.sort();
    for group in groups {
        let before = tally;
        if let Err(failure) = replay(&group, &mut tally) {
            println!("{}: {}", group.display(), chain(&*failure));
            tally.count(false);
        }
        let name = group.file_stem().unwrap_or_default().to_string_lossy();
        let (passed, failed) = (tally.passed - before.passed, tally.failed - before.failed);
        println!("{name:<14} {passed} passed, {failed} failed");
    }
    Ok(tally)
}

fn replay(group: &Path, tally: &mut Tally) -> Result<(), Failure> {
    let record = tensors::read(&group.with_extension("safetensors"))?;
    let named = |part: &str| -> NamedTensors {
        let all = record.iter();
        all.filter_map(|(n, t)| Some((n.strip_prefix(part)?.to_owned(), t.clone())))
            .collect()
    };
    let module = russet::open_module(group)?;
    let mut function = Function::new(Arc::new(module), "main", 0)?;
    let results = function.call(&named("in."), &NamedTensors::new())?.outputs;
    for (name, want) in named("out.") {
        let found = results.iter().find(|(n, _)| *n == name);
        let verdict = found.map_or_else(
            || Some("it is not there".into()),
            |(_, t)| compare(t, &want),
        );
        if let Some(reason) = &verdict {
            println!("  {name}: {reason}");
        }
        tally.count(verdict.is_none());
    }
    Ok(())
}

/// What is wrong with a result, if something is.
fn compare(found: &Tensor, want: &Tensor) -> Option<String> {
    if (found.dtype, &found.shape) != (want.dtype, &want.shape) {
        return Some(format!("it is {}, recorded {}", found.ty(), want.ty()));
    }
    let apart = |(a, b): (f64, f64)| {
        if a == b || (a.is_nan() && b.is_nan()) {
            return 0.0;
        }
        let error = (a - b).abs() / (1.0 + b.abs());
        if error.is_nan() { f64::INFINITY } else { error }
    };
    let pairs = found.floats().into_iter().zip(want.floats());
    let worst = pairs.map(apart).fold(0.0, f64::max);
    (worst > allowed(want.dtype)).then(|| format!("an element is {worst:.2e} from the recorded"))
}
