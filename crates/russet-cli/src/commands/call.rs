//! `russet call ASSET --function NAME --in FILE --out FILE`: one function of an asset, run on tensors from files.
//!
//! An input tensor is named like the input (`in.NAME` is the same), a state before the call `state.NAME`; what is called
//! `out.…` is passed over, so that a recorded call can be replayed from its own file. The output file holds every output by its
//! name and every state after the call as `state.NAME`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use russet::Function;
use russet::bundle::{DirectorySource, ModelBundle};
use russet::tensors::{self, NamedTensors};

use crate::args::CallArgs;
use crate::failure::Failure;
use crate::locate::locate;

/// Runs the function and writes what it gives back.
pub(crate) fn call(args: &CallArgs) -> Result<(), Failure> {
    let path = asset(&locate(&args.asset)?)?;
    let (inputs, states) = given(&args.inputs)?;
    let module = russet::open_module(&path)?;
    let threads = args.threads.map_or(0, usize::from);
    let mut function = Function::new(Arc::new(module), &args.function, threads)?;
    let mut results = function.call(&inputs, &states)?;
    let states = results.states.into_iter();
    results
        .outputs
        .extend(states.map(|(name, tensor)| (format!("state.{name}"), tensor)));
    match &args.out {
        Some(file) => Ok(tensors::write(file, &results.outputs)?),
        None => {
            results
                .outputs
                .iter()
                .for_each(|(name, tensor)| println!("{name}: {}", tensor.ty()));
            Ok(())
        }
    }
}

/// The asset itself, or the main one of a bundle.
fn asset(path: &Path) -> Result<PathBuf, Failure> {
    if path.extension().is_some_and(|e| e == "aimodel") {
        return Ok(path.into());
    }
    let bundle = ModelBundle::read(&DirectorySource::new(path)).map_err(russet::Error::from)?;
    let file = bundle.asset("main").map_err(russet::Error::from)?;
    Ok(path.join(file))
}

/// Inputs and states from all files.
fn given(files: &[String]) -> Result<(NamedTensors, NamedTensors), Failure> {
    let (mut inputs, mut states) = (Vec::new(), Vec::new());
    for file in files {
        let (name, path) = match file.split_once('=') {
            Some((name, path)) => (Some(name), path),
            None => (None, &**file),
        };
        for (key, tensor) in tensors::read(Path::new(path))? {
            let key = name.unwrap_or(&key);
            if let Some(state) = key.strip_prefix("state.") {
                states.push((state.to_owned(), tensor));
            } else if !key.starts_with("out.") {
                inputs.push((key.strip_prefix("in.").unwrap_or(key).to_owned(), tensor));
            }
        }
    }
    Ok((inputs, states))
}
