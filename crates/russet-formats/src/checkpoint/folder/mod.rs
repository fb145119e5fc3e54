//! Checkpoints in Hugging Face folders: `config.json` beside `model.safetensors`, or shards of it with an index.

mod config;
mod keys;
mod rope;
#[cfg(test)]
mod tests;
mod weights;

use std::collections::{BTreeSet, HashMap};

use russet_kernels::mem::SharedBytes;
use serde_json::{Map, Value};

use super::{Architecture, Checkpoint, CheckpointError, Options, Result, decoder};
use crate::safetensors::{Safetensors, TensorEntry};
use keys::Keys;
use weights::FolderWeights;

/// The file with the numbers.
pub const CONFIG: &str = "config.json";
/// The file with all weights.
pub const WEIGHTS: &str = "model.safetensors";
/// The file that says which weights are in which file, where there are several.
pub const INDEX: &str = "model.safetensors.index.json";

/// An open folder.
#[derive(Clone, Debug)]
pub struct Folder {
    config: Map<String, Value>,
    files: Vec<(String, Safetensors)>,
    /// The file of each tensor.
    by_name: HashMap<String, usize>,
}

impl Folder {
    /// Reads a config, and the headers of the files that an index names, or of [`WEIGHTS`]; `open` gives the bytes of a file.
    ///
    /// # Errors
    /// Where a file is not what its name says, or a tensor is in two of them or in none; those of `open`.
    pub fn read<E: From<CheckpointError>>(
        config: &[u8],
        index: Option<&[u8]>,
        open: &mut dyn FnMut(&str) -> std::result::Result<SharedBytes, E>,
    ) -> std::result::Result<Self, E> {
        let mut this = Self {
            config: object(CONFIG, config)?,
            files: Vec::new(),
            by_name: HashMap::new(),
        };
        let index = index.map(shards).transpose()?;
        let names = match &index {
            Some(index) => index.iter().map(|(_, file)| file.clone()).collect(),
            None => BTreeSet::from([WEIGHTS.to_owned()]),
        };
        for name in names {
            let bytes = open(&name)?;
            this.add(name, bytes)?;
        }
        for (tensor, file) in index.unwrap_or_default() {
            this.check(&tensor, &file)?;
        }
        Ok(this)
    }

    fn add(&mut self, name: String, bytes: SharedBytes) -> Result<()> {
        let file = Safetensors::read(bytes).map_err(|source| CheckpointError::Safetensors {
            file: name.clone(),
            source,
        })?;
        for (tensor, _) in file.tensors() {
            if self
                .by_name
                .insert(tensor.into(), self.files.len())
                .is_some()
            {
                return Err(CheckpointError::Tensor {
                    file: name,
                    name: tensor.into(),
                    reason: "is in another file as well".into(),
                });
            }
        }
        self.files.push((name, file));
        Ok(())
    }

    fn check(&self, tensor: &str, file: &str) -> Result<()> {
        match self.tensor(tensor) {
            Some((name, ..)) if name == file => Ok(()),
            _ => Err(CheckpointError::Tensor {
                file: file.into(),
                name: tensor.into(),
                reason: format!("is not there, though {INDEX} says so"),
            }),
        }
    }

    /// The tensor of a name, its file, and the name of that.
    fn tensor(&self, name: &str) -> Option<(&str, &Safetensors, &TensorEntry)> {
        let (file, open) = self.files.get(*self.by_name.get(name)?)?;
        Some((file, open, open.tensor(name)?))
    }

    /// Its tensors, by name and in no order.
    pub fn tensors(&self) -> impl Iterator<Item = (&str, &TensorEntry)> {
        self.files.iter().flat_map(|(_, file)| file.tensors())
    }

    /// Bytes of its weights.
    pub fn bytes(&self) -> u64 {
        let entries = self.tensors().map(|(_, t)| t.bytes() as u64);
        entries.sum()
    }
}

fn object(file: &str, bytes: &[u8]) -> Result<Map<String, Value>> {
    serde_json::from_slice(bytes).map_err(|e| CheckpointError::Json {
        file: file.into(),
        reason: e.to_string(),
    })
}

/// Tensors and their files, by an index.
fn shards(bytes: &[u8]) -> Result<Vec<(String, String)>> {
    let index = object(INDEX, bytes)?;
    let wrong = |reason: &str| CheckpointError::Json {
        file: INDEX.into(),
        reason: reason.into(),
    };
    let map = index.get("weight_map").and_then(Value::as_object);
    let map = map.ok_or_else(|| wrong("there is no object weight_map"))?;
    let one = |(tensor, file): (&String, &Value)| {
        let name = file.as_str();
        let name = name.filter(|n| n.ends_with(".safetensors") && !n.contains(['/', '\\']));
        let name = name.ok_or_else(|| {
            wrong(&format!(
                "{tensor:?} is in {file}, which is no file beside it"
            ))
        })?;
        Ok((tensor.clone(), name.to_owned()))
    };
    map.iter().map(one).collect()
}

/// Builds the program of a folder: in f32, whatever its weights are kept in, unless the options say otherwise.
///
/// # Errors
/// Where the architecture is not in the table; where a key or a tensor is missing, contradicts another or is of no known use: a
/// model that would be computed wrongly is refused.
pub fn from_folder(folder: &Folder, options: Options) -> Result<Checkpoint> {
    let outer = Keys::new("", &folder.config, &[]);
    let inner = outer.object("text_config")?;
    let tied = match inner {
        Some(_) => outer.truth("tie_word_embeddings")?,
        None => None,
    };
    if let Some(value) = outer.get("quantization_config") {
        let why = format!("is {value}: weights that were compressed are not read");
        return Err(outer.error("quantization_config", why));
    }
    let model_type = match &inner {
        Some(inner) => inner.text("model_type")?.or(outer.text("model_type")?),
        None => outer.text("model_type")?,
    };
    let model_type = model_type.ok_or_else(|| outer.error("model_type", "is missing"))?;
    let row = Architecture::of_model_type(model_type);
    let row = row.ok_or_else(|| CheckpointError::Architecture(model_type.into()))?;
    let (path, object) = match folder.config.get("text_config").and_then(Value::as_object) {
        Some(object) => ("text_config.", object),
        None => ("", &folder.config),
    };
    let keys = Keys::new(path, object, row.defaults);
    let mut config = config::config(&keys, row, tied, options)?;
    let own_head = weights::has_head(folder)?;
    let said = config.tied;
    config.tied = said && !own_head;
    let weights = FolderWeights::new(folder, &config, row)?;
    if config.tied {
        weights.pass(weights::head_name(folder)?);
    }
    let module = decoder::build(&config, row, &weights)?;
    weights.all_used()?;
    drop(weights);
    Ok(Checkpoint {
        architecture: row,
        config,
        module,
    })
}
