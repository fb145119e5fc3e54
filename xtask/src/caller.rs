//! Who runs a recorded call: the library in this process, or the built command in one of its own.
//!
//! The command gets the call as anybody would give it: a file of tensors in, a file of tensors out. A call that fails must leave no
//! file behind.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::Arc;

use russet::tensors::{self, NamedTensors};
use russet::{Function, Results};
use russet_graph::graph::Module;
use russet_graph::tensor::Tensor;

use crate::tally::Failure;

/// The command under test, and the folder for its files.
#[derive(Debug)]
pub(crate) struct Binary {
    path: PathBuf,
    folder: PathBuf,
}

impl Binary {
    /// The command at a path; its files go to a folder that is removed with this value.
    pub(crate) fn new(path: &Path) -> Result<Self, Failure> {
        let path = fs::canonicalize(path).map_err(|e| format!("{}: {e}", path.display()))?;
        let folder = std::env::temp_dir().join(format!("russet-calls-{}", process::id()));
        fs::create_dir_all(&folder)?;
        Ok(Self { path, folder })
    }

    /// `russet call`: one function of an asset.
    fn call(
        &self,
        asset: &Path,
        function: &str,
        inputs: &NamedTensors,
        states: &NamedTensors,
    ) -> Result<Results, Failure> {
        let given = self.folder.join("call.safetensors");
        let result = self.folder.join("result.safetensors");
        let inputs = labelled("in", inputs).chain(labelled("state", states));
        tensors::write(&given, &inputs.collect::<NamedTensors>())?;
        let mut command = Command::new(&self.path);
        command.arg("call").arg(asset);
        command.args(["--function", function, "--threads", "1"]);
        command.arg("--in").arg(&given).arg("--out").arg(&result);
        let done = command.output()?;
        if !done.status.success() {
            let left = result.exists().then_some(", leaving a file");
            let said = String::from_utf8_lossy(&done.stderr);
            return Err(format!("{}{}: {}", done.status, left.unwrap_or(""), said.trim()).into());
        }
        let written = tensors::read(&result)?;
        fs::remove_file(&result)?;
        Ok(parted(written))
    }
}

impl Drop for Binary {
    fn drop(&mut self) {
        // Nothing depends on it: what is left lies in the folder for temporary files.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Tensors under the names that a file of a call has for them.
fn labelled(part: &str, tensors: &NamedTensors) -> impl Iterator<Item = (String, Tensor)> {
    let label = move |(name, tensor): &(String, Tensor)| (format!("{part}.{name}"), tensor.clone());
    tensors.iter().map(label)
}

/// Outputs and states of a file of results.
fn parted(tensors: NamedTensors) -> Results {
    let mut results = Results::default();
    for (name, tensor) in tensors {
        match name.strip_prefix("state.") {
            Some(state) => results.states.push((state.to_owned(), tensor)),
            None => results.outputs.push((name, tensor)),
        }
    }
    results
}

/// An asset whose functions are called.
#[derive(Debug)]
pub(crate) enum Callee<'a> {
    /// By the library.
    Module(Arc<Module>),
    /// By the command.
    Command(&'a Binary, PathBuf),
}

impl<'a> Callee<'a> {
    /// An asset, opened where the library runs it.
    pub(crate) fn open(asset: &Path, binary: Option<&'a Binary>) -> Result<Self, Failure> {
        Ok(match binary {
            Some(binary) => Self::Command(binary, asset.into()),
            None => Self::Module(Arc::new(russet::open_module(asset)?)),
        })
    }

    /// Calls a function.
    pub(crate) fn call(
        &self,
        function: &str,
        inputs: &NamedTensors,
        states: &NamedTensors,
    ) -> Result<Results, Failure> {
        match self {
            Self::Module(module) => {
                Ok(Function::new(module.clone(), function, 1)?.call(inputs, states)?)
            }
            Self::Command(binary, asset) => binary.call(asset, function, inputs, states),
        }
    }
}
