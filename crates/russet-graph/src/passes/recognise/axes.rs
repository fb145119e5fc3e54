//! Orders of axes, taken where they are wanted: a function of elements that works on rows in another order works on the rows as they
//! lie, and gives its result in the other order. Orders that undo each other are gone.
//!
//! Convolutions of one tap stand between such orders in Core ML programs, because channels come first there.

use std::collections::HashMap;

use russet_kernels::mem::SharedBytes;

use crate::graph::{ConstantData, Graph, Node, Storage, ValueId};
use crate::infer::Facts;
use crate::ops::Op;
use crate::ops::constant::Constant;
use crate::ops::expand_dims::ExpandDims;
use crate::ops::shape::axis;
use crate::ops::shrink_dims::ShrinkDims;
use crate::ops::transpose::Transpose;
use crate::passes::cse::rename;
use crate::types::{DType, Dim, TensorType};

/// A value as another one sees it: for every axis the axis of `base`, none for one of extent 1. Axes of `base` that are not named
/// have extent 1.
#[derive(Clone, Debug)]
struct Seen {
    base: ValueId,
    axes: Vec<Option<usize>>,
}

impl Seen {
    /// All axes of a value as they are.
    fn whole(base: ValueId, shape: &[Dim]) -> Self {
        let axis = |(i, d): (usize, &Dim)| (*d != Dim::Const(1)).then_some(i);
        let axes = shape.iter().enumerate().map(axis).collect();
        Self { base, axes }
    }
}

/// See the module page.
pub(super) fn settle(graph: &mut Graph, facts: &Facts) {
    let nodes = std::mem::take(&mut graph.body.nodes);
    let mut settling = Settling {
        graph,
        facts,
        seen: HashMap::new(),
        renamed: HashMap::new(),
        done: Vec::with_capacity(nodes.len()),
    };
    nodes.into_iter().for_each(|node| settling.node(node));
    let Settling { renamed, done, .. } = settling;
    graph.body.nodes = done;
    for id in &mut graph.body.results {
        *id = renamed.get(id).copied().unwrap_or(*id);
    }
}

struct Settling<'a> {
    graph: &'a mut Graph,
    facts: &'a Facts,
    seen: HashMap<ValueId, Seen>,
    renamed: HashMap<ValueId, ValueId>,
    done: Vec<Node>,
}

impl Settling<'_> {
    fn node(&mut self, mut node: Node) {
        rename(&mut node, &self.renamed);
        if let (Some(seen), &[id]) = (self.moved(&node), &node.outputs[..]) {
            let shape = self.ty(seen.base).map_or(&[][..], |t| &t.shape);
            if seen.axes == Seen::whole(seen.base, shape).axes {
                self.renamed.insert(id, seen.base);
            } else {
                self.seen.insert(id, seen);
                self.done.push(node);
            }
        } else if self.function(&node).is_none() {
            self.done.push(node);
        }
    }

    fn ty(&self, id: ValueId) -> Option<&TensorType> {
        let declared = || self.graph.values.get(id.index())?.as_tensor();
        self.facts.tensor(id).or_else(declared)
    }

    fn ints(&self, id: ValueId, rank: usize) -> Option<Vec<usize>> {
        let known = self.facts.known(id)?.iter().map(Dim::as_const);
        known.map(|a| axis(a?, rank).ok()).collect()
    }

    /// How the result of an operation that only moves axes sees what it was made from.
    fn moved(&self, node: &Node) -> Option<Seen> {
        let (&[x, how], &[id]) = (&node.inputs[..], &node.outputs[..]) else {
            return None;
        };
        let (given, made) = (&self.ty(x)?.shape, &self.ty(id)?.shape);
        let (from, to) = (given.len(), made.len());
        let whole = Seen::whole(x, given);
        let seen = self.seen.get(&x).unwrap_or(&whole);
        let axes = match &node.op {
            Op::Transpose(_) => {
                let order = self.ints(how, from)?;
                order.iter().map(|&a| seen.axes[a]).collect()
            }
            Op::ExpandDims(_) => {
                let new = self.ints(how, to)?;
                let mut old = seen.axes.iter().copied();
                let each = (0..to).map(|i| if new.contains(&i) { None } else { old.next()? });
                each.collect()
            }
            Op::ShrinkDims(_) => {
                let gone = self.ints(how, from)?;
                let all = seen.axes.iter().enumerate();
                let kept = all.filter(|(i, _)| !gone.contains(i));
                kept.map(|(_, a)| *a).collect()
            }
            Op::Reshape(_) => {
                let one = Dim::Const(1);
                let kept = |d: &&Dim| **d != one;
                if !given.iter().filter(kept).eq(made.iter().filter(kept)) {
                    return None;
                }
                let mut old = seen.axes.iter().flatten();
                let each = made
                    .iter()
                    .map(|d| if *d == one { None } else { old.next().copied() });
                each.collect()
            }
            _ => return None,
        };
        Some(Seen {
            base: seen.base,
            axes,
        })
    }

    /// Computes a function of elements on what its operands see alike.
    fn function(&mut self, node: &Node) -> Option<()> {
        let &[id] = &node.outputs[..] else {
            return None;
        };
        if !by_element(&node.op) {
            return None;
        }
        let seen = node.inputs.iter().find_map(|id| self.seen.get(id))?.clone();
        let shape = self.ty(seen.base)?.shape.clone();
        let mut inputs = Vec::with_capacity(node.inputs.len());
        for &operand in &node.inputs {
            let alike = self.seen.get(&operand).filter(|s| {
                s.axes == seen.axes && self.ty(s.base).is_some_and(|t| t.shape == shape)
            });
            inputs.push(match alike {
                Some(seen) => seen.base,
                None if self.is_number(operand, shape.len()) => operand,
                None => return None,
            });
        }
        let dtype = self.ty(id)?.dtype;
        let base = self.push(node.op.clone(), &inputs, dtype, &shape);
        let seen = Seen { base, ..seen };
        self.show(&seen, dtype, &shape, id);
        self.seen.insert(id, seen);
        Some(())
    }

    /// A constant of one element, of no more axes than this.
    fn is_number(&self, id: ValueId, rank: usize) -> bool {
        let constant = self.facts.constant(id).is_some();
        let ty = self.ty(id).filter(|_| constant);
        ty.is_some_and(|t| t.fixed_len() == Some(1) && t.rank() <= rank)
    }

    fn push(
        &mut self,
        op: impl Into<Op>,
        inputs: &[ValueId],
        dtype: DType,
        shape: &[Dim],
    ) -> ValueId {
        let id = self
            .graph
            .add_value(TensorType::new(dtype, shape.iter().cloned()));
        self.done.push(Node::new(op, inputs, &[id]));
        id
    }

    fn numbers(&mut self, values: &[usize]) -> ValueId {
        let bytes = values.iter().flat_map(|v| (*v as i32).to_le_bytes());
        let data = ConstantData {
            ty: TensorType::fixed(DType::I32, &[values.len()]),
            storage: Storage::Dense(SharedBytes::from_vec(bytes.collect())),
        };
        let id = self.graph.add_value(data.ty.clone());
        let constant = Constant(data.into());
        self.done.push(Node::new(constant, &[], &[id]));
        id
    }

    /// Makes `id` of what it sees: axes dropped, put in order, new ones added.
    fn show(&mut self, seen: &Seen, dtype: DType, shape: &[Dim], id: ValueId) {
        let kept: Vec<usize> = (0..shape.len())
            .filter(|a| seen.axes.contains(&Some(*a)))
            .collect();
        let order: Vec<usize> = seen.axes.iter().flatten().copied().collect();
        let place = |a: &usize| kept.iter().position(|k| k == a).unwrap_or(0);
        let order: Vec<usize> = order.iter().map(place).collect();
        let dropped: Vec<usize> = (0..shape.len()).filter(|a| !kept.contains(a)).collect();
        let new: Vec<usize> = (0..seen.axes.len())
            .filter(|&i| seen.axes[i].is_none())
            .collect();
        let mut steps: Vec<(Op, Vec<usize>, Vec<Dim>)> = Vec::new();
        let mut now: Vec<Dim> = kept.iter().map(|&a| shape[a].clone()).collect();
        if !dropped.is_empty() {
            steps.push((ShrinkDims.into(), dropped, now.clone()));
        }
        if !order.is_sorted() {
            now = order.iter().map(|&i| now[i].clone()).collect();
            steps.push((Transpose.into(), order, now.clone()));
        }
        if !new.is_empty() {
            new.iter().for_each(|&i| now.insert(i, Dim::Const(1)));
            steps.push((ExpandDims.into(), new, now));
        }
        let mut x = seen.base;
        for (op, how, shape) in steps {
            let how = self.numbers(&how);
            x = self.push(op, &[x, how], dtype, &shape);
        }
        if let Some(last) = self.done.last_mut() {
            last.outputs = vec![id];
        }
    }
}

/// Whether an element of the result is a function of the elements in the same place.
fn by_element(op: &Op) -> bool {
    matches!(
        op,
        Op::Add(_)
            | Op::BroadcastingAdd(_)
            | Op::Sub(_)
            | Op::BroadcastingSub(_)
            | Op::Mul(_)
            | Op::BroadcastingMul(_)
            | Op::Divide(_)
            | Op::BroadcastingDivide(_)
            | Op::Silu(_)
            | Op::Sigmoid(_)
            | Op::Tanh(_)
            | Op::Gelu(_)
            | Op::Erf(_)
            | Op::Exp(_)
            | Op::Log(_)
            | Op::Abs(_)
            | Op::Relu(_)
            | Op::Cast(_)
    )
}
