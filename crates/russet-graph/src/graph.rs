//! The graph: values in single-assignment blocks, graphs that call graphs, control flow that holds blocks.
//!
//! A [`Module`] is a list of graphs, some public (the functions of an asset), some private (bodies of composites). A
//! [`Graph`] owns its values; nodes, blocks and ports name them by [`ValueId`]. States are values of handle type: they are
//! read and written by `read_handle` and `write_handle`, ordered by tokens.

use std::sync::Arc;

use russet_kernels::mem::SharedBytes;
use russet_kernels::quant::BlockFormat;

use crate::attr::{Attr, Attributes};
use crate::ops::Op;
use crate::types::{TensorType, Type};

/// Names a value of one graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(pub u32);

impl ValueId {
    /// The position in [`Graph::values`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// All graphs of a program.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Module {
    /// The graphs, in the order of the file.
    pub graphs: Vec<Graph>,
    /// What the file says about the module as a whole.
    pub attributes: Attributes,
}

impl Module {
    /// The graph of this name.
    pub fn graph(&self, name: &str) -> Option<&Graph> {
        self.graphs.iter().find(|g| &*g.name == name)
    }

    /// The graphs that a caller may run, in order.
    pub fn functions(&self) -> impl Iterator<Item = &Graph> {
        self.graphs.iter().filter(|g| !g.private)
    }
}

/// An input or output of a graph as its caller sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Port {
    /// The name, empty where the file gives none.
    pub name: Arc<str>,
    /// The type of the value.
    pub ty: Type,
    /// Further attributes of the file (enumerated shapes, buffer mutation …).
    pub attributes: Attributes,
}

/// Says that a graph is the body of a known operation.
#[derive(Clone, Debug, PartialEq)]
pub struct Composite {
    /// The operation's name, such as `rms_norm`.
    pub name: Arc<str>,
    /// Which operand plays which part, in order.
    pub inputs: Vec<Arc<str>>,
    /// Names of the results.
    pub outputs: Vec<Arc<str>>,
    /// The operation's attributes.
    pub attributes: Attributes,
}

/// One graph: a function of an asset, or the body of a composite.
#[derive(Clone, Debug, PartialEq)]
pub struct Graph {
    /// Unique name within the module.
    pub name: Arc<str>,
    /// Only called by other graphs.
    pub private: bool,
    /// One port for each argument of the body.
    pub inputs: Vec<Port>,
    /// One port for each result of the body.
    pub outputs: Vec<Port>,
    /// The declaration, for bodies of composites.
    pub composite: Option<Composite>,
    /// Further attributes of the file.
    pub attributes: Attributes,
    /// The type of every value, indexed by [`ValueId`].
    pub values: Vec<Type>,
    /// What is computed.
    pub body: Block,
}

impl Graph {
    /// An empty graph.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            private: false,
            inputs: Vec::new(),
            outputs: Vec::new(),
            composite: None,
            attributes: Vec::new(),
            values: Vec::new(),
            body: Block::default(),
        }
    }

    /// Adds a value of this type.
    pub fn add_value(&mut self, ty: impl Into<Type>) -> ValueId {
        let id = ValueId(u32::try_from(self.values.len()).unwrap_or(u32::MAX));
        self.values.push(ty.into());
        id
    }

    /// The type of a value; `None` for an id of another graph.
    pub fn ty(&self, id: ValueId) -> Option<&Type> {
        self.values.get(id.index())
    }

    /// Adds an input and the value that stands for it.
    pub fn add_input(&mut self, name: &str, ty: impl Into<Type>) -> ValueId {
        let ty = ty.into();
        self.inputs.push(Port {
            name: name.into(),
            ty: ty.clone(),
            attributes: Vec::new(),
        });
        let id = self.add_value(ty);
        self.body.args.push(id);
        id
    }

    /// Makes a value an output of the graph.
    pub fn add_output(&mut self, name: &str, value: ValueId) {
        let ty = self.ty(value).cloned().unwrap_or(Type::Token);
        self.outputs.push(Port {
            name: name.into(),
            ty,
            attributes: Vec::new(),
        });
        self.body.results.push(value);
    }

    /// Appends an operation with results of these types to the body.
    pub fn push(
        &mut self,
        op: impl Into<Op>,
        inputs: &[ValueId],
        results: impl IntoIterator<Item = Type>,
    ) -> Vec<ValueId> {
        let outputs: Vec<ValueId> = results.into_iter().map(|t| self.add_value(t)).collect();
        self.body.nodes.push(Node::new(op, inputs, &outputs));
        outputs
    }
}

/// Nodes in order, with arguments and results.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Block {
    /// Values bound on entry.
    pub args: Vec<ValueId>,
    /// What runs, in order.
    pub nodes: Vec<Node>,
    /// Values handed back. In the first block of a `while` the first is the condition.
    pub results: Vec<ValueId>,
}

/// One operation.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Which, with its attributes.
    pub op: Op,
    /// Operands.
    pub inputs: Vec<ValueId>,
    /// Results.
    pub outputs: Vec<ValueId>,
    /// Blocks of control flow.
    pub blocks: Vec<Block>,
    /// Where the exporter says it came from.
    pub location: Option<Arc<Attr>>,
}

impl Node {
    /// A node without blocks or location.
    pub fn new(op: impl Into<Op>, inputs: &[ValueId], outputs: &[ValueId]) -> Self {
        Self {
            op: op.into(),
            inputs: inputs.to_vec(),
            outputs: outputs.to_vec(),
            blocks: Vec::new(),
            location: None,
        }
    }
}

/// How the bytes of a constant stand for its elements.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Storage {
    /// Every element, packed, row-major.
    Dense(SharedBytes),
    /// One element that stands for all.
    Splat(SharedBytes),
    /// Rows of blocks with their scales inside; the element kind of the type is what they decode to.
    Blocks(BlockFormat, SharedBytes),
}

impl Storage {
    /// The stored bytes.
    pub fn bytes(&self) -> &SharedBytes {
        match self {
            Self::Dense(b) | Self::Splat(b) | Self::Blocks(_, b) => b,
        }
    }
}

impl PartialEq for Storage {
    fn eq(&self, other: &Self) -> bool {
        let kind = match (self, other) {
            (Self::Dense(_), Self::Dense(_)) | (Self::Splat(_), Self::Splat(_)) => true,
            (Self::Blocks(a, _), Self::Blocks(b, _)) => a == b,
            _ => false,
        };
        let (a, b) = (&self.bytes()[..], &other.bytes()[..]);
        kind && a.len() == b.len() && (std::ptr::eq(a, b) || a == b)
    }
}

/// A tensor that is part of the program.
#[derive(Clone, Debug, PartialEq)]
pub struct ConstantData {
    /// Its type; every extent is a constant.
    pub ty: TensorType,
    /// Its elements.
    pub storage: Storage,
}

impl ConstantData {
    /// Number of elements.
    pub fn len(&self) -> usize {
        self.ty.fixed_len().unwrap_or(0)
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Why the bytes do not fit the type, if they do not.
    pub fn problem(&self) -> Option<String> {
        let Some(len) = self.ty.fixed_len() else {
            return Some("the type of a constant needs constant extents".into());
        };
        let have = self.storage.bytes().len();
        let need = match &self.storage {
            Storage::Dense(_) => self.ty.dtype.packed_len(len)?,
            Storage::Splat(_) => self.ty.dtype.packed_len(1)?,
            Storage::Blocks(format, _) => {
                let row = self.ty.fixed_shape()?.last().copied().unwrap_or(1);
                let Some(bytes) = format.row_bytes(row) else {
                    return Some(format!(
                        "rows of {row} elements are not whole blocks of {format:?}"
                    ));
                };
                len.checked_div(row).unwrap_or(0).checked_mul(bytes)?
            }
        };
        (have != need).then(|| format!("{} needs {need} bytes, there are {have}", self.ty))
    }
}
