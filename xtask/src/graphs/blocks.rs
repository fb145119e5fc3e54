//! Blocks and calls: branches, loops, graphs that are called. What they give is computed here, block by block, with the
//! references of plain operations and the decompositions of composites.

use std::collections::HashMap;
use std::sync::Arc;

use russet_graph::graph::{Block, Composite, Graph, Module, Node, ValueId};
use russet_graph::infer::infer_with;
use russet_graph::ops::decompose::decompose;
use russet_graph::ops::*;
use russet_graph::tensor::Tensor;
use russet_graph::types::{DType, Dim, TensorType, Type};

use super::{Builder, Choices, Grow, MAX_DEPTH, Val, composites, float, number, plain, shapes};

/// What grows inside of blocks and called graphs.
const INNER: [Grow; 16] = [
    plain::unary,
    plain::binary,
    plain::binary,
    plain::compare,
    plain::convert,
    plain::transpose,
    plain::slice,
    plain::concat,
    plain::reduce,
    plain::order,
    plain::matmul,
    plain::choose,
    composites::norm,
    branch,
    repeat,
    shapes::reshaped,
];
/// Turns of a loop.
const TURNS: usize = 4;

/// What an operation gives: by its decomposition where it has one, else by its reference.
pub(super) fn expected(op: &Op, inputs: &[Tensor]) -> Option<Vec<Tensor>> {
    let types: Vec<TensorType> = inputs.iter().map(Tensor::ty).collect();
    let Some(graph) = decompose(op, &types).ok()? else {
        return op.reference(inputs).ok();
    };
    Run::new(&[], &HashMap::new()).block(&graph.body, inputs.to_vec())
}

/// A run of blocks.
struct Run<'a> {
    callees: &'a [Graph],
    outer: &'a HashMap<ValueId, Tensor>,
    own: HashMap<ValueId, Tensor>,
}

impl<'a> Run<'a> {
    fn new(callees: &'a [Graph], outer: &'a HashMap<ValueId, Tensor>) -> Self {
        Self {
            callees,
            outer,
            own: HashMap::new(),
        }
    }

    fn values(&self, ids: &[ValueId]) -> Option<Vec<Tensor>> {
        let value = |id| self.own.get(id).or_else(|| self.outer.get(id)).cloned();
        ids.iter().map(value).collect()
    }

    fn block(&mut self, block: &Block, args: Vec<Tensor>) -> Option<Vec<Tensor>> {
        self.own.extend(block.args.iter().copied().zip(args));
        for node in &block.nodes {
            let results = self.node(node)?;
            self.own.extend(node.outputs.iter().copied().zip(results));
        }
        self.values(&block.results)
    }

    fn node(&mut self, node: &Node) -> Option<Vec<Tensor>> {
        let inputs = self.values(&node.inputs)?;
        match (&node.op, &node.blocks[..]) {
            (Op::If(_), [then, other]) => {
                let taken = if is_true(&inputs)? { then } else { other };
                self.block(taken, Vec::new())
            }
            (Op::While(_), [condition, body]) => {
                let mut carried = inputs;
                for _ in 0..=TURNS {
                    let mut next = self.block(condition, carried)?;
                    let go_on = is_true(&next)?;
                    carried = next.split_off(1);
                    if !go_on {
                        return Some(carried);
                    }
                    carried = self.block(body, carried)?;
                }
                None
            }
            (Op::Invoke(call), _) => {
                let callee = self.callees.iter().find(|g| g.name == call.graph)?;
                Run::new(self.callees, &HashMap::new()).block(&callee.body, inputs)
            }
            (op, _) => expected(op, &inputs),
        }
    }
}

fn is_true(values: &[Tensor]) -> Option<bool> {
    Some(values.first()?.scalars().next()?.bool())
}

impl Builder {
    /// A block of its own: what `grow` appends lies in it, and what it gives are its results.
    fn inner(
        &mut self,
        args: &[&Val],
        grow: impl FnOnce(&mut Self, &[Val]) -> Option<Vec<Val>>,
    ) -> Option<(Block, Vec<Val>)> {
        let outer = std::mem::take(&mut self.nodes);
        let visible = self.values.len();
        self.depth += 1;
        let entered: Vec<Val> = args.iter().map(|v| self.stand_in(v)).collect();
        let results = grow(self, &entered);
        self.depth -= 1;
        self.values.truncate(visible);
        let nodes = std::mem::replace(&mut self.nodes, outer);
        let results = results?;
        let block = Block {
            args: entered.iter().map(|v| v.id).collect(),
            nodes,
            results: results.iter().map(|v| v.id).collect(),
        };
        Some((block, results))
    }

    /// A block's argument that is a value on entry.
    fn stand_in(&mut self, v: &Val) -> Val {
        let fact = Fact {
            ty: self.facts[&v.id].ty.clone(),
            known: None,
        };
        let id = self.graph.add_value(fact.ty.clone());
        let val = self.define(id, fact, v.tensor.clone(), v.rough);
        self.values.push(val.clone());
        val
    }

    /// Lets a few nodes grow.
    fn grow_some(&mut self, c: &mut Choices<'_>) {
        for _ in 0..1 + c.below(4) {
            let grow = INNER[c.below(INNER.len())];
            self.attempt(grow, c);
        }
    }

    /// A value of the type of another one, the newest if the choices say so, else that one itself.
    fn alike(&self, c: &mut Choices<'_>, v: &Val) -> Val {
        let fits = |w: &&Val| self.ty(w.id) == self.ty(v.id) && (v.rough || !w.rough);
        let mut found = self.values.iter().rev().filter(fits);
        found.nth(c.below(2)).unwrap_or(v).clone()
    }

    /// A truth value of one element.
    fn condition(&mut self, c: &mut Choices<'_>) -> Option<Val> {
        let ready = self.exact(c, |d| d == DType::Bool);
        if let Some(ready) = ready.filter(|v| v.tensor.len() == 1 && self.is_fixed(v)) {
            return Some(ready);
        }
        let x = self.exact(c, |d| d == DType::F32 || d == DType::I32)?;
        let axes: Vec<i64> = (0..x.tensor.shape.len() as i64).collect();
        let axes = self.ints(DType::I32, &axes)?;
        let largest = self.push(reduce_max::ReduceMax, &[&x, &axes], false)?;
        let bound = super::filled(x.tensor.dtype, &[], &[c.below(4) as f64]).ok()?;
        let bound = self.constant(bound)?;
        self.push(
            broadcasting_greater::BroadcastingGreater,
            &[&largest, &bound],
            false,
        )
    }

    /// Appends a node with blocks; its results have the types of `like`.
    fn control(
        &mut self,
        mut node: Node,
        blocks: Vec<Block>,
        like: &[&Val],
        rough: bool,
    ) -> Option<Val> {
        node.blocks = blocks;
        let results = Run::new(&self.callees, &self.tensors).node(&node)?;
        let facts = like.iter().map(|v| Fact {
            ty: self.facts[&v.id].ty.clone(),
            known: None,
        });
        let facts = facts.collect();
        self.node(node, facts, results, rough)
    }
}

/// A branch with two results.
pub(super) fn branch(b: &mut Builder, c: &mut Choices<'_>) -> Option<Val> {
    if b.depth >= MAX_DEPTH {
        return None;
    }
    let condition = b.condition(c)?;
    let like = [b.any(c, |_| true)?, b.any(c, |_| true)?];
    let mut side = |b: &mut Builder| {
        b.inner(&[], |b, _| {
            b.grow_some(c);
            Some(like.iter().map(|v| b.alike(c, v)).collect())
        })
    };
    let ((then, x), (other, y)) = (side(b)?, side(b)?);
    let rough = x.iter().chain(&y).any(|v| v.rough);
    let node = Node::new(if_else::If, &[condition.id], &[]);
    b.control(node, vec![then, other], &[&like[0], &like[1]], rough)
}

/// A loop that counts, and carries a value along.
pub(super) fn repeat(b: &mut Builder, c: &mut Choices<'_>) -> Option<Val> {
    if b.depth >= MAX_DEPTH {
        return None;
    }
    let carried = b.exact(c, number)?;
    let (start, one) = (b.int(0)?, b.int(1)?);
    let turns = b.int(c.below(TURNS + 1) as i64)?;
    let (condition, _) = b.inner(&[&start, &carried], |b, args| {
        let go_on = b.push(greater::Greater, &[&turns, &args[0]], false)?;
        Some(vec![go_on, args[0].clone(), args[1].clone()])
    })?;
    let (body, _) = b.inner(&[&start, &carried], |b, args| {
        let next = b.push(add::Add, &[&args[0], &one], false)?;
        b.grow_some(c);
        let value = b.alike(c, &args[1]);
        Some(vec![next, value])
    })?;
    let rough = float(carried.tensor.dtype);
    let node = Node::new(while_loop::While, &[start.id, carried.id], &[]);
    b.control(node, vec![condition, body], &[&start, &carried], rough)
}

/// A call of a graph of its own: plain, or the body of a composite that nobody knows.
pub(super) fn call(b: &mut Builder, c: &mut Choices<'_>) -> Option<Val> {
    let operands: Vec<Val> = (0..1 + c.below(2))
        .map(|_| b.any(c, |v| !v.tensor.shape.is_empty()))
        .collect::<Option<_>>()?;
    let mut inner = Builder::new(&format!("f{}", b.callees.len()));
    inner.depth = MAX_DEPTH - 1;
    for (i, v) in operands.iter().enumerate() {
        let ty = opened(b.ty(v.id)?);
        inner.add_input(&format!("a{i}"), v.tensor.clone(), ty);
        inner.values.last_mut()?.rough = v.rough;
    }
    inner.grow_some(c);
    let last: Vec<Val> = inner
        .values
        .iter()
        .rev()
        .take(1 + c.below(2))
        .cloned()
        .collect();
    inner.graph.private = true;
    inner.graph.composite = c.coin().then(|| Composite {
        name: "something_new".into(),
        inputs: vec!["x".into()],
        outputs: Vec::new(),
        attributes: Vec::new(),
    });
    let rough = last.iter().any(|v| v.rough);
    let graph = inner.finished(&last);
    b.invoke(graph, &operands, rough)
}

impl Builder {
    /// The graph with these results.
    pub(super) fn finished(mut self, results: &[Val]) -> Graph {
        self.graph.body.nodes = self.nodes;
        for (i, v) in results.iter().enumerate() {
            self.graph.add_output(&format!("y{i}"), v.id);
        }
        self.graph
    }

    /// A call of a new graph.
    pub(super) fn invoke(&mut self, graph: Graph, operands: &[Val], rough: bool) -> Option<Val> {
        let facts = operands.iter().map(|v| self.facts[&v.id].clone()).collect();
        let name: Arc<str> = graph.name.clone();
        self.callees.push(graph);
        let module = Module {
            graphs: self.callees.clone(),
            attributes: Vec::new(),
        };
        let callee = module.graph(&name)?;
        let known = infer_with(&module, callee, facts).ok()?;
        let fact = |id: &ValueId| {
            let ty = outside(known.ty(*id)?);
            let known = known.known(*id).cloned();
            Some(Fact {
                ty,
                known: known.filter(|k| !k.iter().any(is_inner)),
            })
        };
        let facts: Vec<Fact> = callee
            .body
            .results
            .iter()
            .map(fact)
            .collect::<Option<_>>()?;
        let ids: Vec<ValueId> = operands.iter().map(|v| v.id).collect();
        let node = Node::new(invoke::Invoke { graph: name }, &ids, &[]);
        let results = Run::new(&self.callees, &self.tensors).node(&node)?;
        self.node(node, facts, results, rough)
    }
}

/// Whether an extent is one that only the called graph knows: its inputs are called `a…`.
fn is_inner(dim: &Dim) -> bool {
    let mut inner = false;
    dim.symbols(&mut |s| inner |= s.0.starts_with('a'));
    inner
}

/// The type of a called graph's result as its caller knows it.
fn outside(ty: &Type) -> Type {
    let mut ty = ty.clone();
    if let Type::Tensor(t) = &mut ty {
        let dims = t.shape.iter_mut().filter(|d| is_inner(d));
        dims.for_each(|d| *d = Dim::Unknown);
    }
    ty
}

/// A type as a graph declares it for its input: extents that only a call fixes are left open.
pub(super) fn opened(ty: &TensorType) -> TensorType {
    let mut ty = ty.clone();
    let dims = ty.shape.iter_mut().filter(|d| d.as_const().is_none());
    dims.for_each(|d| *d = Dim::Unknown);
    ty
}
