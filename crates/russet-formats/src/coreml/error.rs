//! What can be wrong with a package, and where.
//!
//! An error names the file and byte, or the function, the operation's position in it, its kind and its name: what somebody needs
//! to find it in the printed program.

use std::fmt;
use std::sync::Arc;

use russet_graph::error::OpError;
use thiserror::Error;

use crate::builder::BuildError;

/// Where in a package something is wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Place {
    /// `Manifest.json`.
    Manifest,
    /// The specification as a whole.
    #[default]
    Model,
    /// The description of inputs and outputs.
    Description,
    /// A byte of a file, from its start.
    File {
        /// The file, as the program calls it.
        name: Arc<str>,
        /// The byte.
        offset: u64,
    },
    /// A function as a whole.
    Function(Arc<str>),
    /// An operation.
    Operation {
        /// The function.
        function: Arc<str>,
        /// Its position in its block, from 0.
        index: usize,
        /// Its kind, such as `conv`.
        kind: Arc<str>,
        /// The name of its first result; empty where it has none.
        name: Arc<str>,
    },
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Manifest => f.write_str("Manifest.json"),
            Self::Model => f.write_str("model"),
            Self::Description => f.write_str("model description"),
            Self::File { name, offset } => write!(f, "{name}, byte {offset}"),
            Self::Function(name) => write!(f, "function {name:?}"),
            Self::Operation {
                function,
                index,
                kind,
                name,
            } => {
                write!(f, "function {function:?}, operation {index} ({kind}")?;
                if !name.is_empty() {
                    write!(f, " {name:?}")?;
                }
                f.write_str(")")
            }
        }
    }
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum Problem {
    /// The bytes are no protobuf message of this kind; says in which field.
    #[error("{0}")]
    Wire(String),
    /// The manifest is no JSON, or names no model.
    #[error("{0}")]
    Manifest(String),
    /// A version this reader does not know.
    #[error("specification version {0} (known: 5 to 10)")]
    Version(i32),
    /// The model is of another kind.
    #[error("the model is no ML Program")]
    NoProgram,
    /// Something is absent.
    #[error("{0} is missing")]
    Missing(String),
    /// An operation that has no meaning here.
    #[error("operation {0:?} is not known")]
    UnknownOperation(Arc<str>),
    /// An argument is of another kind than belongs there.
    #[error("argument {name:?} should be {expected}")]
    Argument {
        /// The argument.
        name: Arc<str>,
        /// What belongs there.
        expected: &'static str,
    },
    /// A name that nothing before has.
    #[error("{0:?} is not defined")]
    Undefined(Arc<str>),
    /// Bytes, or a number, that do not fit.
    #[error("{0}")]
    Value(String),
    /// A result is not what the program declares.
    #[error("{name:?} is declared as {declared}, and is {found}")]
    Declared {
        /// The result.
        name: Arc<str>,
        /// Its declared type.
        declared: String,
        /// What follows from the operands.
        found: String,
    },
    /// Something that is well formed but not supported.
    #[error("{0}")]
    Unsupported(String),
    /// An operation of the graph cannot take its operands.
    #[error("as {op}: {error}")]
    Op {
        /// The operation of the graph.
        op: &'static str,
        /// Why not.
        #[source]
        error: OpError,
    },
}

impl From<BuildError> for Problem {
    fn from(BuildError { op, error }: BuildError) -> Self {
        Self::Op { op, error }
    }
}

impl Problem {
    /// The same problem at a place.
    pub(super) fn at(self, place: Place) -> CoremlError {
        CoremlError {
            place,
            problem: Box::new(self),
        }
    }
}

/// An error in a package, with its place.
#[derive(Clone, Debug, PartialEq, Error)]
#[error("{place}: {problem}")]
pub struct CoremlError {
    /// Where.
    pub place: Place,
    /// What is wrong.
    #[source]
    pub problem: Box<Problem>,
}

/// The result of a reading step.
pub type Result<T> = std::result::Result<T, CoremlError>;

/// The result of something whose place its caller knows.
pub(super) type Outcome<T> = std::result::Result<T, Problem>;
