//! Composites: over fresh operands, over values that are there, and declared: a graph that says of which operation it is the body.

use russet_graph::attr::Attr;
use russet_graph::graph::Composite;
use russet_graph::ops::decompose::decompose;
use russet_graph::ops::*;
use russet_graph::tensor::Tensor;
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

/// Attention, a norm or a rotation with its operands.
fn some(b: &mut Builder, c: &mut Choices<'_>) -> Option<(Op, Vec<Val>)> {
    let dtype = [DType::F32, DType::F16][c.below(2)];
    let (heads, groups) = (1 + c.below(2), 1 + c.below(2));
    let (q, k) = (1 + c.below(4), 1 + c.below(6));
    let query = operand(b, c, dtype, &[1, heads * groups, q, WIDTH])?;
    match c.below(3) {
        0 => {
            let scale = operand(b, c, dtype, &[WIDTH])?;
            Some((rms_norm::RmsNorm { eps: 1e-6 }.into(), vec![query, scale]))
        }
        1 => {
            let op = rope::Rope {
                base: 1e4,
                scale: 1.0,
                dims: None,
                interleaved: c.coin(),
                second: rope::Second::Positions,
            };
            let positions: Vec<i64> = (0..q).map(|i| (i + c.below(9)) as i64).collect();
            let positions = Tensor::from_ints(DType::I32, &[1, q], &positions).ok()?;
            let positions = b.constant(positions)?;
            Some((op.into(), vec![query, positions]))
        }
        _ => {
            let shape = [1, heads, q + k, WIDTH];
            let key = operand(b, c, dtype, &shape)?;
            let value = operand(b, c, dtype, &shape)?;
            let causal = c.coin();
            let op = scaled_dot_product_attention::ScaledDotProductAttention {
                scale: None,
                causal,
                window: if causal { c.below(3) } else { 0 },
            };
            Some((op.into(), vec![query, key, value]))
        }
    }
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
