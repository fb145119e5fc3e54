//! `russet call ASSET --function NAME --in FILE --out FILE`: one function of an asset, run on tensors from files.
//!
//! An input tensor is named like the input (`in.NAME` is the same), a state before the call `state.NAME`; what is called
//! `out.…` or `after.…` is passed over, so that a recorded call can be repeated from its own file. The output file holds every
//! output by its name and every state after the call as `state.NAME`; `--states` takes these for the next call.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use russet::Function;
use russet::tensors::{self, NamedTensors};

use super::assets::Assets;
use crate::args::CallArgs;
use crate::failure::Failure;
use crate::locate::locate;

/// What the names of tensors begin with that are the results of a recorded call.
const RECORDED: [&str; 2] = ["out.", "after."];

/// Runs the function and writes what it gives back.
pub(crate) fn call(args: &CallArgs) -> Result<(), Failure> {
    if let Some(file) = &args.out {
        tensors::check_writable(file)?;
    }
    let asset = Assets::main(&locate(&args.asset)?)?;
    let (inputs, states) = given(args)?;
    let folder = asset.folders.first().map_or("", String::as_str);
    let module = russet::open_module_in(&*asset.files, folder)?;
    let threads = args.threads.map_or(0, usize::from);
    let mut function = Function::new(Arc::new(module), &args.function, threads)?;
    let results = function.call(&inputs, &states)?;
    let mut named = results.outputs;
    let states = results.states.into_iter();
    named.extend(states.map(|(name, tensor)| (format!("state.{name}"), tensor)));
    match &args.out {
        Some(file) => Ok(tensors::write(file, &named)?),
        None => {
            let mut out = io::stdout().lock();
            let mut types = named.iter();
            types
                .try_for_each(|(name, tensor)| writeln!(out, "{name}: {}", tensor.ty()))
                .map_err(Failure::write)
        }
    }
}

/// Inputs and states from all files.
fn given(args: &CallArgs) -> Result<(NamedTensors, NamedTensors), Failure> {
    let (mut inputs, mut states) = (Vec::new(), Vec::new());
    for file in &args.inputs {
        let (name, path) = match file.split_once('=') {
            Some((name, path)) if !Path::new(file).exists() => (Some(name), path),
            _ => (None, &**file),
        };
        for (key, tensor) in tensors::read(Path::new(path))? {
            let key = name.unwrap_or(&key);
            if let Some(state) = key.strip_prefix("state.") {
                states.push((state.to_owned(), tensor));
            } else if !RECORDED.iter().any(|part| key.starts_with(part)) {
                inputs.push((key.strip_prefix("in.").unwrap_or(key).to_owned(), tensor));
            }
        }
    }
    if let Some(file) = &args.states {
        let held = tensors::read(file)?.into_iter();
        let state = |(key, tensor): (String, _)| Some((key.strip_prefix("state.")?.into(), tensor));
        let before = states.len();
        states.extend(held.filter_map(state));
        if states.len() == before {
            return Err(Failure::NoState(file.clone()));
        }
    }
    Ok((inputs, states))
}
