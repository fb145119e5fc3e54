//! Composites: over fresh operands, over values that are there, and declared: a graph that says of which operation it is the body.

use russet_graph::attr::Attr;
use russet_graph::graph::Composite;
use russet_graph::ops::decompose::decompose;
use russet_graph::ops::*;
use russet_graph::tensor::{Scalar, Tensor};
use russet_graph::types::{DType, TensorType};

use super::{Builder, Choices, Val, filled};

const WIDTH: usize = 8;

/// A tensor of small numbers: an input or a constant.
fn operand(b: &mut Builder, c: &mut Choices<'_>, dtype: DType, shape: &[usize]) -> Option<Val> {
    let values: Vec<f64> = (0..shape.iter().product())
        .map(|_| c.below(13) as f64 / 8.0 - 0.75)
        .collect();
    let tensor = filled(dtype, shape, &values).ok()?;
    if b.depth > 0 || c.coin() {
        return b.constant(tensor);
    }
    let (name, ty) = (format!("x{}", b.inputs.len()), tensor.ty());
    Some(b.add_input(&name, tensor, ty))
}

/// Integers below `n`.
fn picks(b: &mut Builder, c: &mut Choices<'_>, shape: &[usize], n: usize) -> Option<Val> {
    let values: Vec<i64> = (0..shape.iter().product::<usize>())
        .map(|_| c.below(n) as i64)
        .collect();
    b.constant(Tensor::from_ints(DType::I32, shape, &values).ok()?)
}

/// An operation and its operands.
type Whole = (Op, Vec<Val>);

/// Builds one composite's operands.
type Kind = fn(&mut Builder, &mut Choices<'_>, DType) -> Option<Whole>;

/// A composite with its operands.
fn some(b: &mut Builder, c: &mut Choices<'_>) -> Option<Whole> {
    const KINDS: [Kind; 7] = [
        scaled,
        rotation,
        attention,
        attention,
        picked_product,
        tables,
        embedding,
    ];
    let dtype = [DType::F32, DType::F16][c.below(2)];
    KINDS[c.below(KINDS.len())](b, c, dtype)
}

fn scaled(b: &mut Builder, c: &mut Choices<'_>, dtype: DType) -> Option<Whole> {
    let shape = [1 + c.below(2), 1 + c.below(4), WIDTH];
    let x = operand(b, c, dtype, &shape)?;
    let kind = [dtype, DType::F32][c.below(2)];
    let scale = operand(b, c, kind, &[WIDTH])?;
    Some((rms_norm::RmsNorm { eps: 1e-6 }.into(), vec![x, scale]))
}

fn rotation(b: &mut Builder, c: &mut Choices<'_>, dtype: DType) -> Option<Whole> {
    use rope::Part;
    let (batch, q) = (1 + c.below(2), 1 + c.below(4));
    let shape = [batch, 1 + c.below(3), q, WIDTH];
    let x = operand(b, c, dtype, &shape)?;
    let sets: [&[Part]; 5] = [
        &[],
        &[Part::Positions],
        &[Part::Offset],
        &[Part::Positions, Part::Frequencies],
        &[Part::Cos, Part::Sin],
    ];
    let parts = sets[c.below(sets.len())];
    let op = rope::Rope {
        base: 1e4,
        scale: [1.0, 0.5][c.below(2)],
        dims: None,
        interleaved: c.coin(),
        parts: rope::Parts::of(parts),
    };
    let mut operands = vec![x];
    for part in parts {
        operands.push(match part {
            Part::Cos | Part::Sin => operand(b, c, dtype, &[q, WIDTH / 2])?,
            Part::Positions => picks(b, c, &[batch, q], 12)?,
            Part::Frequencies => operand(b, c, DType::F32, &[WIDTH / 2])?,
            Part::Offset => picks(b, c, &[], 12)?,
        });
    }
    Some((op.into(), operands))
}

fn attention(b: &mut Builder, c: &mut Choices<'_>, dtype: DType) -> Option<Whole> {
    let [batch, heads, groups] = [(); 3].map(|()| 1 + c.below(2));
    let (q, k) = (1 + c.below(4), 1 + c.below(6));
    let query = operand(b, c, dtype, &[batch, heads * groups, q, WIDTH])?;
    let key = operand(b, c, dtype, &[batch, heads, q + k, WIDTH])?;
    let value = operand(b, c, dtype, &[batch, heads, q + k, WIDTH])?;
    let mask = c.below(3) == 0;
    let op = scaled_dot_product_attention::ScaledDotProductAttention {
        causal: !mask && c.coin(),
        window: if mask { 0 } else { c.below(3) },
        mask,
        sinks: c.below(3) == 0,
        ..Default::default()
    };
    let mut operands = vec![query, key, value];
    if op.mask {
        let shape = [1, [1, heads * groups][c.below(2)], q, q + k];
        let seen: Vec<Scalar> = (0..shape.iter().product::<usize>())
            .map(|_| Scalar::Bool(c.below(3) > 0))
            .collect();
        operands.push(b.constant(Tensor::from_scalars(DType::Bool, &shape, &seen).ok()?)?);
    }
    if op.sinks {
        operands.push(operand(b, c, dtype, &[heads * groups])?);
    }
    Some((op.into(), operands))
}

fn picked_product(b: &mut Builder, c: &mut Choices<'_>, dtype: DType) -> Option<Whole> {
    let (tokens, chosen, experts) = (1 + c.below(3), 1 + c.below(2), 1 + c.below(4));
    let shape = [tokens, 1, 1 + c.below(2), 6];
    let lhs = operand(b, c, dtype, &shape)?;
    let rhs = operand(b, c, dtype, &[experts, 6, 5])?;
    let ids = picks(b, c, &[tokens, chosen], experts)?;
    let op = gather_mm::GatherMm {
        right: true,
        ..Default::default()
    };
    Some((op.into(), vec![lhs, rhs, ids]))
}

fn tables(b: &mut Builder, c: &mut Choices<'_>, dtype: DType) -> Option<Whole> {
    let (n, q) = (1 + c.below(6), 1 + c.below(4));
    let ids = picks(b, c, &[1, q], n)?;
    let (cos, sin) = (
        operand(b, c, dtype, &[n, 4])?,
        operand(b, c, dtype, &[n, 4])?,
    );
    let op = rope_cached_cos_sin_gather::RopeCachedCosSinGather;
    Some((op.into(), vec![ids, cos, sin]))
}

fn embedding(b: &mut Builder, c: &mut Choices<'_>, dtype: DType) -> Option<Whole> {
    let (n, q) = (1 + c.below(6), 1 + c.below(4));
    let codes: Vec<f64> = (0..n * 4).map(|_| c.below(256) as f64 - 128.0).collect();
    let table = b.constant(filled(DType::I8, &[n, 1, 4], &codes).ok()?)?;
    let ids = picks(b, c, &[1, q], n)?;
    let scale = operand(b, c, dtype, &[q, 1, 4])?;
    let shape = b.ints(DType::U32, &[1, q as i64, 1, 4])?;
    let op = fused_interleaved_embedding_gather_dequant_reshape::FusedInterleavedEmbeddingGatherDequantReshape;
    Some((op.into(), vec![table, ids, scale, shape]))
}

/// A composite as one operation.
pub(super) fn fresh(b: &mut Builder, c: &mut Choices<'_>) -> Option<Val> {
    let (op, operands) = some(b, c)?;
    b.push(op, &operands.iter().collect::<Vec<_>>(), true)
}

/// A composite as exporters write it: a call of its body, which says what it is the body of.
pub(super) fn declared(b: &mut Builder, c: &mut Choices<'_>) -> Option<Val> {
    let (op, operands) = some(b, c)?;
    let types: Vec<TensorType> = operands.iter().map(|v| v.tensor.ty()).collect();
    let mut graph = decompose(&op, &types).ok()??;
    let mut attributes = op.attributes();
    let roles = attributes.iter().position(|(name, _)| &**name == "inputs");
    let inputs = match roles.map(|at| attributes.remove(at).1) {
        Some(Attr::List(roles)) => roles
            .iter()
            .filter_map(|r| Some(r.as_str()?.into()))
            .collect(),
        _ => Vec::new(),
    };
    graph.name = format!("f{}", b.callees.len()).into();
    graph.private = true;
    graph.composite = Some(Composite {
        name: op.name().into(),
        inputs,
        outputs: Vec::new(),
        attributes,
    });
    b.invoke(graph, &operands, true)
}

/// The norm of something that is there.
pub(super) fn norm(b: &mut Builder, c: &mut Choices<'_>) -> Option<Val> {
    let x = b.exact(c, |d| d == DType::F32 || d == DType::F16)?;
    let width = b.ty(x.id)?.shape.last()?.as_const()?;
    let values: Vec<f64> = (0..width).map(|_| c.below(9) as f64 / 4.0 - 1.0).collect();
    let scale = filled(x.tensor.dtype, &[values.len()], &values).ok()?;
    let scale = b.constant(scale)?;
    b.push(rms_norm::RmsNorm { eps: 1e-5 }, &[&x, &scale], true)
}

/// The gated delta rule.
pub(super) fn delta(b: &mut Builder, c: &mut Choices<'_>) -> Option<Val> {
    let dtype = [DType::F32, DType::F16][c.below(2)];
    let (heads, s) = (1 + c.below(2), 1 + c.below(4));
    let row = [1, heads, s, 4];
    let mut operands = Vec::new();
    for _ in 0..3 {
        operands.push(operand(b, c, dtype, &row)?);
    }
    operands.push(operand(b, c, DType::F32, &[1, heads, s])?);
    operands.push(operand(b, c, dtype, &[1, heads, s])?);
    operands.push(operand(b, c, dtype, &[1, heads, 4, 4])?);
    let op = gated_delta_update::GatedDeltaUpdate {
        normalise: c.coin(),
    };
    b.push(op, &operands.iter().collect::<Vec<_>>(), true)
}
