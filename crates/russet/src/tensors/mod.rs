//! Named tensors in files: `.safetensors`, `.npz` (a `.npy` for every tensor) and `.npy` (one tensor without a name).
//!
//! The file's extension says which format it is. Elements are copied, never converted: what a format cannot hold is refused.

mod npy;
mod npz;
mod safetensors;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

use russet_graph::tensor::Tensor;
use russet_graph::types::DType;

use crate::bundle::regular;
use crate::replace::replace;

/// Tensors with their names, in the order of the file. The tensor of a `.npy` has an empty name.
pub type NamedTensors = Vec<(String, Tensor)>;

/// Why tensors cannot be read from a file or written to one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TensorFileError {
    /// The file itself.
    #[error("{}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// An extension that is not one of the three.
    #[error("{}: tensors are read from and written to .safetensors, .npz and .npy", path.display())]
    Format {
        /// The file.
        path: PathBuf,
    },
    /// The content.
    #[error("{}: {problem}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        problem: Problem,
    },
}

/// What is wrong with the content of a file of tensors, or with tensors that are to be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// Not such a file, or a damaged one.
    #[error("not a sound {format} file: {reason}")]
    Damaged {
        /// The format.
        format: &'static str,
        /// What does not fit.
        reason: String,
    },
    /// An element kind of the file that has no counterpart.
    #[error("tensor {name:?} has elements of kind {kind}, which cannot be read")]
    ForeignKind {
        /// The tensor.
        name: String,
        /// The kind, as the format spells it.
        kind: String,
    },
    /// An element kind that the format cannot hold.
    #[error("tensor {name:?} has elements of kind {kind}, which a {format} file cannot hold")]
    Kind {
        /// The format.
        format: &'static str,
        /// The tensor.
        name: String,
        /// Its kind.
        kind: DType,
    },
    /// Several tensors for a file that holds one.
    #[error("a .npy file holds one tensor, not {0}; use .npz or .safetensors")]
    Several(usize),
}

impl Problem {
    fn damaged(format: &'static str, reason: &dyn ToString) -> Self {
        Self::Damaged {
            format,
            reason: reason.to_string(),
        }
    }
}

type Writer = fn(&[(String, Tensor)]) -> Result<Vec<u8>, Problem>;

/// A format: its extension, how it is read and how it is written.
struct Format {
    extension: &'static str,
    read: fn(&[u8]) -> Result<NamedTensors, Problem>,
    write: Writer,
}

const FORMATS: [Format; 3] = [
    Format {
        extension: "safetensors",
        read: safetensors::read,
        write: |tensors| safetensors::write(tensors, None),
    },
    Format {
        extension: "npz",
        read: npz::read,
        write: npz::write,
    },
    Format {
        extension: "npy",
        read: |bytes| Ok(vec![(String::new(), npy::read("", bytes)?)]),
        write: |tensors| match tensors {
            [(name, tensor)] => npy::write(name, tensor),
            many => Err(Problem::Several(many.len())),
        },
    },
];

fn format(path: &Path) -> Result<&'static Format, TensorFileError> {
    let extension = path.extension().and_then(|e| e.to_str());
    FORMATS
        .iter()
        .find(|f| Some(f.extension) == extension)
        .ok_or_else(|| TensorFileError::Format { path: path.into() })
}

/// Reads all tensors of a file. Memory is bounded by a small multiple of what the file unpacks to.
pub fn read(path: &Path) -> Result<NamedTensors, TensorFileError> {
    let format = format(path)?;
    let bytes = regular(path).and_then(|()| fs::read(path));
    let bytes = bytes.map_err(|source| TensorFileError::Io {
        path: path.into(),
        source,
    })?;
    (format.read)(&bytes).map_err(|problem| TensorFileError::Content {
        path: path.into(),
        problem,
    })
}

/// Free text that a `.safetensors` file keeps beside its tensors.
pub(crate) type Notes = HashMap<String, String>;

/// The tensors and the notes of the bytes of a `.safetensors` file.
pub(crate) fn read_noted(bytes: &[u8]) -> Result<(NamedTensors, Notes), Problem> {
    Ok((safetensors::read(bytes)?, safetensors::notes(bytes)?))
}

/// The bytes of a `.safetensors` file with tensors and notes.
pub(crate) fn write_noted(tensors: &[(String, Tensor)], notes: Notes) -> Result<Vec<u8>, Problem> {
    safetensors::write(tensors, Some(notes))
}

/// The bytes that the name of a file has at most, on the systems there are.
const LONGEST_NAME: usize = 255;

/// Says whether tensors can be written to a path, as far as that shows without doing it: its extension, its folder.
///
/// # Errors
/// The error that [`write()`] would end with.
pub fn check_writable(path: &Path) -> Result<(), TensorFileError> {
    format(path)?;
    check_place(path)
}

/// Says whether a file could be at a path.
pub(crate) fn check_place(path: &Path) -> Result<(), TensorFileError> {
    let folder = path.parent().filter(|f| !f.as_os_str().is_empty());
    let kind = folder.map_or(Ok(true), |f| fs::metadata(f).map(|m| m.is_dir()));
    let fits = match kind {
        Ok(true) if path.file_name().is_none_or(|n| n.len() > LONGEST_NAME) => {
            Err(io::ErrorKind::InvalidFilename.into())
        }
        Ok(true) if path.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        Ok(true) => Ok(()),
        Ok(false) => Err(io::ErrorKind::NotADirectory.into()),
        Err(error) => Err(error),
    };
    fits.map_err(|source| TensorFileError::Io {
        path: path.into(),
        source,
    })
}

/// Writes tensors to a file, replacing it. When that fails, what was there before is still there.
pub fn write(path: &Path, tensors: &[(String, Tensor)]) -> Result<(), TensorFileError> {
    let bytes = (format(path)?.write)(tensors).map_err(|problem| TensorFileError::Content {
        path: path.into(),
        problem,
    })?;
    replace(path, &bytes).map_err(|source| TensorFileError::Io {
        path: path.into(),
        source,
    })
}

#[cfg(test)]
mod tests;
