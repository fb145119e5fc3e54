//! `.safetensors`: a JSON header with names, kinds and shapes, then the elements.

use russet_graph::tensor::Tensor;
use russet_graph::types::DType;
use russet_kernels::mem::SharedBytes;
use safetensors::tensor::{Dtype, SafeTensors, TensorView, serialize};

use super::{NamedTensors, Notes, Problem};

const FORMAT: &str = ".safetensors";

/// Kinds that both sides know.
const KINDS: [(Dtype, DType); 18] = [
    (Dtype::BOOL, DType::Bool),
    (Dtype::U8, DType::U8),
    (Dtype::I8, DType::I8),
    (Dtype::U16, DType::U16),
    (Dtype::I16, DType::I16),
    (Dtype::U32, DType::U32),
    (Dtype::I32, DType::I32),
    (Dtype::U64, DType::U64),
    (Dtype::I64, DType::I64),
    (Dtype::F16, DType::F16),
    (Dtype::BF16, DType::BF16),
    (Dtype::F32, DType::F32),
    (Dtype::F64, DType::F64),
    (Dtype::F8_E4M3, DType::F8E4M3),
    (Dtype::F8_E5M2, DType::F8E5M2),
    (Dtype::F8_E8M0, DType::F8E8M0),
    (Dtype::F4, DType::F4E2M1),
    (Dtype::C64, DType::C32),
];

/// The tensors of a file, by name.
pub(super) fn read(bytes: &[u8]) -> Result<NamedTensors, Problem> {
    let file = SafeTensors::deserialize(bytes).map_err(|e| Problem::damaged(FORMAT, &e))?;
    let mut tensors = file.tensors();
    tensors.sort_by(|a, b| a.0.cmp(&b.0));
    let one = |(name, view): (String, TensorView<'_>)| {
        let Some(&(_, dtype)) = KINDS.iter().find(|(d, _)| *d == view.dtype()) else {
            return Err(Problem::ForeignKind {
                name,
                kind: format!("{:?}", view.dtype()),
            });
        };
        let data = SharedBytes::from_vec(view.data().to_vec());
        let tensor = Tensor::new(dtype, view.shape().to_vec(), data);
        Ok((name, tensor.map_err(|e| Problem::damaged(FORMAT, &e))?))
    };
    tensors.into_iter().map(one).collect()
}

/// The free text of a file.
pub(super) fn notes(bytes: &[u8]) -> Result<Notes, Problem> {
    let header = SafeTensors::read_metadata(bytes).map_err(|e| Problem::damaged(FORMAT, &e))?;
    Ok(header.1.metadata().clone().unwrap_or_default())
}

/// The bytes of a file with these tensors and this free text.
pub(super) fn write(
    tensors: &[(String, Tensor)],
    notes: Option<Notes>,
) -> Result<Vec<u8>, Problem> {
    let views = tensors
        .iter()
        .map(|(name, tensor)| Ok((name.clone(), view(name, tensor)?)))
        .collect::<Result<Vec<_>, _>>()?;
    serialize(views, notes).map_err(|e| Problem::damaged(FORMAT, &e))
}

fn view<'a>(name: &str, tensor: &'a Tensor) -> Result<TensorView<'a>, Problem> {
    let Some(&(dtype, _)) = KINDS.iter().find(|(_, d)| *d == tensor.dtype) else {
        return Err(Problem::Kind {
            format: FORMAT,
            name: name.into(),
            kind: tensor.dtype,
        });
    };
    TensorView::new(dtype, tensor.shape.clone(), &tensor.bytes()[..])
        .map_err(|e| Problem::damaged(FORMAT, &e))
}
