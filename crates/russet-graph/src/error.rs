//! What can be wrong with an operation, a graph, a plan or a call.

use crate::types::DType;

/// Why an operation cannot take what it was given. Says nothing of where: the caller adds graph and node.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum OpError {
    /// Too few or too many operands.
    #[error("takes {expected} operands, got {got}")]
    Arity {
        /// What it takes.
        expected: String,
        /// What it got.
        got: usize,
    },
    /// An operand is not a tensor.
    #[error("operand {index} is not a tensor")]
    NotTensor {
        /// Which operand.
        index: usize,
    },
    /// An operand's element kind is not allowed.
    #[error("{rule}: operand {index} is {got}")]
    Kind {
        /// The rule.
        rule: &'static str,
        /// Which operand.
        index: usize,
        /// Its kind.
        got: DType,
    },
    /// Shapes do not fit together.
    #[error("{rule}: {shapes}")]
    Shape {
        /// The rule that is broken.
        rule: &'static str,
        /// The shapes in question.
        shapes: String,
    },
    /// A number is out of range.
    #[error("{what} is {value}, which is outside {allowed}")]
    Range {
        /// Which number.
        what: &'static str,
        /// Its value.
        value: i64,
        /// What is allowed.
        allowed: String,
    },
    /// An attribute is missing or of the wrong kind.
    #[error("attribute {name:?} is missing or not {expected}")]
    Attribute {
        /// Its name.
        name: &'static str,
        /// What it must be.
        expected: &'static str,
    },
    /// Something that must be known is not.
    #[error("{0} is not known")]
    Unknown(&'static str),
    /// A tensor does not fit in memory.
    #[error("a tensor of shape {shape:?} is too large")]
    TooLarge {
        /// Its shape.
        shape: Vec<usize>,
    },
    /// Bytes do not fit the type.
    #[error("{bytes} bytes are not a tensor {shape:?} of {dtype}")]
    Bytes {
        /// Element kind.
        dtype: DType,
        /// Shape.
        shape: Vec<usize>,
        /// How many bytes there are.
        bytes: usize,
    },
    /// The operation is known but cannot be executed here.
    #[error("{0}")]
    NotExecutable(String),
}

impl OpError {
    /// A [`OpError::Shape`] over concrete shapes.
    pub fn shapes(rule: &'static str, shapes: &[&[usize]]) -> Self {
        let list: Vec<String> = shapes.iter().map(|s| format!("{s:?}")).collect();
        Self::Shape {
            rule,
            shapes: list.join(" and "),
        }
    }
}
