//! `scaled_dot_product_attention`: softmax of scaled products of queries and keys, times values.

use std::sync::Arc;

use super::{Case, Fact, OpDef, Operands};
use crate::attr::{Attr, Attributes, find, roles, texts};
use crate::error::OpError;
use crate::tensor::{Scalar, Tensor, TensorMut, round_to};
use crate::types::{DType, Dim, TensorType};

/// `softmax(scale · q kᵀ + mask) v` with grouped queries (Vaswani et al., arXiv 1706.03762).
///
/// Operands: query `[1, heads, q, width]`, key `[1, kv heads, s, width]`, value `[1, kv heads, s, value width]`; each key and
/// value head serves `heads / kv heads` query heads. A causal query `i` sees keys up to `s - q + i`; with a window only those
/// above `s - q + i - window`. A hidden key has -10000 added to its score. Scaled queries, scores, masked scores and
/// probabilities are rounded to the kind of the operands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScaledDotProductAttention {
    /// Multiplies the queries; `1/√width` by default.
    pub scale: Option<f64>,
    /// Later keys are hidden.
    pub causal: bool,
    /// How many keys a query sees at most; 0 for all. Only with `causal`.
    pub window: usize,
}

impl ScaledDotProductAttention {
    /// Whether query `i` of `q` sees key `j` of `s`.
    pub fn sees(&self, i: usize, q: usize, j: usize, s: usize) -> bool {
        let position = (s + i) as i64 - q as i64;
        let j = j as i64;
        !self.causal || (j <= position && (self.window == 0 || j > position - self.window as i64))
    }

    /// The factor for queries of this width, as the operands' kind holds it.
    pub fn factor(&self, width: usize, dtype: DType) -> f64 {
        round_to(
            dtype,
            self.scale.unwrap_or_else(|| 1.0 / (width as f64).sqrt()),
        )
    }
}

const ROLES: [&str; 3] = ["query", "key", "value"];

impl OpDef for ScaledDotProductAttention {
    const NAME: &'static str = "scaled_dot_product_attention";
    const SUMMARY: &'static str = "softmax of scaled products of queries and keys, times values";
    const ARITY: std::ops::RangeInclusive<usize> = 3..=3;

    fn attributes(&self) -> Attributes {
        let mut out: Attributes = vec![
            ("is_causal".into(), Attr::Bool(self.causal)),
            ("window_size".into(), Attr::Int(self.window as i64)),
            ("inputs".into(), texts(&ROLES)),
        ];
        out.extend(self.scale.map(|s| ("scale".into(), Attr::float(s))));
        out
    }

    fn from_attributes(attributes: &[(Arc<str>, Attr)]) -> Result<Self, OpError> {
        if roles(attributes) != ROLES {
            return Err(OpError::Attribute {
                name: "inputs",
                expected: "query, key and value",
            });
        }
        let window = find(attributes, "window_size")
            .map_or(Some(0), Attr::as_int)
            .unwrap_or(-1);
        let causal = find(attributes, "is_causal")
            .and_then(Attr::as_bool)
            .unwrap_or(false);
        let window = window.max(0) as usize;
        if window > 0 && !causal {
            return Err(OpError::Attribute {
                name: "window_size",
                expected: "0 without is_causal",
            });
        }
        Ok(Self {
            scale: find(attributes, "scale").and_then(Attr::as_float),
            causal,
            window,
        })
    }

    fn infer(&self, operands: Operands<'_>) -> Result<Vec<Fact>, OpError> {
        let (q, k, v) = (
            operands.tensor(0)?,
            operands.tensor(1)?,
            operands.tensor(2)?,
        );
        let fixed = |d: &Dim| d.as_const().filter(|c| *c > 0);
        let grouped = match (
            q.shape.get(1).and_then(fixed),
            k.shape.get(1).and_then(fixed),
        ) {
            (Some(heads), Some(kv)) => heads % kv == 0 && v.shape.get(1) == k.shape.get(1),
            _ => false,
        };
        let batch = q.shape.first() == Some(&Dim::Const(1));
        if [q, k, v]
            .iter()
            .any(|t| t.rank() != 4 || t.dtype != q.dtype)
            || !batch
            || !grouped
            || !q.dtype.is_float()
        {
            let shapes = format!("{q} and {k} and {v}");
            return Err(OpError::Shape {
                rule: "queries share key and value heads evenly, in one batch",
                shapes,
            });
        }
        let shape = [
            q.shape[0].clone(),
            q.shape[1].clone(),
            q.shape[2].clone(),
            v.shape[3].clone(),
        ];
        Ok(vec![TensorType::new(q.dtype, shape).into()])
    }

    fn reference(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, OpError> {
        let (q, k, v) = (&inputs[0], &inputs[1], &inputs[2]);
        let ([_, heads, m, d], [_, kv, s, _], [_, _, _, dv]) =
            (&q.shape[..], &k.shape[..], &v.shape[..])
        else {
            return Err(OpError::shapes(
                "queries, keys and values have four axes",
                &[&q.shape, &k.shape, &v.shape],
            ));
        };
        let (heads, m, d, kv, s, dv) = (*heads, *m, *d, *kv, *s, *dv);
        if self.causal && m > s {
            return Err(OpError::shapes(
                "there are as many keys as queries, or more",
                &[&q.shape, &k.shape],
            ));
        }
        let round = |x: f64| round_to(q.dtype, x);
        let factor = self.factor(d, q.dtype);
        let mut out = TensorMut::zeros(q.dtype, &[1, heads, m, dv])?;
        for (h, i) in (0..heads).flat_map(|h| (0..m).map(move |i| (h, i))) {
            let group = h / (heads / kv);
            let score = |j: usize| {
                let terms = (0..d).map(|c| {
                    round(q.get((h * m + i) * d + c).float() * factor)
                        * k.get((group * s + j) * d + c).float()
                });
                let hidden = if self.sees(i, m, j, s) {
                    0.0
                } else {
                    round(-1e4)
                };
                round(round(terms.sum()) + hidden)
            };
            let scores: Vec<f64> = (0..s).map(score).collect();
            let max = scores.iter().fold(f64::NEG_INFINITY, |a, &b| a.max(b));
            let sum: f64 = scores.iter().map(|x| (x - max).exp()).sum();
            for c in 0..dv {
                let mixed = (0..s).map(|j| {
                    round((scores[j] - max).exp() / sum) * v.get((group * s + j) * dv + c).float()
                });
                out.set((h * m + i) * dv + c, Scalar::Float(mixed.sum()));
            }
        }
        Ok(vec![out.finish()])
    }

    fn cases() -> Vec<Case<Self>> {
        let ramp = |shape: [usize; 4], step: usize, dtype| {
            let values: Vec<f64> = (0..shape.iter().product())
                .map(|i| (i * step % 17) as f64 * 0.125 - 1.0)
                .collect();
            Tensor::from_floats(dtype, &shape, &values).ok()
        };
        let case = |dtype, m, s, causal, window, scale| {
            let op = Self {
                scale,
                causal,
                window,
            };
            let inputs = vec![
                ramp([1, 4, m, 8], 5, dtype)?,
                ramp([1, 2, s, 8], 7, dtype)?,
                ramp([1, 2, s, 8], 3, dtype)?,
            ];
            Some(Case { op, inputs })
        };
        [
            case(DType::F32, 3, 5, true, 0, None),
            case(DType::F16, 1, 9, true, 4, None),
            case(DType::F32, 6, 6, true, 2, Some(0.5)),
            case(DType::BF16, 2, 3, false, 0, None),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}
