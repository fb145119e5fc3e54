//! Operations that compute: each becomes one step, or a few.

use std::sync::Arc;

use russet_kernels::elem::Rounding;

use super::{Lower, Lowering, Value, ViewDraft, What, captured};
use crate::error::OpError;
use crate::exec::build::Home;
use crate::exec::kernels::{self, Binary, Instruction, ReduceKind, Unary, Weights};
use crate::exec::layout::Layout;
use crate::graph::{ConstantData, Node, Storage, ValueId};
use crate::ops::Op;
use crate::ops::constant::Constant;
use crate::ops::gelu::Approximate;
use crate::ops::scatter_along_axis::ScatterMode;
use crate::ops::shape::axis;
use crate::tensor::Tensor;
use crate::types::{Class, DType, Dim};

/// A unary step from the function of a float (and of an integer, identity by default).
macro_rules! unary {
    ($self:ident, $node:ident, $float:expr) => {
        unary!($self, $node, $float, |x: i64| x)
    };
    ($self:ident, $node:ident, $float:expr, $int:expr) => {
        $self.unary($node, Unary::new($float, $int))
    };
}

macro_rules! binary {
    ($self:ident, $node:ident, $float:expr, $int:expr) => {
        $self.binary($node, Binary::new($float, $int))
    };
}

fn truth(x: bool) -> f32 {
    f32::from(u8::from(x))
}

impl Lowering<'_> {
    /// Lowers a node that computes.
    pub(super) fn compute_node(&mut self, node: &Node) -> Lower<()> {
        if let Op::OpaqueKernel(kernel) = &node.op {
            return Err(kernel.refusal());
        }
        if !self.plain_kinds(node) {
            return self.reference(node);
        }
        match &node.op {
            Op::Concat(_) => self.concat(node.outputs[0], node.inputs[0], &node.inputs[1..]),
            Op::BlockwiseShiftScale(_) => self.blockwise(node),
            Op::BatchMatmul(_) | Op::BroadcastingBatchMatmul(_) => self.matmul(node),
            Op::Cast(_) => {
                let x = self.view(node.inputs[0])?;
                self.emit_for(node.outputs[0], "cast", kernels::Cast, vec![x])?;
                self.mark(self.function(node));
                Ok(())
            }
            Op::BroadcastingWhere(_) | Op::Where(_) => self.choose(node),
            Op::ReduceSum(_) => self.reduce(node, ReduceKind::Sum),
            Op::ReduceMean(_) => self.reduce(node, ReduceKind::Mean),
            Op::ReduceMax(_) => self.reduce(node, ReduceKind::Max),
            Op::ReduceMin(_) => self.reduce(node, ReduceKind::Min),
            Op::ReduceProduct(_) => self.reduce(node, ReduceKind::Product),
            Op::Softmax(_) => self.softmax(node),
            Op::Sort(_) => self.sort(node, false),
            Op::Argsort(_) => self.sort(node, true),
            Op::GatherNd(_) => self.gather_nd(node),
            Op::GatherAlongAxis(_) => {
                let (at, rank) = (self.axis_of(node, 2)?, self.ty(node.outputs[0])?.1.len());
                let views = self.views(&node.inputs[..2])?;
                self.emit_for(
                    node.outputs[0],
                    "gather_along_axis",
                    kernels::GatherAlong {
                        axis: axis(at, rank)?,
                    },
                    views,
                )
            }
            Op::ScatterAlongAxis(op) if op.mode == ScatterMode::Update => {
                let (at, rank) = (self.axis_of(node, 3)?, self.ty(node.outputs[0])?.1.len());
                let views = self.views(&node.inputs[..3])?;
                self.emit_for(
                    node.outputs[0],
                    "scatter_along_axis",
                    kernels::ScatterAlong {
                        axis: axis(at, rank)?,
                    },
                    views,
                )
            }
            Op::Range(_) => {
                let views = self.views(&node.inputs)?;
                self.emit_for(node.outputs[0], "range", kernels::Range, views)
            }
            _ => self.elementwise(node),
        }
    }

    /// Whether every operand and result is of a kind that kernels read: whole bytes, not complex, not wide or tiny floats.
    fn plain_kinds(&self, node: &Node) -> bool {
        let plain = |dtype: DType| {
            dtype.size().is_some()
                && dtype.class() != Class::Complex
                && (!dtype.is_float() || matches!(dtype, DType::F32 | DType::F16 | DType::BF16))
        };
        let ids = node.inputs.iter().chain(&node.outputs);
        let kinds = |id: &ValueId| self.facts.tensor(*id).map(|t| t.dtype);
        matches!(node.op, Op::BlockwiseShiftScale(_)) || ids.filter_map(kinds).all(plain)
    }

    fn elementwise(&mut self, node: &Node) -> Lower<()> {
        match &node.op {
            Op::Silu(_) => unary!(self, node, |x| x / (1.0 + (-x).exp())),
            Op::Sigmoid(_) => unary!(self, node, |x| 1.0 / (1.0 + (-x).exp())),
            Op::Tanh(_) => unary!(self, node, f32::tanh),
            Op::Exp(_) => unary!(self, node, f32::exp),
            Op::Log(_) => unary!(self, node, f32::ln),
            Op::Sin(_) => unary!(self, node, f32::sin),
            Op::Cos(_) => unary!(self, node, f32::cos),
            Op::Sqrt(_) => unary!(self, node, f32::sqrt),
            Op::Rsqrt(_) => unary!(self, node, |x| 1.0 / x.sqrt()),
            Op::Abs(_) => unary!(self, node, f32::abs, i64::wrapping_abs),
            Op::Relu(_) => unary!(
                self,
                node,
                |x| if x > 0.0 || x.is_nan() { x } else { 0.0 },
                |x| x.max(0)
            ),
            Op::Not(_) => unary!(self, node, |x| truth(x == 0.0), |x| i64::from(x == 0)),
            Op::Gelu(op) => {
                let (op, dtype) = (*op, self.ty(node.inputs[0])?.0);
                unary!(self, node, move |x| op.apply(dtype, f64::from(x)) as f32)
            }
            Op::Add(_) | Op::BroadcastingAdd(_) => {
                binary!(self, node, |a, b| a + b, i64::wrapping_add)
            }
            Op::Sub(_) | Op::BroadcastingSub(_) => {
                binary!(self, node, |a, b| a - b, i64::wrapping_sub)
            }
            Op::Mul(_) | Op::BroadcastingMul(_) => {
                binary!(self, node, |a, b| a * b, i64::wrapping_mul)
            }
            Op::Greater(_) | Op::BroadcastingGreater(_) => {
                binary!(self, node, |a, b| truth(a > b), |a, b| i64::from(a > b))
            }
            Op::Equal(_) | Op::BroadcastingEqual(_) => {
                binary!(self, node, |a, b| truth(a == b), |a, b| i64::from(a == b))
            }
            Op::NotEqual(_) | Op::BroadcastingNotEqual(_) => {
                binary!(self, node, |a, b| truth(a != b), |a, b| i64::from(a != b))
            }
            Op::And(_) | Op::BroadcastingAnd(_) => {
                binary!(self, node, |a, _| a, |a, b| i64::from(a != 0 && b != 0))
            }
            Op::Or(_) | Op::BroadcastingOr(_) => {
                binary!(self, node, |a, _| a, |a, b| i64::from(a != 0 || b != 0))
            }
            Op::Xor(_) | Op::BroadcastingXor(_) => {
                binary!(self, node, |a, _| a, |a, b| i64::from((a != 0) != (b != 0)))
            }
            Op::Divide(_) | Op::BroadcastingDivide(_) if self.is_float(node.inputs[0]) => {
                binary!(self, node, |a, b| a / b, |a, _| a)
            }
            _ => self.reference(node),
        }
    }

    fn is_float(&self, id: ValueId) -> bool {
        self.facts.tensor(id).is_some_and(|t| t.dtype.is_float())
    }

    fn unary(&mut self, node: &Node, kernel: impl kernels::Kernel + 'static) -> Lower<()> {
        let x = self.view(node.inputs[0])?;
        self.emit_for(node.outputs[0], node.op.name(), kernel, vec![x])?;
        self.mark(self.function(node));
        Ok(())
    }

    /// What a step of one operation on floats is.
    fn function(&self, node: &Node) -> What {
        let compares = matches!(node.op, Op::Greater(_) | Op::BroadcastingGreater(_));
        let last = node.inputs.last().is_some_and(|&id| self.is_float(id));
        let floats = last && (compares || self.is_float(node.outputs[0]));
        match operation(&node.op).filter(|_| floats) {
            Some(operation) => {
                let loads = (0..node.inputs.len()).map(Instruction::Load);
                What::Elementwise(loads.chain(operation).collect())
            }
            None => What::Rows,
        }
    }

    fn binary(&mut self, node: &Node, kernel: impl kernels::Kernel + 'static) -> Lower<()> {
        let (_, shape) = self.ty(node.outputs[0])?;
        let views = self.broadcasts(&node.inputs, &shape)?;
        self.emit_for(node.outputs[0], node.op.name(), kernel, views)?;
        self.mark(self.function(node));
        Ok(())
    }

    /// Operands as views of one shape.
    fn broadcasts(&mut self, ids: &[ValueId], shape: &[Dim]) -> Lower<Vec<ViewDraft>> {
        ids.iter()
            .map(|&id| {
                let x = self.view(id)?;
                let layout = x
                    .layout
                    .broadcast(shape)
                    .ok_or(OpError::Unknown("a broadcast"))?;
                Ok(ViewDraft { layout, ..x })
            })
            .collect()
    }

    fn choose(&mut self, node: &Node) -> Lower<()> {
        let (_, shape) = self.ty(node.outputs[0])?;
        let views = self.broadcasts(&node.inputs, &shape)?;
        self.emit_for(node.outputs[0], node.op.name(), kernels::Where, views)?;
        self.mark(self.function(node));
        Ok(())
    }

    /// The constant integer in an operand.
    fn axis_of(&self, node: &Node, operand: usize) -> Lower<i64> {
        let value = node.inputs.get(operand).and_then(|&id| self.ints(id));
        value
            .and_then(|v| v.first().copied())
            .ok_or(OpError::Unknown("an axis"))
    }

    fn reduce(&mut self, node: &Node, kind: ReduceKind) -> Lower<()> {
        if !self.is_float(node.inputs[0]) {
            return self.reference(node);
        }
        let x = self.view(node.inputs[0])?;
        let rank = x.layout.shape.len();
        let axes = self
            .ints(node.inputs[1])
            .ok_or(OpError::Unknown("the axes of a reduction"))?;
        let axes = axes
            .iter()
            .map(|&a| axis(a, rank))
            .collect::<Result<Vec<_>, _>>()?;
        let kernel = kernels::Reduce { kind, axes };
        self.emit_for(node.outputs[0], node.op.name(), kernel.clone(), vec![x])?;
        self.mark(What::Reduce(kernel));
        Ok(())
    }

    fn softmax(&mut self, node: &Node) -> Lower<()> {
        let x = self.view(node.inputs[0])?;
        let axis = axis(self.axis_of(node, 1)?, x.layout.shape.len())?;
        self.emit_for(
            node.outputs[0],
            "softmax",
            kernels::Softmax { axis },
            vec![x],
        )
    }

    /// Operands: tensor, axis, descending, stable.
    fn sort(&mut self, node: &Node, indices: bool) -> Lower<()> {
        let x = self.view(node.inputs[0])?;
        let axis = axis(self.axis_of(node, 1)?, x.layout.shape.len())?;
        let descending = self.axis_of(node, 2)? != 0;
        let kernel = kernels::Sort {
            axis,
            descending,
            indices,
            both: false,
            first: usize::MAX,
        };
        self.emit_for(node.outputs[0], node.op.name(), kernel.clone(), vec![x])?;
        self.mark(What::Sort(kernel));
        Ok(())
    }

    /// The constant a value is, in the file or by decompression.
    fn constant_of(&self, id: ValueId) -> Option<Arc<ConstantData>> {
        if let Some(constant) = self.facts.constant(id) {
            return Some(constant.clone());
        }
        match self.values.get(&id) {
            Some(Value::View(ViewDraft {
                home: Home::Constant(c),
                layout,
                ..
            })) if layout.is_contiguous() => {
                let shape = c.ty.shape == layout.shape;
                shape.then(|| c.clone())
            }
            _ => None,
        }
    }

    fn blockwise(&mut self, node: &Node) -> Lower<()> {
        let (dtype, _) = self.ty(node.outputs[0])?;
        let parts: Option<Vec<_>> = node.inputs[1..]
            .iter()
            .map(|&id| self.constant_of(id))
            .collect();
        let weights = parts.and_then(|p| {
            let parameters = [&*p[0], &*p[1], &*p[2]];
            match (
                self.constant_of(node.inputs[0]),
                self.compressed(node.inputs[0]),
            ) {
                (Some(data), _) => Weights::codes(dtype, &data, parameters),
                (None, Some(palette)) => palette.scaled(dtype, parameters),
                (None, None) => None,
            }
        });
        match weights {
            Some(weights) => self.keep_compressed(node.outputs[0], weights),
            None => self.reference(node),
        }
    }

    /// Compressed weights whose elements lie in the order of the value.
    fn compressed(&self, id: ValueId) -> Option<Arc<Weights>> {
        match self.values.get(&id)? {
            Value::Weights {
                weights,
                transposed: false,
            } => Some(weights.clone()),
            Value::Stack { weights, layout } if layout.is_contiguous() => Some(weights.clone()),
            _ => None,
        }
    }

    fn keep_compressed(&mut self, id: ValueId, weights: Weights) -> Lower<()> {
        let (_, shape) = self.ty(id)?;
        let weights = Arc::new(weights);
        let value = if shape.len() > 2 {
            let layout = Layout::contiguous(&shape);
            Value::Stack { weights, layout }
        } else {
            Value::Weights {
                weights,
                transposed: false,
            }
        };
        self.values.insert(id, value);
        Ok(())
    }

    /// Keeps a palette compressed where kernels read it: tables of plain floats, or of anything that is scaled to such.
    pub(super) fn palette_node(&mut self, node: &Node) -> Lower<bool> {
        if !matches!(node.op, Op::LutToDense(_)) {
            return Ok(false);
        }
        let id = node.outputs[0];
        let (Some(indices), Some(lut)) = (
            self.constant_of(node.inputs[0]),
            self.constant_of(node.inputs[1]),
        ) else {
            return Ok(false);
        };
        let plain = matches!(lut.ty.dtype, DType::F32 | DType::F16 | DType::BF16);
        let axis = self.axis_of(node, 2).unwrap_or(0);
        let weights = Weights::palette(&indices, &lut, axis);
        match weights.filter(|_| plain || self.only_scaled(id)) {
            Some(weights) => self.keep_compressed(id, weights).map(|()| true),
            None => Ok(false),
        }
    }

    /// Whether a value is nothing but the data of `blockwise_shift_scale`.
    fn only_scaled(&self, id: ValueId) -> bool {
        let body = &self.graph.body;
        let other = |n: &Node| {
            let data = matches!(n.op, Op::BlockwiseShiftScale(_)) && n.inputs[0] == id;
            let operands = n.inputs.iter().skip(usize::from(data));
            operands.copied().chain(captured(n)).any(|i| i == id)
        };
        !body.results.contains(&id) && !body.nodes.iter().any(other)
    }

    /// Weights that a product with `id` as its right operand may read row by row.
    fn right_weights(&self, id: ValueId) -> Option<Arc<Weights>> {
        match self.weights(id) {
            Some((weights, true)) => return Some(weights),
            Some((weights, false)) => return weights.turned().map(Arc::new),
            None => {}
        }
        let Some(Value::View(ViewDraft {
            home: Home::Constant(c),
            layout,
            ..
        })) = self.values.get(&id)
        else {
            return None;
        };
        let weights = Weights::dense(c).filter(|_| c.ty.shape.len() == 2)?;
        let [n, k] = weights.shape().map(Dim::from);
        let transposed = layout.shape == [k.clone(), n] && layout.strides == [Dim::Const(1), k];
        transposed.then(|| Arc::new(weights))
    }

    fn matmul(&mut self, node: &Node) -> Lower<()> {
        let (id, right) = (node.outputs[0], node.inputs[1]);
        if let Some(weights) = self.right_weights(right) {
            let x = self.view(node.inputs[0])?;
            let x = self.contiguous(x);
            self.emit_for(id, "linear", kernels::Linear(weights.clone()), vec![x])?;
            self.mark(What::Linear(weights));
            return Ok(());
        }
        let (_, shape) = self.ty(id)?;
        if shape.len() < 2 || !self.is_float(node.inputs[0]) {
            return self.reference(node);
        }
        let (a, b) = (self.view(node.inputs[0])?, self.view(right)?);
        let (Some(rows), Some(inner)) = (tail(&a), tail(&b)) else {
            return self.reference(node);
        };
        let lead = &shape[..shape.len() - 2];
        let widen = |x: ViewDraft, last: &[Dim]| {
            let shape: Vec<Dim> = lead.iter().chain(last).cloned().collect();
            x.layout
                .broadcast(&shape)
                .map(|layout| ViewDraft { layout, ..x })
                .ok_or(OpError::Unknown("a broadcast"))
        };
        // The reference runtime sums bf16 in f32 where no operand is repeated, and rounds every step otherwise.
        let repeated = lead_of(&a) != lead_of(&b);
        let rounding = match self.ty(id)?.0 {
            DType::F16 => Rounding::F16,
            DType::BF16 if repeated => Rounding::Bf16,
            _ => Rounding::F32,
        };
        let (a, b) = (widen(a, &rows)?, widen(b, &inner)?);
        self.emit_for(id, "matmul", kernels::Matmul { rounding }, vec![a, b])?;
        self.mark(What::Matmul);
        Ok(())
    }

    fn gather_nd(&mut self, node: &Node) -> Lower<()> {
        let indices = self.view(node.inputs[1])?;
        let one_deep = indices.layout.shape.last() == Some(&Dim::Const(1));
        match self.weights(node.inputs[0]) {
            Some((weights, false)) if one_deep => self.emit_for(
                node.outputs[0],
                "gather_rows",
                kernels::GatherRows(weights),
                vec![indices],
            ),
            _ => {
                let x = self.view(node.inputs[0])?;
                self.emit_for(
                    node.outputs[0],
                    "gather_nd",
                    kernels::GatherNd,
                    vec![x, indices],
                )
            }
        }
    }

    /// Compressed weights that no kernel reads are spelled out once, here, rather than at every call.
    fn decompressed(&mut self, node: &Node) -> Lower<bool> {
        let compressed = matches!(
            node.op,
            Op::LutToDense(_)
                | Op::BuildSparseWithBitmask(_)
                | Op::LutToSparseWithBitmask(_)
                | Op::SparseWithBitmaskToDense(_)
        );
        let constants = node.inputs.iter().map(|&id| self.constant_of(id));
        let Some(inputs) = constants.collect::<Option<Vec<_>>>().filter(|_| compressed) else {
            return Ok(false);
        };
        let inputs = inputs.iter().map(|c| Tensor::from_constant(c));
        let results = node.op.reference(&inputs.collect::<Result<Vec<_>, _>>()?)?;
        for (&id, result) in node.outputs.iter().zip(results) {
            let data = ConstantData {
                ty: result.ty(),
                storage: Storage::Dense(result.bytes().clone()),
            };
            let view = self.constant(id, &Constant(Arc::new(data)))?;
            self.set(id, view);
        }
        Ok(true)
    }

    /// Any operation, by its reference.
    pub(super) fn reference(&mut self, node: &Node) -> Lower<()> {
        if self.decompressed(node)? {
            return Ok(());
        }
        let mut values = node.inputs.clone();
        values.extend(captured(node));
        let inputs = self.views(&values)?;
        let mut outputs = Vec::new();
        for &id in &node.outputs {
            let (dtype, shape) = self.ty(id)?;
            let out = self.buffer(dtype, &shape);
            self.set(id, out.clone());
            outputs.push(out);
        }
        let graph = crate::graph::Graph {
            body: crate::graph::Block::default(),
            ..self.graph.clone()
        };
        let kernel = kernels::Reference {
            module: Arc::new(self.module.clone()),
            graph: Arc::new(graph),
            node: node.clone(),
            values,
        };
        self.emit(node.op.name(), kernel, inputs, outputs);
        Ok(())
    }
}

/// What an operation does with the values of its operands, all floats but the condition of a choice; nothing where the kernels
/// have no such function, and a cast has none to compute.
fn operation(op: &Op) -> Option<Option<Instruction>> {
    use russet_kernels::elementwise::{Binary as B, Unary as U};
    let unary = |op| Some(Some(Instruction::Unary(op)));
    let binary = |op| Some(Some(Instruction::Binary(op)));
    match op {
        Op::Cast(_) => Some(None),
        Op::Silu(_) => unary(U::Silu),
        Op::Sigmoid(_) => unary(U::Sigmoid),
        Op::Tanh(_) => unary(U::Tanh),
        Op::Exp(_) => unary(U::Exp),
        Op::Log(_) => unary(U::Log),
        Op::Sin(_) => unary(U::Sin),
        Op::Cos(_) => unary(U::Cos),
        Op::Sqrt(_) => unary(U::Sqrt),
        Op::Rsqrt(_) => unary(U::Rsqrt),
        Op::Abs(_) => unary(U::Abs),
        Op::Gelu(gelu) => match gelu.approximate {
            Approximate::None => unary(U::Gelu),
            Approximate::Tanh => unary(U::GeluTanh),
            Approximate::Sigmoid => None,
        },
        Op::Add(_) | Op::BroadcastingAdd(_) => binary(B::Add),
        Op::Sub(_) | Op::BroadcastingSub(_) => binary(B::Sub),
        Op::Mul(_) | Op::BroadcastingMul(_) => binary(B::Mul),
        Op::Divide(_) | Op::BroadcastingDivide(_) => binary(B::Div),
        Op::Greater(_) | Op::BroadcastingGreater(_) => binary(B::Greater),
        Op::BroadcastingWhere(_) | Op::Where(_) => Some(Some(Instruction::Select)),
        _ => None,
    }
}

/// All extents but the last two.
fn lead_of(x: &ViewDraft) -> &[Dim] {
    &x.layout.shape[..x.layout.shape.len().saturating_sub(2)]
}

/// The last two extents.
fn tail(x: &ViewDraft) -> Option<[Dim; 2]> {
    let shape = &x.layout.shape;
    let at = shape.len().checked_sub(2)?;
    Some([shape[at].clone(), shape[at + 1].clone()])
}
