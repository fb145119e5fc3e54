//! `scaled_dot_product_attention`: softmax of scaled products of queries and keys, times values.

use std::sync::Arc;

use super::shape::{agree, broadcast_index, dims_error, repeats_to};
use super::{Case, Fact, OpDef, Operands};
use crate::attr::{Attr, Attributes, find, only, roles, texts, value_or};
use crate::error::OpError;
use crate::tensor::{Scalar, Tensor, TensorMut, round_to};
use crate::types::{DType, Dim, TensorType};

/// `softmax(scale · q kᵀ + mask) v` with grouped queries (Vaswani et al., arXiv 1706.03762).
///
/// Operands: query `[b, heads, q, width]`, key `[b, kv heads, s, width]`, value `[b, kv heads, s, value width]`, and where
/// declared `attn_mask`, which repeats to `[b, heads, q, s]`, and `sinks` `[heads]`. Each key and value head serves
/// `heads / kv heads` query heads. Query `i` is at position `p = s - q + i`; a causal one sees keys up to `p`. A window of `w`
/// hides keys up to `p - w`, and from `p + w` on where nothing is causal. A mask of bools says which keys are seen, one of the
/// operands' kind is added to the scores; `is_causal` and the window count for nothing beside it. A hidden key has -10000 added to its score. A sink takes part in the softmax as the
/// score of one more key without a value. Scaled queries, scores, masked scores and probabilities are rounded to the kind of
/// the operands.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ScaledDotProductAttention {
    /// Multiplies the queries; `1/√width` by default.
    pub scale: Option<f64>,
    /// Later keys are hidden. Not with `mask`.
    pub causal: bool,
    /// How far a query sees; 0 for all. Not with `mask`.
    pub window: usize,
    /// Whether there is a mask.
    pub mask: bool,
    /// Whether there are sinks.
    pub sinks: bool,
}

impl ScaledDotProductAttention {
    /// Whether query `i` of `q` sees key `j` of `s`, where no mask says.
    pub fn sees(&self, i: usize, q: usize, j: usize, s: usize) -> bool {
        let (position, j) = ((s + i) as i64 - q as i64, j as i64);
        let windowed = |distance: i64| self.window == 0 || distance < self.window as i64;
        let later = if self.causal {
            j <= position
        } else {
            windowed(j - position)
        };
        later && windowed(position - j)
    }

    /// The factor for queries of this width, as the operands' kind holds it.
    pub fn factor(&self, width: usize, dtype: DType) -> f64 {
        round_to(
            dtype,
            self.scale.unwrap_or_else(|| 1.0 / (width as f64).sqrt()),
        )
    }

    /// Whether keys are hidden by more than an edge that kernels follow: by a mask, or by a window to both sides.
    pub(crate) fn needs_mask(&self) -> bool {
        self.mask || (self.window > 0 && !self.causal)
    }

    /// Which operand plays which part.
    fn roles(&self) -> Vec<&'static str> {
        let optional = [(self.mask, ROLES[3]), (self.sinks, ROLES[4])];
        let given = optional.into_iter().filter(|(there, _)| *there);
        ROLES[..3]
            .iter()
            .copied()
            .chain(given.map(|(_, r)| r))
            .collect()
    }

    /// The operands that are optional, mask and sinks, where they are there.
    pub(crate) fn optional<'a, T>(&self, operands: &'a [T]) -> (Option<&'a T>, Option<&'a T>) {
        let mask = operands.get(3).filter(|_| self.mask);
        let sinks = operands.get(3 + usize::from(self.mask));
        (mask, sinks.filter(|_| self.sinks))
    }
}

/// What an operand is added to that hides a key.
pub const HIDDEN: f64 = -1e4;

const ROLES: [&str; 5] = ["query", "key", "value", "attn_mask", "sinks"];
const HEADS: &str =
    "queries, keys and values have four axes, and queries share key and value heads evenly";

/// The scores of one query become its probabilities. The sink is one more score.
fn softmax(scores: &mut [f64], sink: Option<f64>, round: impl Fn(f64) -> f64) {
    let largest = scores.iter().copied().chain(sink);
    let max = largest.fold(f64::NEG_INFINITY, f64::max);
    scores.iter_mut().for_each(|x| *x = (*x - max).exp());
    let sum = scores.iter().sum::<f64>() + sink.map_or(0.0, |x| (x - max).exp());
    scores.iter_mut().for_each(|x| *x = round(*x / sum));
}

/// Extents of one call.
struct Extents {
    heads: usize,
    kv: usize,
    q: usize,
    s: usize,
    width: usize,
}

impl ScaledDotProductAttention {
    fn extents(&self, inputs: &[Tensor]) -> Result<Extents, OpError> {
        let shapes: Vec<&[usize]> = inputs.iter().map(|t| &t.shape[..]).collect();
        let ([b, heads, q, width], [_, kv, s, _], [_, _, _, dv]) =
            (shapes[0], shapes[1], shapes[2])
        else {
            return Err(OpError::shapes(HEADS, &shapes));
        };
        let fits = *shapes[1] == [*b, *kv, *s, *width] && *shapes[2] == [*b, *kv, *s, *dv];
        if !fits || *kv == 0 || heads % kv != 0 {
            return Err(OpError::shapes(HEADS, &shapes));
        }
        Ok(Extents {
            heads: *heads,
            kv: *kv,
            q: *q,
            s: *s,
            width: *width,
        })
    }

    /// The scores of query `row` (batch, heads and queries counted together), masked.
    fn scores(&self, e: &Extents, row: usize, inputs: &[Tensor]) -> Vec<f64> {
        let (query, key) = (&inputs[0], &inputs[1]);
        let round = |x: f64| round_to(query.dtype, x);
        let factor = self.factor(e.width, query.dtype);
        let (i, group) = (row % e.q, e.group(row));
        let mask = self.optional(inputs).0;
        let full = [query.shape[0], e.heads, e.q, e.s];
        let hidden = round(HIDDEN);
        let added = |j: usize| {
            let own = |m: &Tensor| m.get(broadcast_index(row * e.s + j, &full, &m.shape));
            match mask.map(|m| (m.dtype, own(m))) {
                Some((DType::Bool, seen)) if seen.bool() => 0.0,
                Some((DType::Bool, _)) => hidden,
                Some((_, value)) => value.float(),
                None if self.sees(i, e.q, j, e.s) => 0.0,
                None => hidden,
            }
        };
        let score = |j: usize| {
            let terms = (0..e.width).map(|c| {
                round(query.get(row * e.width + c).float() * factor)
                    * key.get((group * e.s + j) * e.width + c).float()
            });
            round(round(terms.sum()) + added(j))
        };
        (0..e.s).map(score).collect()
    }
}

impl Extents {
    /// The key head, counted over the batch, that serves a query row.
    fn group(&self, row: usize) -> usize {
        let head = row / self.q.max(1);
        head / self.heads * self.kv + head % self.heads / (self.heads / self.kv)
    }
}

impl OpDef for ScaledDotProductAttention {
    const NAME: &'static str = "scaled_dot_product_attention";
    const SUMMARY: &'static str = "softmax of scaled products of queries and keys, times values";
    const ARITY: std::ops::RangeInclusive<usize> = 3..=5;

    fn attributes(&self) -> Attributes {
        let mut out: Attributes = vec![
            ("is_causal".into(), Attr::Bool(self.causal)),
            ("window_size".into(), Attr::Int(self.window as i64)),
            ("inputs".into(), texts(&self.roles())),
        ];
        out.extend(self.scale.map(|s| ("scale".into(), Attr::float(s))));
        out
    }

    fn from_attributes(attributes: &[(Arc<str>, Attr)]) -> Result<Self, OpError> {
        only(attributes, &["scale", "is_causal", "window_size"])?;
        let given = roles(attributes);
        let [mask, sinks] = [3, 4].map(|i| given.contains(&ROLES[i]));
        let causal = value_or(
            attributes,
            "is_causal",
            false,
            (Attr::as_bool, "true or false"),
        )?;
        let window = value_or(attributes, "window_size", 0, (Attr::as_int, "an integer"))?;
        let op = Self {
            scale: find(attributes, "scale").and_then(Attr::as_float),
            causal: causal && !mask,
            window: if mask { 0 } else { window.max(0) as usize },
            mask,
            sinks,
        };
        if given != op.roles() {
            return Err(OpError::Attribute {
                name: "inputs",
                expected: "query, key and value, then attn_mask and sinks where they are there",
            });
        }
        Ok(op)
    }

    fn infer(&self, operands: Operands<'_>) -> Result<Vec<Fact>, OpError> {
        let types: Vec<&TensorType> = (0..operands.len())
            .map(|i| operands.tensor(i))
            .collect::<Result<_, _>>()?;
        let shapes: Vec<&[Dim]> = types.iter().map(|t| &t.shape[..]).collect();
        let ([b, heads, q, width], [kb, kv, s, kw], [vb, vh, vs, dv]) =
            (shapes[0], shapes[1], shapes[2])
        else {
            return Err(dims_error(HEADS, &shapes));
        };
        let grouped = match (heads.as_const(), kv.as_const()) {
            (Some(heads), Some(kv)) => kv > 0 && heads % kv == 0,
            _ => false,
        };
        let alike = [(b, kb), (b, vb), (kv, vh), (s, vs), (width, kw)];
        if !grouped || !alike.iter().all(|(a, b)| agree(a, b)) {
            return Err(dims_error(HEADS, &shapes));
        }
        let (mask, sinks) = self.optional(&types);
        let full = [b.clone(), heads.clone(), q.clone(), s.clone()];
        if !mask.is_none_or(|m| repeats_to(&m.shape, &full))
            || !sinks.is_none_or(|t| t.rank() == 1 && agree(&t.shape[0], heads))
        {
            let rule = "a mask repeats to the scores, and there is a sink a head";
            return Err(dims_error(rule, &shapes));
        }
        let dtype = types[0].dtype;
        for (index, t) in types.iter().enumerate() {
            let masks = self.mask && index == 3 && t.dtype == DType::Bool;
            if (t.dtype != dtype && !masks) || !dtype.is_float() {
                return Err(OpError::Kind {
                    rule: "operands are of one kind of float, a mask of that or of bools",
                    index,
                    got: t.dtype,
                });
            }
        }
        let shape = [b, heads, q, dv].map(Clone::clone);
        Ok(vec![TensorType::new(dtype, shape).into()])
    }

    fn reference(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, OpError> {
        let e = self.extents(inputs)?;
        let (query, value) = (&inputs[0], &inputs[2]);
        let (dtype, dv) = (query.dtype, value.shape[3]);
        let sinks = self.optional(inputs).1;
        let mut out = TensorMut::zeros(dtype, &[query.shape[0], e.heads, e.q, dv])?;
        for row in 0..query.shape[0] * e.heads * e.q {
            let mut scores = self.scores(&e, row, inputs);
            let sink = sinks.map(|t| t.get(row / e.q % e.heads).float());
            softmax(&mut scores, sink, |x| round_to(dtype, x));
            for c in 0..dv {
                let at = |j: usize| (e.group(row) * e.s + j) * dv + c;
                let mixed = (0..e.s).map(|j| scores[j] * value.get(at(j)).float());
                out.set(row * dv + c, Scalar::Float(mixed.sum()));
            }
        }
        Ok(vec![out.finish()])
    }

    fn cases() -> Vec<Case<Self>> {
        let causal = Self {
            causal: true,
            ..Self::default()
        };
        let with = |window, scale| Self {
            window,
            scale,
            ..causal
        };
        let (both, sinks) = (
            Self {
                window: 2,
                ..Self::default()
            },
            Self {
                sinks: true,
                ..causal
            },
        );
        let masked = |sinks| Self {
            mask: true,
            sinks,
            ..Self::default()
        };
        [
            case(causal, DType::F32, [1, 3, 5], &[]),
            case(with(4, None), DType::F16, [1, 1, 9], &[]),
            case(with(2, Some(0.5)), DType::F32, [1, 6, 6], &[]),
            case(Self::default(), DType::BF16, [1, 2, 3], &[]),
            case(both, DType::F32, [1, 4, 6], &[]),
            case(causal, DType::F16, [2, 2, 3], &[]),
            case(sinks, DType::F16, [1, 2, 4], &[]),
            case(sinks, DType::F32, [2, 1, 4], &[]),
            case(masked(false), DType::F32, [1, 3, 5], &[3, 5]),
            added(masked(false), DType::F32, [1, 3, 5], &[3, 5]),
            added(masked(true), DType::F16, [1, 1, 6], &[1, 1, 1, 6]),
            case(masked(true), DType::F32, [2, 3, 5], &[2, 1, 3, 5]),
            case(masked(true), DType::BF16, [1, 2, 5], &[1, 4, 1, 5]),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

/// A case with four heads over two, `[batch, queries, keys]` and a mask of some shape.
fn case(
    op: ScaledDotProductAttention,
    dtype: DType,
    [b, q, s]: [usize; 3],
    mask: &[usize],
) -> Option<Case<ScaledDotProductAttention>> {
    let ramp = |shape: &[usize], step: usize| {
        let values: Vec<f64> = (0..shape.iter().product())
            .map(|i| (i * step % 17) as f64 * 0.125 - 1.0)
            .collect();
        Tensor::from_floats(dtype, shape, &values).ok()
    };
    let mut inputs = vec![
        ramp(&[b, 4, q, 8], 5)?,
        ramp(&[b, 2, s, 8], 7)?,
        ramp(&[b, 2, s, 8], 3)?,
    ];
    if op.mask {
        let seen: Vec<Scalar> = (0..mask.iter().product())
            .map(|i: usize| Scalar::Bool(i * 7 % 5 != 1))
            .collect();
        inputs.push(Tensor::from_scalars(DType::Bool, mask, &seen).ok()?);
    }
    if op.sinks {
        inputs.push(ramp(&[4], 6)?);
    }
    Some(Case { op, inputs })
}

/// The same with what the mask hides spelled out: minus infinity is added to it.
fn added(
    op: ScaledDotProductAttention,
    dtype: DType,
    extents: [usize; 3],
    mask: &[usize],
) -> Option<Case<ScaledDotProductAttention>> {
    let mut case = case(op, dtype, extents, mask)?;
    let seen = case.inputs.get_mut(3)?;
    let added = (0..seen.len()).map(|i| match seen.get(i).bool() {
        true => i as f64 * 0.25,
        false => f64::NEG_INFINITY,
    });
    *seen = Tensor::from_floats(dtype, mask, &added.collect::<Vec<_>>()).ok()?;
    Some(case)
}
