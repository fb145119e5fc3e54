//! Recorded conversations: `NAME.safetensors` with `call<i>.input_ids`, `call<i>.logits` and `state.<name>`.

use std::fs;
use std::path::Path;

use half::f16;
use safetensors::{Dtype, SafeTensors};

use crate::tally::Failure;

/// One call: tokens in, a row of logits for each.
pub(crate) struct Call {
    pub(crate) tokens: Vec<u32>,
    pub(crate) logits: Vec<f32>,
}

impl Call {
    /// Entries of a row of logits.
    pub(crate) fn vocab(&self) -> usize {
        self.logits.len() / self.tokens.len().max(1)
    }
}

/// One conversation.
pub(crate) struct Record {
    /// The precision of the model, by torch's name.
    pub(crate) precision: String,
    pub(crate) calls: Vec<Call>,
    /// The states after the last call: name, shape, values.
    pub(crate) states: Vec<(String, Vec<usize>, Vec<f32>)>,
}

/// Reads a recording.
pub(crate) fn read(path: &Path) -> Result<Record, Failure> {
    let bytes = fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let (_, header) = SafeTensors::read_metadata(&bytes)?;
    let shape = header
        .metadata()
        .as_ref()
        .and_then(|m| m.get("shape"))
        .ok_or("the recording has no shape")?;
    let shape: serde_json::Value = serde_json::from_str(shape)?;
    let precision = shape["dtype"]
        .as_str()
        .ok_or("the shape of the recording has no dtype")?
        .to_owned();
    let tensors = SafeTensors::deserialize(&bytes)?;
    let mut calls = Vec::new();
    while let Ok(ids) = tensors.tensor(&format!("call{}.input_ids", calls.len())) {
        let logits = tensors.tensor(&format!("call{}.logits", calls.len()))?;
        calls.push(Call {
            tokens: numbers(ids.data(), u32::from_le_bytes),
            logits: floats(&logits)?,
        });
    }
    let mut states = Vec::new();
    for (name, tensor) in tensors.tensors() {
        if let Some(name) = name.strip_prefix("state.") {
            states.push((name.to_owned(), tensor.shape().to_vec(), floats(&tensor)?));
        }
    }
    Ok(Record {
        precision,
        calls,
        states,
    })
}

fn floats(tensor: &safetensors::tensor::TensorView<'_>) -> Result<Vec<f32>, Failure> {
    match tensor.dtype() {
        Dtype::F32 => Ok(numbers(tensor.data(), f32::from_le_bytes)),
        other => Err(format!("the recording holds {other:?}, not F32").into()),
    }
}

/// Four-byte numbers.
pub(crate) fn numbers<T>(data: &[u8], one: fn([u8; 4]) -> T) -> Vec<T> {
    data.as_chunks::<4>().0.iter().map(|&b| one(b)).collect()
}

/// f16 numbers, widened.
pub(crate) fn halves(data: &[u8]) -> Vec<f32> {
    let pairs = data.as_chunks::<2>().0.iter();
    pairs.map(|&b| f16::from_le_bytes(b).to_f32()).collect()
}
