//! What can be wrong with a GGUF file, and where.

use std::fmt;

use thiserror::Error;

/// The result of a reading step.
pub type Result<T> = std::result::Result<T, GgufError>;

/// A part of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Place {
    /// Magic number, version and counts.
    Header,
    /// A pair of the metadata whose key is not known yet, by its number.
    Pair(u64),
    /// A pair of the metadata, by its key.
    Key(String),
    /// The description of a tensor whose name is not known yet, by its number.
    TensorNumber(u64),
    /// A tensor, by its name.
    Tensor(String),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header => f.write_str("header"),
            Self::Pair(number) => write!(f, "metadata pair {number}"),
            Self::Key(key) => write!(f, "key {key:?}"),
            Self::TensorNumber(number) => write!(f, "tensor {number}"),
            Self::Tensor(name) => write!(f, "tensor {name:?}"),
        }
    }
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Problem {
    /// The first four bytes are not `GGUF`.
    #[error("this is not a GGUF file")]
    Magic,
    /// A version this reader does not know.
    #[error("version {0} of the format (known: 2 and 3)")]
    Version(u32),
    /// The numbers are stored most significant byte first.
    #[error("this is a big-endian file; only little-endian files are read")]
    BigEndian,
    /// The bytes ended inside something.
    #[error("the file ends inside {0}")]
    Truncated(&'static str),
    /// A count or length that the rest of the file cannot back, or that is over a limit of the format.
    #[error("{what}: {value} is more than {limit}")]
    Limit {
        /// What is counted.
        what: &'static str,
        /// The value in the file.
        value: u64,
        /// The most that would be accepted.
        limit: u64,
    },
    /// Text that is not UTF-8.
    #[error("{0} is not UTF-8")]
    Text(&'static str),
    /// A kind of value that does not exist.
    #[error("{0} is not a kind of value")]
    ValueKind(u32),
    /// A truth value that is neither 0 nor 1.
    #[error("{0} is not a truth value")]
    Bool(u8),
    /// Arrays of arrays, too deep.
    #[error("arrays are nested more than {0} deep")]
    Depth(usize),
    /// A key or a tensor that is there already.
    #[error("is in the file twice")]
    Twice,
    /// A key that must be there.
    #[error("is missing")]
    Missing,
    /// A value of another type than the key has.
    #[error("is {got}, not {expected}")]
    Type {
        /// What is there.
        got: String,
        /// What the key needs.
        expected: &'static str,
    },
    /// A value the key cannot have.
    #[error("{0}")]
    Value(String),
    /// An alignment that is not a power of two, or absurd.
    #[error("an alignment of {0} bytes")]
    Alignment(u64),
    /// Extents whose product cannot be counted.
    #[error("extents {0:?} are too large")]
    Extents(Vec<u64>),
    /// A row that is not whole blocks.
    #[error("rows of {row} elements are not whole blocks of {kind}")]
    Row {
        /// Elements of a row.
        row: u64,
        /// The tensor type.
        kind: String,
    },
    /// Data that starts off the alignment.
    #[error("data at offset {offset} is not aligned to {alignment}")]
    Misaligned {
        /// The offset in the data section.
        offset: u64,
        /// What it should be a multiple of.
        alignment: usize,
    },
    /// Data that lies outside the file.
    #[error("its data reaches beyond the {file} bytes of the file")]
    OutsideFile {
        /// Size of the file.
        file: usize,
    },
    /// A tensor type that is not known or cannot be decoded.
    #[error("stored as {0}, which cannot be decoded here")]
    UnknownType(String),
}

/// An error in a GGUF file, with its place.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("GGUF, {place} at byte {offset}: {problem}")]
pub struct GgufError {
    /// Bytes from the start of the file.
    pub offset: usize,
    /// The key or tensor.
    pub place: Place,
    /// What is wrong.
    pub problem: Problem,
}

impl GgufError {
    /// An error at a place.
    pub fn new(offset: usize, place: Place, problem: Problem) -> Self {
        Self {
            offset,
            place,
            problem,
        }
    }

    /// The same error, placed.
    #[must_use]
    pub(super) fn within(mut self, place: impl FnOnce() -> Place) -> Self {
        self.place = place();
        self
    }
}
