//! Weights by the part they play, from the tensors of a file.

use std::cell::RefCell;
use std::collections::HashSet;
use std::sync::Arc;

use half::{bf16, f16};
use russet_graph::graph::{ConstantData, Storage};
use russet_graph::types::{DType, TensorType};
use russet_kernels::convert::convert;
use russet_kernels::elem::Elem;
use russet_kernels::mem::{SharedBytes, bytes_of};

use super::{CheckpointError, Result};
use crate::gguf::{Decoding, Gguf, Problem, TensorInfo};

/// A weight of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LayerPart {
    AttentionNorm,
    Query,
    Key,
    Value,
    AttentionOut,
    MlpNorm,
    Gate,
    Up,
    Down,
}

/// A weight of a decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Embedding,
    Layer(usize, LayerPart),
    Norm,
    Head,
}

impl LayerPart {
    const fn gguf_name(self) -> &'static str {
        match self {
            Self::AttentionNorm => "attn_norm",
            Self::Query => "attn_q",
            Self::Key => "attn_k",
            Self::Value => "attn_v",
            Self::AttentionOut => "attn_output",
            Self::MlpNorm => "ffn_norm",
            Self::Gate => "ffn_gate",
            Self::Up => "ffn_up",
            Self::Down => "ffn_down",
        }
    }
}

impl Part {
    /// The name of the tensor in a GGUF file.
    pub(super) fn gguf_name(self) -> String {
        match self {
            Self::Embedding => "token_embd.weight".into(),
            Self::Layer(layer, part) => format!("blk.{layer}.{}.weight", part.gguf_name()),
            Self::Norm => "output_norm.weight".into(),
            Self::Head => "output.weight".into(),
        }
    }
}

/// Where weights come from.
pub(super) trait Weights {
    /// The weight that plays `part`, of this shape, decoding to `dtype`.
    fn get(&self, part: Part, shape: &[usize], dtype: DType) -> Result<ConstantData>;
}

/// The tensors of a GGUF file, with a note of those that were asked for.
pub(super) struct GgufWeights<'a> {
    file: &'a Gguf,
    used: RefCell<HashSet<Arc<str>>>,
}

impl<'a> GgufWeights<'a> {
    pub(super) fn new(file: &'a Gguf) -> Self {
        Self {
            file,
            used: RefCell::default(),
        }
    }

    /// Fails where a tensor was never asked for: it would have changed the results.
    pub(super) fn all_used(&self) -> Result<()> {
        let used = self.used.borrow();
        let unused = self
            .file
            .tensors()
            .iter()
            .find(|t| !used.contains(t.name()));
        unused.map_or(Ok(()), |t| {
            Err(CheckpointError::Unused(t.name().to_string()))
        })
    }

    fn storage(&self, tensor: &TensorInfo, dtype: DType) -> Result<Storage> {
        let unknown = || tensor.error(Problem::UnknownType(tensor.kind().to_string()));
        let data = self.file.data(tensor)?;
        match tensor.kind().decoding().ok_or_else(unknown)? {
            Decoding::Blocks(format) => Ok(Storage::Blocks(format, data)),
            Decoding::Dense(from) if from == dtype => Ok(Storage::Dense(data)),
            Decoding::Dense(from) => Ok(Storage::Dense(
                converted(&data, from, dtype).ok_or_else(unknown)?,
            )),
        }
    }
}

impl Weights for GgufWeights<'_> {
    fn get(&self, part: Part, shape: &[usize], dtype: DType) -> Result<ConstantData> {
        let name = part.gguf_name();
        let missing = || self.file.metadata().error(&name, Problem::Missing);
        let tensor = self.file.tensor(&name).ok_or_else(missing)?;
        if !tensor.shape().eq(shape.iter().map(|&d| d as u64)) {
            let got: Vec<u64> = tensor.shape().collect();
            return Err(tensor
                .error(Problem::Value(format!(
                    "has shape {got:?} where {shape:?} is needed"
                )))
                .into());
        }
        self.used.borrow_mut().insert(tensor.name().clone());
        let data = ConstantData {
            ty: TensorType::fixed(dtype, shape),
            storage: self.storage(tensor, dtype)?,
        };
        match data.problem() {
            Some(problem) => Err(tensor.error(Problem::Value(problem)).into()),
            None => Ok(data),
        }
    }
}

/// Plain numbers rounded to another type: norms, which files keep in f32, and odd matrices. `None` for other than floats.
fn converted(data: &[u8], from: DType, to: DType) -> Option<SharedBytes> {
    let wide: Vec<f32> = match from {
        DType::F32 => data
            .as_chunks()
            .0
            .iter()
            .map(|&b| f32::from_le_bytes(b))
            .collect(),
        DType::F16 => data
            .as_chunks()
            .0
            .iter()
            .map(|&b| f16::from_le_bytes(b).to_f32())
            .collect(),
        DType::BF16 => data
            .as_chunks()
            .0
            .iter()
            .map(|&b| bf16::from_le_bytes(b).to_f32())
            .collect(),
        _ => return None,
    };
    match to {
        DType::F32 => Some(narrowed::<f32>(&wide)),
        DType::F16 => Some(narrowed::<f16>(&wide)),
        DType::BF16 => Some(narrowed::<bf16>(&wide)),
        _ => None,
    }
}

fn narrowed<T: Elem>(wide: &[f32]) -> SharedBytes {
    let mut out = vec![T::ZERO; wide.len()];
    convert(wide, &mut out);
    SharedBytes::from_vec(bytes_of(&out).to_vec())
}
