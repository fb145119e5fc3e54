//! What can be wrong with an asset, and where.
//!
//! Every error of the reader names the section of `main.mlirb`, the byte offset from the start of the file and, inside the
//! program, the operation being read. A reader that rejects a file should leave no doubt about which byte it disliked.

use std::fmt;

use thiserror::Error;

/// A part of `main.mlirb`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Section {
    /// Magic number, bytecode version and producer, and the section headers.
    Header,
    /// The table of strings.
    Strings,
    /// The table of dialects and operation names.
    Dialects,
    /// Attribute and type records.
    Records,
    /// Sizes of the attribute and type records.
    RecordSizes,
    /// Operations, blocks and regions.
    Program,
    /// Blobs that attributes point to: the weights.
    Resources,
    /// Names and sizes of the blobs.
    ResourceTable,
    /// Inherent attributes of operations.
    Properties,
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Header => "header",
            Self::Strings => "string section",
            Self::Dialects => "dialect section",
            Self::Records => "attribute and type section",
            Self::RecordSizes => "attribute and type offset section",
            Self::Program => "IR section",
            Self::Resources => "resource section",
            Self::ResourceTable => "resource offset section",
            Self::Properties => "properties section",
        })
    }
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Problem {
    /// The first four bytes are not `ML\xefR`.
    #[error("this is not MLIR bytecode")]
    Magic,
    /// A bytecode version this reader does not know.
    #[error("bytecode version {0} (known: 5 and 6)")]
    BytecodeVersion(u64),
    /// A version of the `aicode` dialect this reader does not know.
    #[error("encoding version {0} of aicode (known: 2)")]
    DialectVersion(u64),
    /// A dialect other than `aicode` where only that may be.
    #[error("dialect `{0}` (an asset holds only `aicode`)")]
    Dialect(String),
    /// The bytes ended inside something.
    #[error("the data ends inside {0}")]
    Truncated(&'static str),
    /// Bytes follow where nothing may follow.
    #[error("{left} bytes follow {what}")]
    Trailing {
        /// What was complete.
        what: &'static str,
        /// Bytes left over.
        left: usize,
    },
    /// A required section is absent, or one came twice.
    #[error("the {0} is {1}")]
    SectionSet(Section, &'static str),
    /// An unknown section, encoding or record kind.
    #[error("unknown {what} {code}")]
    Unknown {
        /// What kind of code.
        what: &'static str,
        /// The code found.
        code: u64,
    },
    /// A reference to an entry that does not exist.
    #[error("{what} {index} of {len}")]
    Index {
        /// The table.
        what: &'static str,
        /// The entry asked for.
        index: u64,
        /// Entries the table has.
        len: usize,
    },
    /// A reference to an entry of another kind than belongs here.
    #[error("{what} should be {expected}")]
    Kind {
        /// What was read.
        what: &'static str,
        /// What belongs there.
        expected: &'static str,
    },
    /// A count or size that the file cannot back, or that is over a limit of this reader.
    #[error("{what}: {value} is more than {limit}")]
    Limit {
        /// What is counted.
        what: &'static str,
        /// The value in the file.
        value: u64,
        /// The most that would be accepted.
        limit: u64,
    },
    /// Records that contain themselves.
    #[error("record {0} contains itself")]
    Cycle(usize),
    /// Text that is not UTF-8.
    #[error("{0} is not UTF-8")]
    Text(&'static str),
    /// Padding or alignment that breaks the rules.
    #[error("alignment: {0}")]
    Alignment(&'static str),
    /// A rule about operations, blocks and regions is broken.
    #[error("{0}")]
    Structure(&'static str),
    /// Something that is well formed but has no meaning to this reader.
    #[error("{0}")]
    Unsupported(String),
}

/// An error in `main.mlirb`, with its place.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub struct ReadError {
    /// The part of the file.
    pub section: Section,
    /// Bytes from the start of the file.
    pub offset: usize,
    /// The operation being read, by its name in the file.
    pub op: Option<String>,
    /// What is wrong.
    pub problem: Problem,
}

impl ReadError {
    /// An error outside of any operation.
    pub fn new(section: Section, offset: usize, problem: Problem) -> Self {
        Self {
            section,
            offset,
            op: None,
            problem,
        }
    }

    /// The same error inside an operation; the innermost operation is kept.
    #[must_use]
    pub fn in_op(mut self, name: &str) -> Self {
        self.op.get_or_insert_with(|| name.to_owned());
        self
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "main.mlirb, {} at byte {}", self.section, self.offset)?;
        if let Some(op) = &self.op {
            write!(f, ", in {op}")?;
        }
        write!(f, ": {}", self.problem)
    }
}

/// The result of a reading step.
pub type Result<T> = std::result::Result<T, ReadError>;
