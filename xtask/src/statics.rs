//! `cargo xtask conformance static DIR`: recorded calls of bundles whose functions have fixed shapes (contract B §5.5).
//!
//! `DIR/NAME/` is a bundle, `DIR/NAME.safetensors` its recording: `functions` in the metadata names the function of every call,
//! `call<i>.in.<name>` and `call<i>.out.<name>` are its tensors (`ids` those of the `gather_embeddings_<q>` before it),
//! `embedding_table` what `load_embeddings` gives, `state.<name>` the states after the last call.

use std::fs;
use std::path::{Path, PathBuf};

use russet::bundle::{DirectorySource, ModelBundle};
use russet::tensors::{self, NamedTensors};
use russet_graph::tensor::Tensor;
use russet_graph::types::DType;
use safetensors::SafeTensors;

use crate::caller::{Binary, Callee};
use crate::compare::{Distance, Tolerance, error};
use crate::tally::{Failure, Tally, chain};

/// Replays every bundle of a folder that has a recording.
pub(crate) fn replay_all(folder: &Path, binary: Option<&Binary>) -> Result<Tally, Failure> {
    let mut tally = Tally::default();
    let entries = fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut bundles = entries
        .map(|e| Ok(e?.path()))
        .collect::<Result<Vec<PathBuf>, Failure>>()?;
    bundles.retain(|p| p.join("metadata.json").is_file());
    bundles.sort();
    println!(
        "{:<12} {:<20} {:>10} {:>10} {:>10}",
        "bundle", "call", "worst", "1-cosine", "argmax"
    );
    for bundle in bundles {
        if let Err(failure) = replay(&bundle, binary, &mut tally) {
            println!("{}: {}", bundle.display(), chain(&*failure));
            tally.count(false);
        }
    }
    Ok(tally)
}

/// A recording, and what of a bundle repeats it.
struct Replay<'a> {
    bundle: String,
    asset: Callee<'a>,
    record: NamedTensors,
    tolerance: Tolerance,
}

fn replay(bundle: &Path, binary: Option<&Binary>, tally: &mut Tally) -> Result<(), Failure> {
    let path = bundle.with_extension("safetensors");
    let file = ModelBundle::read(&DirectorySource::new(bundle))?
        .asset("main")?
        .to_owned();
    let replay = Replay {
        bundle: bundle
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned(),
        asset: Callee::open(&bundle.join(file), binary)?,
        record: tensors::read(&path)?,
        tolerance: Tolerance::of("float16").ok_or("there is no tolerance for float16")?,
    };
    let table = replay
        .asset
        .call("load_embeddings", &Vec::new(), &Vec::new())?;
    let table = named(&table.outputs, "embedding_table")?.clone();
    tally.count(replay.report(
        "load_embeddings",
        &table,
        replay.recorded("embedding_table")?,
    )?);
    let mut states = NamedTensors::new();
    for (index, name) in functions(&path)?.iter().enumerate() {
        states = replay.call(index, name, &table, &states, tally)?;
    }
    for (name, state) in &states {
        let passed = replay.report(name, state, replay.recorded(&format!("state.{name}"))?)?;
        tally.count(passed);
    }
    Ok(())
}

/// The functions of the calls, from the metadata of the recording.
fn functions(path: &Path) -> Result<Vec<String>, Failure> {
    let bytes = fs::read(path)?;
    let (_, header) = SafeTensors::read_metadata(&bytes)?;
    let metadata = header.metadata().as_ref();
    let list = metadata
        .and_then(|m| m.get("functions"))
        .ok_or("the recording names no functions")?;
    Ok(serde_json::from_str(list)?)
}

fn named<'a>(tensors: &'a NamedTensors, name: &str) -> Result<&'a Tensor, Failure> {
    let found = tensors.iter().find(|(n, _)| n == name);
    Ok(found
        .map(|(_, t)| t)
        .ok_or_else(|| format!("there is no tensor {name:?}"))?)
}

impl Replay<'_> {
    fn recorded(&self, name: &str) -> Result<&Tensor, Failure> {
        named(&self.record, name)
    }

    /// The recorded tensors whose names begin with `prefix`, without it.
    fn part(&self, prefix: &str) -> NamedTensors {
        let cut = |(n, t): &(String, Tensor)| Some((n.strip_prefix(prefix)?.to_owned(), t.clone()));
        self.record.iter().filter_map(cut).collect()
    }

    /// Repeats a call with the gathering before it, and gives the states after it.
    fn call(
        &self,
        index: usize,
        name: &str,
        table: &Tensor,
        states: &NamedTensors,
        tally: &mut Tally,
    ) -> Result<NamedTensors, Failure> {
        let mut inputs = self.part(&format!("call{index}.in."));
        let queries = name.rsplit('_').next().unwrap_or_default();
        let ids = named(&inputs, "ids")?.clone();
        inputs.retain(|(n, _)| n != "ids");
        let table = ("embedding_table".to_owned(), table.clone());
        let gather = vec![("in_new_token_ids".to_owned(), ids), table.clone()];
        let gathering = format!("gather_embeddings_{queries}");
        let rows = self.asset.call(&gathering, &gather, &Vec::new())?;
        let rows = named(&rows.outputs, "gathered_embeddings")?;
        tally.count(self.report(&gathering, rows, named(&inputs, "transformer_input")?)?);
        inputs.push(table);
        let results = self.asset.call(name, &inputs, states)?;
        for (output, recorded) in self.part(&format!("call{index}.out.")) {
            tally.count(self.report(name, named(&results.outputs, &output)?, &recorded)?);
        }
        Ok(results.states)
    }

    /// Prints how far a result is from its recording and says whether that is near enough; integers are equal.
    fn report(&self, call: &str, got: &Tensor, want: &Tensor) -> Result<bool, Failure> {
        if (got.dtype, &got.shape) != (want.dtype, &want.shape) {
            return Err(format!("{call}: {}, recorded {}", got.ty(), want.ty()).into());
        }
        let floats = |t: &Tensor| t.floats().into_iter().map(|v| v as f32).collect::<Vec<_>>();
        let (computed, recorded) = (floats(got), floats(want));
        let mut distance = Distance::NONE;
        if call.starts_with("extend") {
            let width = got.shape.last().copied().unwrap_or(1).max(1);
            let rows = computed.chunks(width).zip(recorded.chunks(width));
            rows.for_each(|(a, b)| distance.row(a, b));
        } else {
            distance.error = error(&computed, &recorded);
        }
        let exact = got.dtype == DType::I8 && got != want;
        let passed = distance.within(self.tolerance) && !exact;
        println!(
            "{:<12} {call:<20} {:>10.3e} {:>10.2e} {:>10}{}",
            self.bundle,
            distance.error,
            1.0 - distance.cosine,
            format!("{}/{}", distance.rows - distance.other, distance.rows),
            if passed { "" } else { "  FAILED" }
        );
        Ok(passed)
    }
}
