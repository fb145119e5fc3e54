//! `gated_delta_update`: the gated delta rule, a linear attention with one matrix of state a head.

use std::sync::Arc;

use super::{Case, Fact, OpDef, Operands};
use crate::attr::{Attr, Attributes, only, roles, texts, value_or};
use crate::error::OpError;
use crate::tensor::{Scalar, Tensor, TensorMut, round_to};
use crate::types::{DType, Dim, TensorType};

/// For every position, with the state `S` of a head: `S ← exp(g) S`, `e = β (v - Sᵀk)`, `S ← S + k eᵀ`, `o = Sᵀq`, in f32
/// (Yang et al., "Gated Delta Networks", arXiv 2412.06464).
///
/// Operands: query, key `[b, heads, s, dk]`, value `[b, heads, s, dv]`, g, beta `[b, heads, s]`, initial state
/// `[b, heads, dk, dv]`. Results: outputs `[b, s, heads, dv]` and the state after the last position, both of the query's kind.
/// Queries are divided by the root of their width; before that, queries and keys are divided by their lengths where
/// `normalise` is set, in their own kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GatedDeltaUpdate {
    /// Divide queries and keys by their lengths first.
    pub normalise: bool,
}

/// Added to a squared length before its root.
pub const EPSILON: f64 = 1e-6;

const ROLES: [&str; 6] = ["query", "key", "value", "g", "beta", "initial_state"];

/// Extents: batch times heads, positions, width of keys, width of values.
#[derive(Clone, Copy)]
struct Extents {
    heads: usize,
    s: usize,
    dk: usize,
    dv: usize,
}

impl GatedDeltaUpdate {
    /// Rows of `x`, divided by their lengths in the kind of `x` where asked for.
    fn rows(&self, x: &Tensor, width: usize) -> Vec<f32> {
        let round = |v: f64| round_to(x.dtype, v);
        let mut values = x.floats();
        if self.normalise && width > 0 {
            let epsilon = round(EPSILON);
            for row in values.chunks_mut(width) {
                let square = round(row.iter().map(|v| round(v * v)).sum::<f64>());
                let factor = round(1.0 / round(square + epsilon).sqrt());
                row.iter_mut().for_each(|v| *v = round(*v * factor));
            }
        }
        values.into_iter().map(|v| v as f32).collect()
    }

    fn extents(inputs: &[Tensor]) -> Result<Extents, OpError> {
        let shapes: Vec<&[usize]> = inputs.iter().map(|t| &t.shape[..]).collect();
        let [b, h, s, dk] = shapes[0] else {
            return Err(misfit(inputs));
        };
        let dv = shapes[2].last().copied().unwrap_or(0);
        let (b, h, s, dk) = (*b, *h, *s, *dk);
        let gates = [b, h, s];
        let fits = shapes[1] == shapes[0]
            && shapes[2] == [b, h, s, dv]
            && shapes[3] == gates
            && shapes[4] == gates
            && shapes[5] == [b, h, dk, dv];
        if !fits {
            return Err(misfit(inputs));
        }
        Ok(Extents {
            heads: b * h,
            s,
            dk,
            dv,
        })
    }
}

fn misfit(inputs: &[Tensor]) -> OpError {
    let shapes: Vec<&[usize]> = inputs.iter().map(|t| &t.shape[..]).collect();
    OpError::shapes(
        "queries, keys, values, gates and state fit together",
        &shapes,
    )
}

/// One position of one head: advances `state` `[dk, dv]` and gives the output.
fn step(state: &mut [f32], q: &[f32], k: &[f32], v: &[f32], decay: f32, beta: f32) -> Vec<f32> {
    let dv = v.len();
    let mixed = |state: &[f32], by: &[f32], c: usize| {
        let terms = by
            .iter()
            .enumerate()
            .map(|(r, b)| f64::from(state[r * dv + c] * b));
        terms.sum::<f64>() as f32
    };
    state.iter_mut().for_each(|x| *x *= decay);
    let errors: Vec<f32> = (0..dv)
        .map(|c| (v[c] - mixed(state, k, c)) * beta)
        .collect();
    for (r, k) in k.iter().enumerate() {
        for (c, e) in errors.iter().enumerate() {
            state[r * dv + c] += k * e;
        }
    }
    (0..dv).map(|c| mixed(state, q, c)).collect()
}

impl OpDef for GatedDeltaUpdate {
    const NAME: &'static str = "gated_delta_update";
    const SUMMARY: &'static str = "the gated delta rule over a run of positions";
    const ARITY: std::ops::RangeInclusive<usize> = 6..=6;

    fn attributes(&self) -> Attributes {
        vec![
            ("use_qk_l2_norm".into(), Attr::Bool(self.normalise)),
            ("inputs".into(), texts(&ROLES)),
        ]
    }

    fn from_attributes(attributes: &[(Arc<str>, Attr)]) -> Result<Self, OpError> {
        only(attributes, &["use_qk_l2_norm"])?;
        if roles(attributes) != ROLES {
            return Err(OpError::Attribute {
                name: "inputs",
                expected: "query, key, value, g, beta, initial_state",
            });
        }
        let truth = (Attr::as_bool, "true or false");
        let normalise = value_or(attributes, "use_qk_l2_norm", true, truth)?;
        Ok(Self { normalise })
    }

    fn infer(&self, operands: Operands<'_>) -> Result<Vec<Fact>, OpError> {
        let (q, v, state) = (
            operands.tensor(0)?,
            operands.tensor(2)?,
            operands.tensor(5)?,
        );
        for (index, rank) in [4, 4, 4, 3, 3, 4].into_iter().enumerate() {
            let t = operands.tensor(index)?;
            if t.rank() != rank {
                return Err(OpError::Shape {
                    rule: "queries, keys, values, gates and state fit together",
                    shapes: t.to_string(),
                });
            }
            if !t.dtype.is_float() {
                return Err(OpError::Kind {
                    rule: "the delta rule is over floats",
                    index,
                    got: t.dtype,
                });
            }
        }
        let axes: [&Dim; 4] = [&q.shape[0], &q.shape[2], &q.shape[1], &v.shape[3]];
        let out = TensorType::new(q.dtype, axes.into_iter().cloned());
        Ok(vec![
            out.into(),
            TensorType::new(q.dtype, state.shape.iter().cloned()).into(),
        ])
    }

    fn reference(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, OpError> {
        let Extents { heads, s, dk, dv } = Self::extents(inputs)?;
        let (h, dtype) = (inputs[0].shape[1], inputs[0].dtype);
        let floats = |t: &Tensor| {
            t.floats()
                .into_iter()
                .map(|x| x as f32)
                .collect::<Vec<f32>>()
        };
        let scale = 1.0 / (dk as f64).sqrt();
        let q: Vec<f32> = self
            .rows(&inputs[0], dk)
            .into_iter()
            .map(|x| x * scale as f32)
            .collect();
        let (k, v) = (self.rows(&inputs[1], dk), floats(&inputs[2]));
        let decay: Vec<f32> = inputs[3]
            .floats()
            .into_iter()
            .map(|g| g.exp() as f32)
            .collect();
        let (beta, mut state) = (floats(&inputs[4]), floats(&inputs[5]));
        let mut out = TensorMut::zeros(dtype, &[inputs[0].shape[0], s, h, dv])?;
        for (head, t) in (0..heads).flat_map(|head| (0..s).map(move |t| (head, t))) {
            let at = head * s + t;
            let rows = |x: &[f32], n: usize| at * n..at * n + n.min(x.len());
            let (q, k, v) = (&q[rows(&q, dk)], &k[rows(&k, dk)], &v[rows(&v, dv)]);
            let state = &mut state[head * dk * dv..(head + 1) * dk * dv];
            let place = ((head / h * s + t) * h + head % h) * dv;
            let result = step(state, q, k, v, decay[at], beta[at]);
            result
                .iter()
                .enumerate()
                .for_each(|(c, &x)| out.set(place + c, Scalar::Float(x.into())));
        }
        let state: Vec<f64> = state.into_iter().map(f64::from).collect();
        Ok(vec![
            out.finish(),
            Tensor::from_floats(dtype, &inputs[5].shape, &state)?,
        ])
    }

    fn cases() -> Vec<Case<Self>> {
        let ramp = |dtype, shape: &[usize], by: usize, low: f64| {
            let values: Vec<f64> = (0..shape.iter().product::<usize>())
                .map(|i| (i * by % 13) as f64 * 0.125 + low)
                .collect();
            Tensor::from_floats(dtype, shape, &values).ok()
        };
        let case = |dtype, normalise, s: usize| {
            let gates = DType::F32;
            Some(Case {
                op: Self { normalise },
                inputs: vec![
                    ramp(dtype, &[1, 2, s, 4], 5, -0.75)?,
                    ramp(dtype, &[1, 2, s, 4], 7, -0.5)?,
                    ramp(dtype, &[1, 2, s, 3], 3, -1.0)?,
                    ramp(gates, &[1, 2, s], 4, -1.75)?,
                    ramp(dtype, &[1, 2, s], 6, 0.0)?,
                    ramp(dtype, &[1, 2, 4, 3], 2, -0.5)?,
                ],
            })
        };
        [
            case(DType::F16, true, 3),
            case(DType::F32, true, 4),
            case(DType::F32, false, 1),
            case(DType::BF16, true, 0),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}
