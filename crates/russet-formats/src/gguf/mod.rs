//! GGUF, versions 2 and 3: one file with metadata, tensors and a tokenizer (the specification is `docs/gguf.md` of ggml).
//!
//! ```text
//! "GGUF"  version  tensor count  pair count | key, kind, value … | name, extents, type, offset … | padding | tensor data
//! ```
//!
//! [`Gguf::read`] walks everything before the tensor data once. Arrays of the metadata (a vocabulary is a megabyte) are
//! kept as bytes and decoded when asked for; tensor data is not touched, only sliced. Counts and lengths of the file are
//! checked against the bytes that are left, so a file cannot ask for more memory than a small multiple of its own size.
//! Every error says at which byte, and in which key or tensor.

mod cursor;
mod error;
mod kind;
mod metadata;
mod tensor;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod tokenizer;

use std::collections::HashMap;
use std::sync::Arc;

use russet_kernels::mem::SharedBytes;

use cursor::Cursor;
pub use error::{GgufError, Place, Problem, Result};
pub use kind::{Decoding, TensorKind};
pub use metadata::{Array, Entry, Metadata, Value, ValueKind};
pub use tensor::TensorInfo;
pub use tokenizer::{GgufTokenizer, TokenKind};

/// Where tensor data starts is a multiple of this unless `general.alignment` says otherwise.
const DEFAULT_ALIGNMENT: u64 = 32;

/// An open file: its metadata and the places of its tensors.
#[derive(Clone, Debug)]
pub struct Gguf {
    bytes: SharedBytes,
    version: u32,
    metadata: Metadata,
    tensors: Vec<TensorInfo>,
    by_name: HashMap<Arc<str>, usize>,
    data_start: usize,
}

impl Gguf {
    /// Reads metadata and tensor places. No tensor data is touched.
    ///
    /// # Errors
    /// A [`GgufError`] that says what is wrong and where.
    pub fn read(bytes: SharedBytes) -> Result<Self> {
        let mut cursor = Cursor::new(&bytes);
        let (version, tensor_count, pair_count) = header(&mut cursor)?;
        let metadata = Metadata::read(&mut cursor, &bytes, pair_count)?;
        let alignment = alignment(&metadata)?;
        let tensors = TensorInfo::read_all(&mut cursor, tensor_count)?;
        let data_start = cursor
            .offset()
            .checked_next_multiple_of(alignment)
            .unwrap_or(usize::MAX);
        tensors
            .iter()
            .try_for_each(|t| t.check(alignment, data_start, bytes.len()))?;
        let by_name = index(&tensors)?;
        Ok(Self {
            version,
            metadata,
            tensors,
            by_name,
            data_start,
            bytes,
        })
    }

    /// The version of the format: 2 or 3.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// What the file says of itself.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// The tensors, in the order of the file.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// The tensor of this name.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.tensors.get(*self.by_name.get(name)?)
    }

    /// The bytes of a tensor of this file, shared.
    ///
    /// # Errors
    /// [`Problem::UnknownType`] where the size cannot be told.
    pub fn data(&self, tensor: &TensorInfo) -> Result<SharedBytes> {
        let range = tensor.range(self.data_start)?;
        self.bytes.slice(range).ok_or_else(|| {
            tensor.error(Problem::OutsideFile {
                file: self.bytes.len(),
            })
        })
    }

    /// The tokenizer of the metadata; `None` where the file has none.
    ///
    /// # Errors
    /// Where a `tokenizer.` key has the wrong type or contradicts another.
    pub fn tokenizer(&self) -> Result<Option<GgufTokenizer>> {
        GgufTokenizer::read(&self.metadata)
    }
}

/// Version, tensor count and pair count.
fn header(cursor: &mut Cursor<'_>) -> Result<(u32, u64, u64)> {
    if cursor.take(4, "the magic number")? != b"GGUF" {
        return Err(GgufError::new(0, Place::Header, Problem::Magic));
    }
    let at = cursor.offset();
    let version = cursor.u32("the version")?;
    let bad = |problem| GgufError::new(at, Place::Header, problem);
    match version {
        2 | 3 => Ok((
            version,
            cursor.u64("the tensor count")?,
            cursor.u64("the pair count")?,
        )),
        v if v.swap_bytes() <= 3 => Err(bad(Problem::BigEndian)),
        v => Err(bad(Problem::Version(v))),
    }
}

fn alignment(metadata: &Metadata) -> Result<usize> {
    let key = "general.alignment";
    let value = metadata.u64(key)?.unwrap_or(DEFAULT_ALIGNMENT);
    let usable = usize::try_from(value)
        .ok()
        .filter(|v| v.is_power_of_two() && *v <= 1 << 30);
    usable.ok_or_else(|| metadata.error(key, Problem::Alignment(value)))
}

fn index(tensors: &[TensorInfo]) -> Result<HashMap<Arc<str>, usize>> {
    let mut by_name = HashMap::with_capacity(tensors.len());
    for (i, tensor) in tensors.iter().enumerate() {
        if by_name.insert(tensor.name().clone(), i).is_some() {
            return Err(tensor.error(Problem::Twice));
        }
    }
    Ok(by_name)
}
