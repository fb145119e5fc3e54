//! Random valid graphs, run by plans and by the references, composites of the latter spelled out.
//!
//! [`check`] turns bytes into choices: a graph grows node by node, each on values that are there, with the reference's value of
//! every result beside it: plain operations ([`plain`]), composites ([`composites`]), blocks and calls ([`blocks`]), states
//! ([`states`]), extents that only the call fixes ([`shapes`]). Then the graph is verified, printed and parsed back, planned and
//! run, and its outputs and states are compared ([`compare`]).
//!
//! Inputs are small multiples of a quarter, so most arithmetic is exact; a value that is not (of a square root, say) is only
//! moved around from then on, and may differ by a few units in the last place. The fuzz target `graphs` includes this folder.

mod blocks;
mod compare;
mod composites;
mod plain;
mod shapes;
mod states;

use std::collections::HashMap;
use std::sync::Arc;

use russet_graph::error::OpError;
use russet_graph::graph::{ConstantData, Graph, Node, Storage, ValueId};
use russet_graph::infer::name_unknowns;
use russet_graph::ops::constant::Constant;
use russet_graph::ops::{Fact, Op, OpDef, Operand, Operands};
use russet_graph::tensor::{Scalar, Tensor};
use russet_graph::types::{Class, DType, Dim, TensorType, Type};

use states::State;

/// Bytes as choices; zeros where there are none left.
pub(crate) struct Choices<'a>(pub(crate) &'a [u8]);

impl Choices<'_> {
    fn below(&mut self, n: usize) -> usize {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        usize::from(*first) % n.max(1)
    }

    fn coin(&mut self) -> bool {
        self.below(2) == 1
    }

    fn done(&self) -> bool {
        self.0.is_empty()
    }
}

/// A value of the graph with what the reference computes for it.
#[derive(Clone)]
struct Val {
    id: ValueId,
    tensor: Tensor,
    rough: bool,
}

const KINDS: [DType; 7] = [
    DType::F32,
    DType::F16,
    DType::BF16,
    DType::I32,
    DType::I8,
    DType::U8,
    DType::Bool,
];
const MAX_ELEMENTS: usize = 4096;
const MAX_NODES: usize = 60;
/// Blocks and calls lie in each other this deep.
const MAX_DEPTH: usize = 2;

/// Appends nodes, where the choices allow it, and gives the last value.
type Grow = fn(&mut Builder, &mut Choices<'_>) -> Option<Val>;

/// Everything that grows outside of blocks.
const GROW: [Grow; 30] = [
    plain::unary,
    plain::binary,
    plain::compare,
    plain::convert,
    plain::reshape,
    plain::transpose,
    plain::slice,
    plain::concat,
    plain::broadcast,
    plain::reduce,
    plain::order,
    plain::gather,
    plain::matmul,
    plain::choose,
    plain::logic,
    plain::rearrange,
    plain::split,
    plain::convolve,
    composites::fresh,
    composites::norm,
    composites::declared,
    composites::delta,
    blocks::branch,
    blocks::repeat,
    blocks::call,
    states::read,
    states::write,
    states::update,
    shapes::reshaped,
    shapes::counted,
];

/// Builds a graph from choices and compares its runs: the number of nodes, or what differs.
pub(crate) fn check(choices: &mut Choices<'_>) -> Result<usize, String> {
    let mut b = Builder::new("main");
    for _ in 0..1 + choices.below(3) {
        b.input(choices);
    }
    for _ in 0..choices.below(3) {
        b.state(choices);
    }
    let outputs = choices.below(4);
    while !choices.done() && b.nodes.len() < MAX_NODES {
        let grow = GROW[choices.below(GROW.len())];
        b.attempt(grow, choices);
    }
    compare::finish(b, outputs)
}

/// A graph under construction.
struct Builder {
    graph: Graph,
    /// Nodes of the block that grows.
    nodes: Vec<Node>,
    facts: HashMap<ValueId, Fact>,
    constants: HashMap<ValueId, Arc<ConstantData>>,
    /// What the reference computes for every value, of any block.
    tensors: HashMap<ValueId, Tensor>,
    /// Values that the block that grows may use.
    values: Vec<Val>,
    inputs: Vec<(String, Tensor)>,
    states: Vec<State>,
    /// The last token, where there are states.
    token: Option<ValueId>,
    /// Graphs that are called.
    callees: Vec<Graph>,
    depth: usize,
}

impl Builder {
    fn new(name: &str) -> Self {
        Self {
            graph: Graph::new(name),
            nodes: Vec::new(),
            facts: HashMap::new(),
            constants: HashMap::new(),
            tensors: HashMap::new(),
            values: Vec::new(),
            inputs: Vec::new(),
            states: Vec::new(),
            token: None,
            callees: Vec::new(),
            depth: 0,
        }
    }

    /// Grows, or leaves everything as it was.
    fn attempt(&mut self, grow: Grow, c: &mut Choices<'_>) -> bool {
        let (nodes, ids) = (self.nodes.len(), self.graph.values.len());
        let (values, callees, token) = (self.values.len(), self.callees.len(), self.token);
        let inputs = self.inputs.len();
        let ports = self.graph.inputs.len();
        if grow(self, c).is_some() {
            return true;
        }
        self.nodes.truncate(nodes);
        self.graph.values.truncate(ids);
        self.graph.inputs.truncate(ports);
        self.graph.body.args.truncate(ports);
        self.inputs.truncate(inputs);
        self.values.truncate(values);
        self.callees.truncate(callees);
        self.token = token;
        self.constants.retain(|id, _| id.index() < ids);
        false
    }

    /// An input of a random kind and shape.
    fn input(&mut self, c: &mut Choices<'_>) {
        let name = format!("x{}", self.inputs.len());
        if let Some((tensor, ty)) = random(c) {
            self.add_input(&name, tensor, ty);
        }
    }

    fn add_input(&mut self, name: &str, tensor: Tensor, ty: TensorType) -> Val {
        let id = self.graph.add_input(name, ty.clone());
        let named = name_unknowns(name, &Type::Tensor(ty));
        let fact = Fact {
            ty: named,
            known: None,
        };
        self.inputs.push((name.to_owned(), tensor.clone()));
        let val = self.define(id, fact, tensor, false);
        self.values.push(val.clone());
        val
    }

    /// Notes what is known of a value.
    fn define(&mut self, id: ValueId, fact: Fact, tensor: Tensor, rough: bool) -> Val {
        self.facts.insert(id, fact);
        self.tensors.insert(id, tensor.clone());
        Val { id, tensor, rough }
    }

    /// Some value that fits.
    fn any(&self, c: &mut Choices<'_>, fits: impl Fn(&Val) -> bool) -> Option<Val> {
        let found: Vec<&Val> = self.values.iter().filter(|v| fits(v)).collect();
        (!found.is_empty()).then(|| found[c.below(found.len())].clone())
    }

    /// A value that is exact, of some class.
    fn exact(&self, c: &mut Choices<'_>, class: impl Fn(DType) -> bool) -> Option<Val> {
        self.any(c, |v| !v.rough && class(v.tensor.dtype))
    }

    fn ty(&self, id: ValueId) -> Option<&TensorType> {
        self.facts.get(&id)?.ty.as_tensor()
    }

    /// Whether the graph knows every extent of a value.
    fn is_fixed(&self, v: &Val) -> bool {
        self.ty(v.id).is_some_and(|t| t.fixed_shape().is_some())
    }

    fn constant(&mut self, tensor: Tensor) -> Option<Val> {
        let data = Arc::new(ConstantData {
            ty: tensor.ty(),
            storage: Storage::Dense(tensor.bytes().clone()),
        });
        let fact = Constant(data.clone()).infer(Operands(&[])).ok()?.remove(0);
        let id = self.graph.add_value(fact.ty.clone());
        self.nodes
            .push(Node::new(Constant(data.clone()), &[], &[id]));
        self.constants.insert(id, data);
        Some(self.define(id, fact, tensor, false))
    }

    fn ints(&mut self, dtype: DType, values: &[i64]) -> Option<Val> {
        let tensor = Tensor::from_ints(dtype, &[values.len()], values).ok()?;
        self.constant(tensor)
    }

    fn int(&mut self, value: i64) -> Option<Val> {
        let tensor = Tensor::from_ints(DType::I32, &[], &[value]).ok()?;
        self.constant(tensor)
    }

    fn flag(&mut self, value: bool) -> Option<Val> {
        let tensor = Tensor::from_ints(DType::Bool, &[], &[value.into()]).ok()?;
        self.constant(tensor)
    }

    /// Appends an operation whose results are what the reference says, `rough` or as rough as its operands. Gives the last one.
    fn push(&mut self, op: impl Into<Op>, operands: &[&Val], rough: bool) -> Option<Val> {
        let op = op.into();
        let inputs: Vec<Tensor> = operands.iter().map(|v| v.tensor.clone()).collect();
        let results = blocks::expected(&op, &inputs)?;
        let known: Vec<Operand<'_>> = operands
            .iter()
            .map(|v| Operand {
                ty: &self.facts[&v.id].ty,
                known: self.facts[&v.id].known.clone(),
                constant: self.constants.get(&v.id).map(|c| &**c),
            })
            .collect();
        let facts = op.infer(Operands(&known)).ok()?;
        let rough = rough || operands.iter().any(|v| v.rough);
        let ids: Vec<ValueId> = operands.iter().map(|v| v.id).collect();
        self.node(Node::new(op, &ids, &[]), facts, results, rough)
    }

    /// Appends a node with these results, and gives the last of them.
    fn node(
        &mut self,
        mut node: Node,
        facts: Vec<Fact>,
        results: Vec<Tensor>,
        rough: bool,
    ) -> Option<Val> {
        let mut pairs = facts.iter().zip(&results);
        if facts.len() != results.len()
            || pairs.any(|(f, t)| is_too_large(t) || is_hidden_one(f, t))
        {
            return None;
        }
        for (fact, tensor) in facts.into_iter().zip(results) {
            let id = self.graph.add_value(fact.ty.clone());
            node.outputs.push(id);
            let val = self.define(id, fact, tensor, rough);
            self.values.push(val);
        }
        self.nodes.push(node);
        self.values.last().cloned()
    }
}

/// A tensor, and its type as a graph declares it: extents other than 1 may be left open, since extents that are not known are
/// taken not to broadcast.
fn random(c: &mut Choices<'_>) -> Option<(Tensor, TensorType)> {
    let dtype = KINDS[c.below(KINDS.len())];
    let shape: Vec<usize> = (0..c.below(5)).map(|_| 1 + c.below(4)).collect();
    let values: Vec<f64> = (0..shape.iter().product())
        .map(|_| c.below(25) as f64 / 4.0 - 3.0)
        .collect();
    let tensor = filled(dtype, &shape, &values).ok()?;
    let mut ty = tensor.ty();
    let open = c.below(4);
    for (i, dim) in ty.shape.iter_mut().enumerate() {
        if shape[i] > 1 && (open == 3 || (open == 2 && i == 0)) {
            *dim = Dim::Unknown;
        }
    }
    Some((tensor, ty))
}

fn is_too_large(tensor: &Tensor) -> bool {
    tensor.len() > MAX_ELEMENTS || tensor.shape.len() > 6
}

/// Whether an extent that the graph does not know is below 2: such extents are taken not to broadcast.
fn is_hidden_one(fact: &Fact, tensor: &Tensor) -> bool {
    let Some(ty) = fact.ty.as_tensor() else {
        return false;
    };
    let dims = ty.shape.iter().zip(&tensor.shape);
    dims.into_iter()
        .any(|(d, &n)| d.as_const().is_none() && n < 2)
}

fn filled(dtype: DType, shape: &[usize], values: &[f64]) -> Result<Tensor, OpError> {
    let scalar = |v: &f64| match dtype.class() {
        Class::Float => Scalar::Float(*v),
        Class::Bool => Scalar::Bool(*v > 0.0),
        Class::Unsigned => Scalar::Int(v.abs() as i128),
        _ => Scalar::Int(*v as i128),
    };
    Tensor::from_scalars(dtype, shape, &values.iter().map(scalar).collect::<Vec<_>>())
}

fn float(d: DType) -> bool {
    d.is_float()
}

fn number(d: DType) -> bool {
    d.is_float() || d.is_int()
}
