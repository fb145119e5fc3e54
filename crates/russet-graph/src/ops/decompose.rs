//! What a whole composite means in plain operations: a graph for operands of given types.
//!
//! The graphs follow the arithmetic of the bodies that exporters write, rounding by rounding, so that a composite run whole and
//! its decomposition differ by the last places of a sum at most.

use crate::error::OpError;
use crate::graph::{Block, ConstantData, Graph, Node, Storage, ValueId};
use crate::ops::constant::Constant;
use crate::ops::fused_interleaved_embedding_gather_dequant_reshape::FusedInterleavedEmbeddingGatherDequantReshape;
use crate::ops::rope::Part;
use crate::ops::rope_cached_cos_sin_gather::RopeCachedCosSinGather;
use crate::ops::scaled_dot_product_attention::ScaledDotProductAttention;
use crate::ops::*;
use crate::tensor::Tensor;
use crate::types::DType;

/// The graph that `op` stands for, for operands of these types; `None` for operations that are not composites.
///
/// # Errors
/// What inference of the composite or of a part of its body reports.
pub fn decompose(op: &Op, operands: &[TensorType]) -> Result<Option<Graph>, OpError> {
    let types: Vec<Type> = operands.iter().cloned().map(Type::Tensor).collect();
    let known: Vec<Operand<'_>> = types
        .iter()
        .map(|ty| Operand {
            ty,
            known: None,
            constant: None,
        })
        .collect();
    let Some((_, build)) = BODIES.iter().find(|(name, _)| *name == op.name()) else {
        return Ok(None);
    };
    op.infer(Operands(&known))?;
    let mut body = Body::new(op.name());
    let inputs: Vec<ValueId> = operands.iter().map(|t| body.input(t)).collect();
    for id in build(&mut body, op, &inputs)? {
        body.graph.add_output("", id);
    }
    Ok(Some(body.graph))
}

/// The names of all composites of the op table.
pub fn composites() -> impl Iterator<Item = &'static str> {
    BODIES.iter().map(|(name, _)| *name)
}

type Built = Result<Vec<ValueId>, OpError>;

/// Appends the body of an operation for operands, and gives its results.
type Build = fn(&mut Body, &Op, &[ValueId]) -> Built;

const BODIES: [(&str, Build); 7] = [
    (rms_norm::RmsNorm::NAME, rms_norm),
    (rope::Rope::NAME, rope_body),
    (ScaledDotProductAttention::NAME, attention),
    (gated_delta_update::GatedDeltaUpdate::NAME, gated_delta),
    (gather_mm::GatherMm::NAME, gathered_product),
    (RopeCachedCosSinGather::NAME, cached_tables),
    (
        FusedInterleavedEmbeddingGatherDequantReshape::NAME,
        embedding_rows,
    ),
];

/// A graph under construction, with what is known of its values.
struct Body {
    graph: Graph,
    facts: Vec<Fact>,
}

impl Body {
    fn new(name: &str) -> Self {
        Self {
            graph: Graph::new(name),
            facts: Vec::new(),
        }
    }

    fn value(&mut self, fact: Fact) -> ValueId {
        let id = self.graph.add_value(fact.ty.clone());
        self.facts.push(fact);
        id
    }

    fn input(&mut self, ty: &TensorType) -> ValueId {
        let id = self.graph.add_input("", ty.clone());
        self.facts.push(ty.clone().into());
        id
    }

    fn ty(&self, id: ValueId) -> Result<&TensorType, OpError> {
        let ty = self.facts.get(id.index()).and_then(|f| f.ty.as_tensor());
        ty.ok_or(OpError::Unknown("the type of a value"))
    }

    /// A constant extent of a value.
    fn extent(&self, id: ValueId, axis: usize) -> Result<i64, OpError> {
        let extent = self.ty(id)?.shape.get(axis).and_then(Dim::as_const);
        extent.ok_or(OpError::Unknown("an extent of a composite"))
    }

    /// Appends an operation and gives its only result.
    fn op(&mut self, op: impl Into<Op>, inputs: &[ValueId]) -> Result<ValueId, OpError> {
        let op = op.into();
        let operands: Vec<Operand<'_>> = inputs
            .iter()
            .filter_map(|id| self.facts.get(id.index()))
            .map(|f| Operand {
                ty: &f.ty,
                known: f.known.clone(),
                constant: None,
            })
            .collect();
        let fact = op.infer(Operands(&operands))?.into_iter().next();
        let out = self.value(fact.ok_or(OpError::Unknown("a result"))?);
        self.graph.body.nodes.push(Node::new(op, inputs, &[out]));
        Ok(out)
    }

    fn constant(&mut self, t: &Tensor) -> Result<ValueId, OpError> {
        let data = ConstantData {
            ty: t.ty(),
            storage: Storage::Dense(t.bytes().clone()),
        };
        self.op(Constant(Arc::new(data)), &[])
    }

    fn ints(&mut self, values: &[i64]) -> Result<ValueId, OpError> {
        self.constant(&Tensor::from_ints(DType::I32, &[values.len()], values)?)
    }

    fn int(&mut self, value: i64) -> Result<ValueId, OpError> {
        self.constant(&Tensor::from_ints(DType::I32, &[], &[value])?)
    }

    fn float(&mut self, dtype: DType, value: f64) -> Result<ValueId, OpError> {
        self.constant(&Tensor::from_floats(dtype, &[], &[value])?)
    }

    fn cast(&mut self, x: ValueId, to: DType) -> Result<ValueId, OpError> {
        if self.ty(x)?.dtype == to {
            Ok(x)
        } else {
            self.op(cast::Cast { to }, &[x])
        }
    }

    fn add(&mut self, a: ValueId, b: ValueId) -> Result<ValueId, OpError> {
        self.op(broadcasting_add::BroadcastingAdd, &[a, b])
    }

    fn sub(&mut self, a: ValueId, b: ValueId) -> Result<ValueId, OpError> {
        self.op(broadcasting_sub::BroadcastingSub, &[a, b])
    }

    fn mul(&mut self, a: ValueId, b: ValueId) -> Result<ValueId, OpError> {
        self.op(broadcasting_mul::BroadcastingMul, &[a, b])
    }

    fn greater(&mut self, a: ValueId, b: ValueId) -> Result<ValueId, OpError> {
        self.op(broadcasting_greater::BroadcastingGreater, &[a, b])
    }

    fn expand(&mut self, x: ValueId, axes: &[i64]) -> Result<ValueId, OpError> {
        let axes = self.ints(axes)?;
        self.op(expand_dims::ExpandDims, &[x, axes])
    }

    fn transpose(&mut self, x: ValueId, order: &[i64]) -> Result<ValueId, OpError> {
        let order = self.ints(order)?;
        self.op(transpose::Transpose, &[x, order])
    }

    /// `x[begin..end]` of the last axis.
    fn last(&mut self, x: ValueId, begin: i64, end: i64, stride: i64) -> Result<ValueId, OpError> {
        let rank = self.ty(x)?.rank();
        let numbers = |other: i64, last: i64| {
            let mut all = vec![other; rank];
            all.splice(rank - 1.., [last]);
            all
        };
        let (begin, end, stride) = (
            numbers(0, begin),
            numbers(i64::from(i32::MAX), end),
            numbers(1, stride),
        );
        let bounds = [self.ints(&begin)?, self.ints(&end)?, self.ints(&stride)?];
        self.op(slice::Slice, &[x, bounds[0], bounds[1], bounds[2]])
    }

    /// The extent of an axis, as a vector of one number.
    fn length(&mut self, x: ValueId, axis: i64) -> Result<ValueId, OpError> {
        let shape = self.op(get_shape::GetShape, &[x])?;
        let (begin, end, stride) = (
            self.ints(&[axis])?,
            self.ints(&[axis + 1])?,
            self.ints(&[1])?,
        );
        let one = self.op(slice::Slice, &[shape, begin, end, stride])?;
        self.cast(one, DType::I32)
    }

    fn scalar(&mut self, x: ValueId) -> Result<ValueId, OpError> {
        let shape = self.ints(&[])?;
        self.op(reshape::Reshape, &[x, shape])
    }

    /// `begin, begin + 1, … end - 1`, all vectors of one number.
    fn range(&mut self, begin: ValueId, end: ValueId) -> Result<ValueId, OpError> {
        let (begin, end, step) = (self.scalar(begin)?, self.scalar(end)?, self.int(1)?);
        self.op(range::Range, &[begin, end, step])
    }

    fn concat(&mut self, axis: i64, parts: &[ValueId]) -> Result<ValueId, OpError> {
        let mut inputs = vec![self.int(axis)?];
        inputs.extend(parts);
        self.op(concat::Concat, &inputs)
    }

    /// A block whose arguments have the types of `carried`; what `inside` appends becomes its nodes.
    fn block(
        &mut self,
        carried: &[ValueId],
        inside: impl FnOnce(&mut Self, &[ValueId]) -> Built,
    ) -> Result<Block, OpError> {
        let mut args = Vec::new();
        for id in carried {
            let ty = self.ty(*id)?.clone();
            args.push(self.value(ty.into()));
        }
        let outer = std::mem::take(&mut self.graph.body.nodes);
        let results = inside(self, &args);
        let nodes = std::mem::replace(&mut self.graph.body.nodes, outer);
        Ok(Block {
            args,
            nodes,
            results: results?,
        })
    }
}

fn rms_norm(b: &mut Body, op: &Op, inputs: &[ValueId]) -> Built {
    let (Op::RmsNorm(op), [input, scale]) = (op, inputs) else {
        return Ok(Vec::new());
    };
    let dtype = b.ty(*input)?.dtype;
    let x = b.cast(*input, DType::F32)?;
    let square = b.mul(x, x)?;
    let axis = b.ints(&[-1])?;
    let mean = b.op(reduce_mean::ReduceMean, &[square, axis])?;
    let epsilon = b.float(DType::F32, op.eps)?;
    let sum = b.add(mean, epsilon)?;
    let factor = b.op(rsqrt::Rsqrt, &[sum])?;
    let x = b.mul(x, factor)?;
    let kind = b.ty(*scale)?.dtype;
    let x = b.cast(x, kind)?;
    let x = b.mul(x, *scale)?;
    Ok(vec![b.cast(x, dtype)?])
}

/// The positions of the rows of a rotation's input, as far as they differ.
fn rope_positions(b: &mut Body, op: &rope::Rope, inputs: &[ValueId]) -> Result<ValueId, OpError> {
    let rank = b.ty(inputs[0])?.rank();
    if let Some(at) = op.parts.place(Part::Positions) {
        let axes: Vec<i64> = (1..rank as i64 - 2).collect();
        return b.expand(inputs[at], &axes);
    }
    let (zero, q) = (b.ints(&[0])?, b.length(inputs[0], rank as i64 - 2)?);
    let range = b.range(zero, q)?;
    let Some(at) = op.parts.place(Part::Offset) else {
        return Ok(range);
    };
    let first = b.cast(inputs[at], DType::I32)?;
    let axes: Vec<i64> = (1..rank as i64 - 1).collect();
    let first = match b.ty(first)?.rank() {
        0 => first,
        _ => b.expand(first, &axes)?,
    };
    b.add(first, range)
}

/// Cosine and sine of every position and pair, in the kind of the input.
fn rope_tables(
    b: &mut Body,
    op: &rope::Rope,
    inputs: &[ValueId],
    pairs: usize,
) -> Result<[ValueId; 2], OpError> {
    if let [Some(cos), Some(sin)] = [Part::Cos, Part::Sin].map(|p| op.parts.place(p)) {
        return Ok([inputs[cos], inputs[sin]]);
    }
    let dtype = b.ty(inputs[0])?.dtype;
    let positions = rope_positions(b, op, inputs)?;
    let positions = b.cast(positions, DType::F32)?;
    let positions = b.expand(positions, &[-1])?;
    let turns = if let Some(at) = op.parts.place(Part::Frequencies) {
        let scale = b.float(DType::F32, op.scale)?;
        b.mul(inputs[at], scale)?
    } else {
        let turns: Vec<f64> = (0..pairs).map(|i| op.frequency(i, pairs).into()).collect();
        b.constant(&Tensor::from_floats(DType::F32, &[pairs], &turns)?)?
    };
    let angle = b.mul(positions, turns)?;
    let (cos, sin) = (b.op(cos::Cos, &[angle])?, b.op(sin::Sin, &[angle])?);
    Ok([b.cast(cos, dtype)?, b.cast(sin, dtype)?])
}

fn rope_body(b: &mut Body, op: &Op, inputs: &[ValueId]) -> Built {
    let Op::Rope(op) = op else {
        return Ok(Vec::new());
    };
    let input = inputs[0];
    let rank = b.ty(input)?.rank();
    let width = b.extent(input, rank - 1)?;
    let pairs = op.pairs(usize::try_from(width).unwrap_or(0))?;
    let [cos, sin] = rope_tables(b, op, inputs, pairs)?;
    let half = pairs as i64;
    let (x, y) = if op.interleaved {
        (
            b.last(input, 0, 2 * half, 2)?,
            b.last(input, 1, 2 * half, 2)?,
        )
    } else {
        (
            b.last(input, 0, half, 1)?,
            b.last(input, half, 2 * half, 1)?,
        )
    };
    let (cx, sy) = (b.mul(cos, x)?, b.mul(sin, y)?);
    let (sx, cy) = (b.mul(sin, x)?, b.mul(cos, y)?);
    let (first, second) = (b.sub(cx, sy)?, b.add(sx, cy)?);
    let last = rank as i64 - 1;
    let mut out = if op.interleaved {
        let (first, second) = (b.expand(first, &[-1])?, b.expand(second, &[-1])?);
        let pairs = b.concat(last + 1, &[first, second])?;
        let q = b.length(input, last - 1)?;
        let mut shape = Vec::new();
        for axis in 0..last - 1 {
            shape.push(b.length(input, axis)?);
        }
        shape.extend([q, b.ints(&[2 * half])?]);
        let shape = b.concat(0, &shape)?;
        b.op(reshape::Reshape, &[pairs, shape])?
    } else {
        b.concat(last, &[first, second])?
    };
    if 2 * half < width {
        let rest = b.last(input, 2 * half, width, 1)?;
        out = b.concat(last, &[out, rest])?;
    }
    Ok(vec![out])
}

/// Keys or values `[b, kv, s, width]`, every head as often as query heads share it.
fn repeated(b: &mut Body, x: ValueId, times: i64) -> Result<ValueId, OpError> {
    if times == 1 {
        return Ok(x);
    }
    let (heads, width) = (b.extent(x, 1)?, b.extent(x, 3)?);
    let (batch, length, last) = (b.length(x, 0)?, b.length(x, 2)?, b.ints(&[width])?);
    let apart = b.ints(&[heads, times])?;
    let x = b.expand(x, &[2])?;
    let shape = b.concat(0, &[batch, apart, length, last])?;
    let x = b.op(broadcast_to::BroadcastTo, &[x, shape])?;
    let all = b.ints(&[heads * times])?;
    let shape = b.concat(0, &[batch, all, length, last])?;
    b.op(reshape::Reshape, &[x, shape])
}

/// Whether a query does not see a key, by their positions: bools `[q, s]`.
fn hidden(
    b: &mut Body,
    op: &ScaledDotProductAttention,
    q: ValueId,
    k: ValueId,
) -> Result<ValueId, OpError> {
    let (m, s) = (b.length(q, 2)?, b.length(k, 2)?);
    let (zero, first) = (b.ints(&[0])?, b.sub(s, m)?);
    let (rows, columns) = (b.range(first, s)?, b.range(zero, s)?);
    let (rows, columns) = (b.expand(rows, &[1])?, b.expand(columns, &[0])?);
    let width = b.int(op.window as i64 - 1)?;
    let later = if op.causal {
        b.greater(columns, rows)?
    } else {
        let reach = b.add(rows, width)?;
        b.greater(columns, reach)?
    };
    if op.window == 0 {
        return Ok(later);
    }
    let reach = b.add(columns, width)?;
    let early = b.greater(rows, reach)?;
    b.op(broadcasting_or::BroadcastingOr, &[later, early])
}

/// Probabilities of scores `[b, heads, q, s]`. The sink of a head is one more score, whose probability is left out.
fn probabilities(
    b: &mut Body,
    scores: ValueId,
    sinks: Option<&ValueId>,
) -> Result<ValueId, OpError> {
    let axis = b.int(-1)?;
    let Some(sinks) = sinks else {
        return b.op(softmax::Softmax, &[scores, axis]);
    };
    let shape = b.op(get_shape::GetShape, &[scores])?;
    let parts = [[0], [3], [1]].map(|v| b.ints(&v));
    let [begin, end, step] = parts;
    let rows = b.op(slice::Slice, &[shape, begin?, end?, step?])?;
    let one = b.ints(&[1])?;
    let rows = b.cast(rows, DType::I32)?;
    let column = b.concat(0, &[rows, one])?;
    let sinks = b.expand(*sinks, &[1, 2])?;
    let sinks = b.op(broadcast_to::BroadcastTo, &[sinks, column])?;
    let all = b.concat(3, &[scores, sinks])?;
    let all = b.op(softmax::Softmax, &[all, axis])?;
    let (begin, steps) = (b.ints(&[0; 4])?, b.ints(&[1; 4])?);
    b.op(slice::Slice, &[all, begin, shape, steps])
}

fn attention(b: &mut Body, op: &Op, inputs: &[ValueId]) -> Built {
    let (Op::ScaledDotProductAttention(op), [q, k, v, ..]) = (op, inputs) else {
        return Ok(Vec::new());
    };
    let dtype = b.ty(*q)?.dtype;
    let times = b.extent(*q, 1)? / b.extent(*k, 1)?.max(1);
    let width = usize::try_from(b.extent(*q, 3)?).unwrap_or(0);
    let factor = b.float(dtype, op.factor(width, dtype))?;
    let scaled = b.mul(*q, factor)?;
    let (keys, values) = (repeated(b, *k, times)?, repeated(b, *v, times)?);
    let keys = b.transpose(keys, &[0, 1, 3, 2])?;
    let mut scores = b.op(
        broadcasting_batch_matmul::BroadcastingBatchMatmul,
        &[scaled, keys],
    )?;
    let (mask, sinks) = op.optional(inputs);
    let hidden = match mask {
        Some(mask) if b.ty(*mask)?.dtype != DType::Bool => {
            scores = b.add(scores, *mask)?;
            None
        }
        Some(mask) => Some(b.op(not::Not, &[*mask])?),
        None if op.causal || op.window > 0 => Some(hidden(b, op, *q, *k)?),
        None => None,
    };
    if let Some(hidden) = hidden {
        let hidden = b.cast(hidden, dtype)?;
        let low = b.float(dtype, scaled_dot_product_attention::HIDDEN)?;
        let hidden = b.mul(hidden, low)?;
        scores = b.add(scores, hidden)?;
    }
    let weights = probabilities(b, scores, sinks)?;
    Ok(vec![b.op(
        broadcasting_batch_matmul::BroadcastingBatchMatmul,
        &[weights, values],
    )?])
}

/// An operand of `gather_mm`, picked out.
fn gathered(
    b: &mut Body,
    axis: usize,
    x: ValueId,
    ids: Option<ValueId>,
) -> Result<ValueId, OpError> {
    let Some(ids) = ids else {
        return Ok(x);
    };
    let ids = b.cast(ids, DType::I32)?;
    let ids = b.expand(ids, &[-1])?;
    let (x_rank, ids_rank) = (b.ty(x)?.rank(), b.ty(ids)?.rank() - 1);
    // The axis that is picked from comes first, and the batch axes go back to the front afterwards.
    let mut order: Vec<i64> = (0..x_rank as i64).collect();
    order[..=axis].rotate_right(1);
    let x = b.transpose(x, &order)?;
    let x = b.op(gather_nd::GatherNd, &[x, ids])?;
    let mut order: Vec<i64> = (0..(x_rank - 1 + ids_rank) as i64).collect();
    order[..ids_rank + axis].rotate_left(ids_rank);
    b.transpose(x, &order)
}

fn gathered_product(b: &mut Body, op: &Op, inputs: &[ValueId]) -> Built {
    let Op::GatherMm(op) = op else {
        return Ok(Vec::new());
    };
    let [left, right] = op.indices().map(|at| at.map(|at| inputs[at]));
    let left = gathered(b, op.batch_axes, inputs[0], left)?;
    let right = gathered(b, op.batch_axes, inputs[1], right)?;
    let product = broadcasting_batch_matmul::BroadcastingBatchMatmul;
    Ok(vec![b.op(product, &[left, right])?])
}

fn cached_tables(b: &mut Body, _: &Op, inputs: &[ValueId]) -> Built {
    let ids = b.cast(inputs[0], DType::I32)?;
    let ids = b.expand(ids, &[-1])?;
    let tables = &inputs[1..];
    tables
        .iter()
        .map(|t| b.op(gather_nd::GatherNd, &[*t, ids]))
        .collect()
}

fn embedding_rows(b: &mut Body, _: &Op, inputs: &[ValueId]) -> Built {
    let [table, ids, scale, _] = *inputs else {
        return Ok(Vec::new());
    };
    let (codes, kind) = (b.ty(table)?.dtype, b.ty(scale)?.dtype);
    let ids = b.expand(ids, &[-1])?;
    let rows = b.op(gather_nd::GatherNd, &[table, ids])?;
    let rank = b.ty(scale)?.rank();
    let bounds = [0, 1, 1].map(|v| b.ints(&vec![v; rank]));
    let [begin, end, step] = bounds;
    let scale = b.op(slice::Slice, &[scale, begin?, end?, step?])?;
    let ones = b.ints(&vec![1; b.ty(rows)?.rank()])?;
    let scale = b.op(reshape::Reshape, &[scale, ones])?;
    let zero = |dtype, rank: usize| Tensor::from_ints(dtype, &vec![1; rank], &[0]);
    let rank = b.ty(rows)?.rank();
    let (zero, shift) = (
        b.constant(&zero(codes, rank)?)?,
        b.constant(&zero(kind, rank)?)?,
    );
    let decoded = blockwise_shift_scale::BlockwiseShiftScale;
    Ok(vec![b.op(decoded, &[rows, scale, zero, shift])?])
}

/// Rows divided by their lengths, in their own kind.
fn normalised(b: &mut Body, x: ValueId) -> Result<ValueId, OpError> {
    let dtype = b.ty(x)?.dtype;
    let square = b.mul(x, x)?;
    let axis = b.ints(&[-1])?;
    let sum = b.op(reduce_sum::ReduceSum, &[square, axis])?;
    let epsilon = b.float(dtype, gated_delta_update::EPSILON)?;
    let sum = b.add(sum, epsilon)?;
    let factor = b.op(rsqrt::Rsqrt, &[sum])?;
    b.mul(x, factor)
}

/// Position `t` of `x` along axis 2, with that axis kept.
fn at(b: &mut Body, x: ValueId, t: ValueId) -> Result<ValueId, OpError> {
    let rank = b.ty(x)?.rank();
    let one = b.ints(&vec![1; rank])?;
    let index = b.op(reshape::Reshape, &[t, one])?;
    let mut shape = Vec::new();
    for axis in 0..rank as i64 {
        shape.push(if axis == 2 {
            b.ints(&[1])?
        } else {
            b.length(x, axis)?
        });
    }
    let shape = b.concat(0, &shape)?;
    let index = b.op(broadcast_to::BroadcastTo, &[index, shape])?;
    let axis = b.int(2)?;
    b.op(gather_along_axis::GatherAlongAxis, &[x, index, axis])
}

/// One turn of the recurrence: `t`, state and outputs so far in, the next ones out.
fn turn(b: &mut Body, [q, k, v, decay, beta]: [ValueId; 5], args: &[ValueId]) -> Built {
    let [t, state, out] = *args else {
        return Ok(Vec::new());
    };
    let (q, k, v) = (at(b, q, t)?, at(b, k, t)?, at(b, v, t)?);
    let (q, k) = (
        b.transpose(q, &[0, 1, 3, 2])?,
        b.transpose(k, &[0, 1, 3, 2])?,
    );
    let (decay, beta) = (at(b, decay, t)?, at(b, beta, t)?);
    let (decay, beta) = (b.expand(decay, &[-1])?, b.expand(beta, &[-1])?);
    let (state, axis) = (b.mul(state, decay)?, b.ints(&[2])?);
    let seen = b.mul(state, k)?;
    let seen = b.op(reduce_sum::ReduceSum, &[seen, axis])?;
    let error = b.sub(v, seen)?;
    let error = b.mul(error, beta)?;
    let change = b.mul(k, error)?;
    let state = b.add(state, change)?;
    let mixed = b.mul(state, q)?;
    let mixed = b.op(reduce_sum::ReduceSum, &[mixed, axis])?;
    let ones = b.ints(&[1; 4])?;
    let index = b.op(reshape::Reshape, &[t, ones])?;
    let shape = b.op(get_shape::GetShape, &[mixed])?;
    let index = b.op(broadcast_to::BroadcastTo, &[index, shape])?;
    let along = b.int(2)?;
    let out = b.op(
        scatter_along_axis::ScatterAlongAxis::default(),
        &[out, index, mixed, along],
    )?;
    let one = b.int(1)?;
    Ok(vec![b.add(t, one)?, state, out])
}

fn gated_delta(b: &mut Body, op: &Op, inputs: &[ValueId]) -> Built {
    let (Op::GatedDeltaUpdate(op), [query, key, value, g, beta, state]) = (op, inputs) else {
        return Ok(Vec::new());
    };
    let dtype = b.ty(*query)?.dtype;
    let width = b.extent(*query, 3)?;
    let (mut q, mut k) = (*query, *key);
    if op.normalise {
        (q, k) = (normalised(b, q)?, normalised(b, k)?);
    }
    let (q, k, v) = (
        b.cast(q, DType::F32)?,
        b.cast(k, DType::F32)?,
        b.cast(*value, DType::F32)?,
    );
    let factor = b.float(DType::F32, 1.0 / (width as f64).sqrt())?;
    let q = b.mul(q, factor)?;
    let (g, beta, state) = (
        b.cast(*g, DType::F32)?,
        b.cast(*beta, DType::F32)?,
        b.cast(*state, DType::F32)?,
    );
    let decay = b.op(exp::Exp, &[g])?;
    let nothing = b.float(DType::F32, 0.0)?;
    let shape = b.op(get_shape::GetShape, &[v])?;
    let (start, out) = (
        b.int(0)?,
        b.op(broadcast_to::BroadcastTo, &[nothing, shape])?,
    );
    let carried = [start, state, out];
    let test = b.block(&carried, |b, args| {
        let length = b.length(k, 2)?;
        let more = b.greater(length, args[0])?;
        let more = b.scalar(more)?;
        Ok([&[more], args].concat())
    })?;
    let again = b.block(&carried, |b, args| turn(b, [q, k, v, decay, beta], args))?;
    let mut results = Vec::new();
    for id in carried {
        let ty = b.ty(id)?.clone();
        results.push(b.value(ty.into()));
    }
    let mut node = Node::new(while_loop::While, &carried, &results);
    node.blocks = vec![test, again];
    b.graph.body.nodes.push(node);
    let out = b.transpose(results[2], &[0, 2, 1, 3])?;
    Ok(vec![b.cast(out, dtype)?, b.cast(results[1], dtype)?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Module;
    use crate::interpret::{States, run};
    use std::collections::HashMap;

    /// The largest difference, in units of the last place of the kind at 1.
    fn distance(a: &Tensor, b: &Tensor) -> f64 {
        let unit = match a.dtype {
            DType::F16 => 2f64.powi(-10),
            DType::BF16 => 2f64.powi(-7),
            _ => 2f64.powi(-23),
        };
        assert_eq!((a.dtype, &a.shape), (b.dtype, &b.shape));
        let pairs = a.floats().into_iter().zip(b.floats());
        pairs
            .map(|(x, y)| (x - y).abs() / x.abs().max(1.0) / unit)
            .fold(0.0, f64::max)
    }

    #[test]
    fn decompositions_mean_what_the_references_mean() {
        let mut checked = Vec::new();
        for case in Op::TABLE.iter().flat_map(|row| (row.cases)()) {
            let types: Vec<TensorType> = case.inputs.iter().map(Tensor::ty).collect();
            let graph =
                decompose(&case.op, &types).unwrap_or_else(|e| panic!("{}: {e}", case.op.name()));
            let Some(mut graph) = graph else { continue };
            let mut inputs = HashMap::new();
            for (i, t) in case.inputs.iter().enumerate() {
                graph.inputs[i].name = format!("x{i}").into();
                inputs.insert(format!("x{i}"), t.clone());
            }
            let module = Module {
                graphs: vec![graph],
                attributes: Vec::new(),
            };
            let found = run(&module, &module.graphs[0], &inputs, &mut States::new());
            let found = found.unwrap_or_else(|e| panic!("{}: {e}", case.op.name()));
            let expected = case.op.reference(&case.inputs).unwrap_or_default();
            assert_eq!(found.len(), expected.len());
            for ((_, a), b) in found.iter().zip(&expected) {
                let d = distance(a, b);
                assert!(d <= 4.0, "{:?}: {d} units", case.op);
            }
            checked.push(case.op.name());
        }
        assert!(composites().all(|name| checked.contains(&name)));
        assert!(checked.len() >= 40, "{}", checked.len());
    }

    #[test]
    fn symbolic_lengths_reach_the_results() {
        let (q, s) = (Dim::symbol("q"), Dim::symbol("s"));
        let ty = |heads: usize, n: &Dim| {
            TensorType::new(
                DType::F16,
                [1usize.into(), heads.into(), n.clone(), 16usize.into()],
            )
        };
        let op = ScaledDotProductAttention {
            causal: true,
            ..Default::default()
        };
        let graph = decompose(&op.into(), &[ty(4, &q), ty(2, &s), ty(2, &s)])
            .unwrap()
            .unwrap();
        let out = graph.outputs[0].ty.as_tensor().unwrap();
        assert_eq!(out.shape[2], q);
    }
}
