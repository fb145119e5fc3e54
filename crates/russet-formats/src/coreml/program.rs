//! A program of the Model Intermediate Language (MIL), whichever form of file it came from.
//!
//! Functions hold a block of operations; arguments are passed by name and are results of operations before, or values that stand
//! in the program (*immediate*) or in a weight file.

use std::fmt;
use std::sync::Arc;

use russet_graph::types::DType;
use russet_kernels::mem::SharedBytes;

/// All functions of a model, sorted by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Program {
    /// The functions.
    pub functions: Vec<Function>,
}

/// A function.
#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    /// Its name.
    pub name: Arc<str>,
    /// The set its operations are of, such as `CoreML8` (iOS 18).
    pub opset: Arc<str>,
    /// Its inputs; states are among them.
    pub inputs: Vec<Named>,
    /// What it does.
    pub body: Block,
}

/// A value's name and type.
#[derive(Clone, Debug, PartialEq)]
pub struct Named {
    /// The name.
    pub name: Arc<str>,
    /// The type.
    pub ty: ValueType,
}

/// What the elements of a tensor are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    /// Numbers or truth values.
    Number(DType),
    /// Texts.
    Text,
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(dtype) => dtype.fmt(f),
            Self::Text => f.write_str("string"),
        }
    }
}

/// Element kind and extents; an extent that is not known is `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorType {
    /// The elements.
    pub element: Element,
    /// The extents.
    pub shape: Vec<Option<u64>>,
}

impl TensorType {
    /// Number of elements where all extents are known and it fits.
    pub fn elements(&self) -> Option<usize> {
        self.shape
            .iter()
            .try_fold(1usize, |n, d| n.checked_mul(usize::try_from((*d)?).ok()?))
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tensor<{}, [", self.element)?;
        for (i, extent) in self.shape.iter().enumerate() {
            let comma = if i > 0 { ", " } else { "" };
            match extent {
                Some(n) => write!(f, "{comma}{n}")?,
                None => write!(f, "{comma}?")?,
            }
        }
        f.write_str("]>")
    }
}

/// The type of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueType {
    /// A tensor; numbers without axes are tensors of rank 0.
    Tensor(TensorType),
    /// A state that holds a tensor.
    State(TensorType),
    /// Lists, tuples and dictionaries: no operation here takes them.
    Other,
}

/// Operations in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Block {
    /// Values bound on entry, of blocks in operations.
    pub inputs: Vec<Named>,
    /// What runs.
    pub operations: Vec<Operation>,
    /// Names of what it gives back.
    pub outputs: Vec<Arc<str>>,
}

/// One operation.
#[derive(Clone, Debug, PartialEq)]
pub struct Operation {
    /// Its kind, such as `conv`.
    pub kind: Arc<str>,
    /// Arguments by name, sorted.
    pub inputs: Vec<(Arc<str>, Vec<Argument>)>,
    /// Its results.
    pub outputs: Vec<Named>,
    /// Blocks of control flow.
    pub blocks: Vec<Block>,
    /// The value of a `const`, and arguments of operations that hold them as attributes; sorted, without `name`.
    pub attributes: Vec<(Arc<str>, Value)>,
}

/// What an argument is bound to.
#[derive(Clone, Debug, PartialEq)]
pub enum Argument {
    /// A result, an input or a constant, by name.
    Name(Arc<str>),
    /// A value.
    Value(Value),
}

/// A value that stands in the program or in a weight file.
#[derive(Clone, Debug)]
pub struct Value {
    /// Its type.
    pub ty: TensorType,
    /// Its elements.
    pub data: Data,
}

/// Elements.
#[derive(Clone, Debug)]
pub enum Data {
    /// Packed, row-major, little-endian.
    Bytes(SharedBytes),
    /// Texts.
    Texts(Vec<Arc<str>>),
    /// In a weight file.
    Blob {
        /// The file's name.
        file: Arc<str>,
        /// The offset of the value's record.
        offset: u64,
    },
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        let same = match (&self.data, &other.data) {
            (Data::Bytes(a), Data::Bytes(b)) => a[..] == b[..],
            (Data::Texts(a), Data::Texts(b)) => a == b,
            (Data::Blob { file, offset }, Data::Blob { file: f, offset: o }) => {
                (file, offset) == (f, o)
            }
            _ => false,
        };
        same && self.ty == other.ty
    }
}

impl Program {
    /// Names of the weight files that values lie in, each once.
    pub fn files(&self) -> Vec<Arc<str>> {
        let mut found = Vec::new();
        let functions = self.functions.iter();
        functions.for_each(|f| files_of(&f.body, &mut found));
        found.sort_unstable();
        found.dedup();
        found
    }
}

fn files_of(block: &Block, found: &mut Vec<Arc<str>>) {
    let mut note = |value: &Value| {
        if let Data::Blob { file, .. } = &value.data
            && found.last() != Some(file)
        {
            found.push(file.clone());
        }
    };
    for op in &block.operations {
        op.attributes.iter().for_each(|(_, v)| note(v));
        for argument in op.inputs.iter().flat_map(|(_, list)| list) {
            if let Argument::Value(value) = argument {
                note(value);
            }
        }
    }
    let inner = block.operations.iter().flat_map(|op| &op.blocks);
    inner.for_each(|b| files_of(b, found));
}
