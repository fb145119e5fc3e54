//! What a rule sees of a graph: who made a value, its type, its contents where they are plain; and what a rule hands back.

use std::collections::HashMap;
use std::sync::Arc;

use russet_kernels::mem::SharedBytes;

use crate::graph::{ConstantData, Node, Storage, ValueId};
use crate::infer::Facts;
use crate::ops::Op;
use crate::ops::constant::{self, Constant};
use crate::ops::shape::axis;
use crate::tensor::Tensor;
use crate::types::{DType, Dim, TensorType, Type};

/// Constants of more elements are not looked at one by one.
const MANY: usize = 64;

/// See the module page.
pub(super) struct Sight<'a> {
    pub(super) facts: &'a Facts,
    pub(super) types: &'a [Type],
    pub(super) nodes: &'a [Node],
    pub(super) makers: &'a HashMap<ValueId, usize>,
}

/// Functions of two operands that rules tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pair {
    Add,
    Sub,
    Mul,
    Div,
    Product,
}

impl Pair {
    pub(super) fn of(op: &Op) -> Option<Self> {
        match op {
            Op::Add(_) | Op::BroadcastingAdd(_) => Some(Self::Add),
            Op::Sub(_) | Op::BroadcastingSub(_) => Some(Self::Sub),
            Op::Mul(_) | Op::BroadcastingMul(_) => Some(Self::Mul),
            Op::Divide(_) | Op::BroadcastingDivide(_) => Some(Self::Div),
            Op::BatchMatmul(_) | Op::BroadcastingBatchMatmul(_) => Some(Self::Product),
            _ => None,
        }
    }
}

impl<'a> Sight<'a> {
    /// The node that made a value; none for inputs.
    pub(super) fn maker(&self, id: ValueId) -> Option<&'a Node> {
        self.nodes.get(*self.makers.get(&id)?)
    }

    pub(super) fn ty(&self, id: ValueId) -> Option<&'a TensorType> {
        let declared = || self.types.get(id.index())?.as_tensor();
        self.facts.tensor(id).or_else(declared)
    }

    pub(super) fn dtype(&self, id: ValueId) -> Option<DType> {
        self.ty(id).map(|t| t.dtype)
    }

    pub(super) fn shape(&self, id: ValueId) -> Option<&'a [Dim]> {
        self.ty(id).map(|t| &t.shape[..])
    }

    /// The last extent.
    pub(super) fn width(&self, id: ValueId) -> Option<i64> {
        self.shape(id)?.last()?.as_const()
    }

    pub(super) fn rank(&self, id: ValueId) -> Option<usize> {
        self.shape(id).map(<[Dim]>::len)
    }

    /// The constant a value is.
    pub(super) fn data(&self, id: ValueId) -> Option<&'a Arc<ConstantData>> {
        match &self.maker(id)?.op {
            Op::Constant(c) => Some(&c.0),
            _ => None,
        }
    }

    /// The contents of a small integer tensor.
    pub(super) fn ints(&self, id: ValueId) -> Option<Vec<i64>> {
        if let Some(known) = self.facts.known(id) {
            return known.iter().map(Dim::as_const).collect();
        }
        let contents = constant::contents(self.data(id)?)?;
        contents.iter().map(Dim::as_const).collect()
    }

    /// The number that all elements of a constant are.
    pub(super) fn number(&self, id: ValueId) -> Option<f64> {
        let node = self.maker(id)?;
        let data = match &node.op {
            Op::Constant(c) => &c.0,
            Op::Cast(_)
            | Op::Reshape(_)
            | Op::ExpandDims(_)
            | Op::ShrinkDims(_)
            | Op::BroadcastTo(_) => return self.number(*node.inputs.first()?),
            _ => return None,
        };
        let splat = matches!(data.storage, Storage::Splat(_));
        if !data.ty.dtype.is_float() || data.is_empty() || data.len() > MANY && !splat {
            return None;
        }
        let values = Tensor::from_constant(data).ok()?;
        let first = values.get(0).float();
        let alike = splat || values.floats().iter().all(|v| *v == first);
        alike.then_some(first)
    }

    /// The operands of the node that made a value, where it is this function.
    pub(super) fn pair(&self, id: ValueId, kind: Pair) -> Option<[ValueId; 2]> {
        pair(self.maker(id)?, kind)
    }

    /// The operand of the node that made a value, where it is an operation of this kind.
    pub(super) fn made_by(&self, id: ValueId, is: impl Fn(&Op) -> bool) -> Option<&'a Node> {
        self.maker(id).filter(|n| is(&n.op))
    }

    /// What a value was before it was cast from one kind of float to another.
    pub(super) fn uncast(&self, mut id: ValueId) -> ValueId {
        while let Some(node) = self.made_by(id, |op| matches!(op, Op::Cast(_))) {
            let [from] = node.inputs[..] else { break };
            if !self.dtype(from).is_some_and(DType::is_float) {
                break;
            }
            id = from;
        }
        id
    }

    /// `x` and a number that it is multiplied with.
    pub(super) fn multiple(&self, id: ValueId) -> Option<(ValueId, f64)> {
        if let Some([a, b]) = self.pair(id, Pair::Mul) {
            let by = |x, n| Some((x, self.number(n)?));
            return by(a, b).or_else(|| by(b, a));
        }
        if let Some([x, by]) = self.pair(id, Pair::Div) {
            return Some((x, 1.0 / self.number(by)?));
        }
        let [zero, x] = self.pair(id, Pair::Sub)?;
        (self.number(zero)? == 0.0).then_some((x, -1.0))
    }

    /// `x` and a number that is added to it.
    pub(super) fn plus(&self, id: ValueId) -> Option<(ValueId, f64)> {
        let [a, b] = self.pair(id, Pair::Add)?;
        let and = |x, n| Some((x, self.number(n)?));
        and(a, b).or_else(|| and(b, a))
    }

    /// The operand of a reduction over the last axis only, which keeps it with extent 1.
    pub(super) fn along_last(&self, node: &Node) -> Option<ValueId> {
        let &[x, axes] = &node.inputs[..] else {
            return None;
        };
        let rank = self.rank(x)?;
        let last = |a: i64| axis(a, rank).is_ok_and(|a| a + 1 == rank);
        matches!(self.ints(axes)?[..], [a] if last(a)).then_some(x)
    }

    /// `x` and the elements of its last axis, from and to, that a slice takes, all other axes whole.
    pub(super) fn part_of_rows(&self, id: ValueId) -> Option<(ValueId, i64, i64)> {
        let node = self.made_by(id, |op| matches!(op, Op::Slice(_)))?;
        let &[x, begin, _, stride] = &node.inputs[..] else {
            return None;
        };
        let (from, to) = (self.shape(x)?, self.shape(id)?);
        let (begin, stride) = (self.ints(begin)?, self.ints(stride)?);
        let (first, lead) = begin.split_last()?;
        let others = from.len().checked_sub(1)?;
        let whole = from[..others] == to[..others] && lead.iter().all(|b| *b == 0);
        let (n, count) = (from[others].as_const()?, to.last()?.as_const()?);
        let first = if *first < 0 { first + n } else { *first };
        (whole && stride.iter().all(|s| *s == 1) && first >= 0 && first + count <= n).then_some((
            x,
            first,
            first + count,
        ))
    }

    /// Tensors that are put one behind the other along the last axis.
    pub(super) fn joined_rows(&self, id: ValueId) -> Option<&'a [ValueId]> {
        let node = self.made_by(id, |op| matches!(op, Op::Concat(_)))?;
        let (at, parts) = node.inputs.split_first()?;
        let rank = self.rank(id)?;
        let last = |a: i64| axis(a, rank).is_ok_and(|a| a + 1 == rank);
        matches!(self.ints(*at)?[..], [a] if last(a)).then_some(parts)
    }
}

/// The operands of a node, where it is this function.
pub(super) fn pair(node: &Node, kind: Pair) -> Option<[ValueId; 2]> {
    let operands = <[ValueId; 2]>::try_from(&node.inputs[..]).ok()?;
    (Pair::of(&node.op) == Some(kind)).then_some(operands)
}

/// Nodes that stand in the place of one.
pub(super) struct Patch {
    first: usize,
    types: Vec<Type>,
    nodes: Vec<Node>,
}

impl Patch {
    /// An empty one.
    pub(super) fn new(sight: &Sight<'_>) -> Self {
        Self {
            first: sight.types.len(),
            types: Vec::new(),
            nodes: Vec::new(),
        }
    }

    fn value(&mut self, ty: TensorType) -> ValueId {
        let id = u32::try_from(self.first + self.types.len()).unwrap_or(u32::MAX);
        self.types.push(ty.into());
        ValueId(id)
    }

    /// One more operation.
    pub(super) fn op(
        &mut self,
        op: impl Into<Op>,
        inputs: &[ValueId],
        dtype: DType,
        shape: &[Dim],
    ) -> ValueId {
        let id = self.value(TensorType::new(dtype, shape.iter().cloned()));
        self.nodes.push(Node::new(op, inputs, &[id]));
        id
    }

    pub(super) fn constant(&mut self, data: ConstantData) -> ValueId {
        let id = self.value(data.ty.clone());
        self.nodes
            .push(Node::new(Constant(Arc::new(data)), &[], &[id]));
        id
    }

    /// Integers, `[n]`.
    pub(super) fn ints(&mut self, values: &[i64]) -> ValueId {
        let values: Vec<i32> = values.iter().map(|v| *v as i32).collect();
        let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.constant(ConstantData {
            ty: TensorType::fixed(DType::I32, &[values.len()]),
            storage: Storage::Dense(SharedBytes::from_vec(bytes)),
        })
    }

    /// One integer.
    pub(super) fn scalar(&mut self, value: i64) -> ValueId {
        let bytes = (value as i32).to_le_bytes().to_vec();
        self.constant(ConstantData {
            ty: TensorType::fixed(DType::I32, &[]),
            storage: Storage::Dense(SharedBytes::from_vec(bytes)),
        })
    }

    /// The operation that gives what `root` gave.
    pub(super) fn finish(mut self, op: impl Into<Op>, inputs: &[ValueId], root: &Node) -> Self {
        self.nodes.push(Node {
            location: root.location.clone(),
            ..Node::new(op, inputs, &root.outputs)
        });
        self
    }

    /// Adds its values to the graph's, and hands out its nodes.
    pub(super) fn apply(self, values: &mut Vec<Type>) -> Vec<Node> {
        values.extend(self.types);
        self.nodes
    }
}

/// `n` ones of a kind.
pub(super) fn ones(dtype: DType, n: i64) -> Option<ConstantData> {
    let one = Tensor::from_floats(dtype, &[1], &[1.0]).ok()?;
    Some(ConstantData {
        ty: TensorType::new(dtype, [Dim::Const(n)]),
        storage: Storage::Splat(one.bytes().clone()),
    })
}
