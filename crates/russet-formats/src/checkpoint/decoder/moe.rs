//! Mixtures of experts: scores, the choice of some, and the weighted sum of what they say, in the steps that exporters write.

use russet_graph::attr::Attr;
use russet_graph::graph::{ConstantData, Storage, ValueId};
use russet_graph::ops::argsort::Argsort;
use russet_graph::ops::broadcasting_add::BroadcastingAdd;
use russet_graph::ops::broadcasting_divide::BroadcastingDivide;
use russet_graph::ops::broadcasting_mul::BroadcastingMul;
use russet_graph::ops::cast::Cast;
use russet_graph::ops::expand_dims::ExpandDims;
use russet_graph::ops::gather_nd::GatherNd;
use russet_graph::ops::reduce_sum::ReduceSum;
use russet_graph::ops::shrink_dims::ShrinkDims;
use russet_graph::ops::sigmoid::Sigmoid;
use russet_graph::ops::softmax::Softmax;
use russet_graph::ops::sort::Sort;
use russet_graph::types::{DType, TensorType};
use russet_kernels::mem::SharedBytes;

use super::super::config::Experts;
use super::super::weights::{Linear, Part, Vector};
use super::{Decoder, Result};
use crate::builder::attributes;

/// The expert that is always asked.
const SHARED: [Linear; 3] = [Linear::SharedGate, Linear::SharedUp, Linear::SharedDown];

/// Who is asked, and how much each counts.
#[derive(Clone, Copy)]
pub(super) struct Chosen {
    /// `[1, q, used]`.
    experts: ValueId,
    /// `[1, q, used]`, of the program's type.
    weights: ValueId,
}

impl Decoder<'_> {
    pub(super) fn router_scores(
        &mut self,
        layer: usize,
        experts: Experts,
        x: ValueId,
    ) -> Result<ValueId> {
        let shape = [experts.count, self.config.hidden];
        self.project(layer, Linear::Router, x, shape)
    }

    /// Gemma 4 normalises and scales what is scored.
    pub(super) fn scaled_router_scores(
        &mut self,
        layer: usize,
        experts: Experts,
        x: ValueId,
    ) -> Result<ValueId> {
        let hidden = self.config.hidden;
        let scale = self.elements(Part::vector(layer, Vector::RouterScale), &[hidden])?;
        let root = (hidden as f64).powf(-0.5) as f32;
        let scale: Vec<f32> = scale.iter().map(|s| s * root).collect();
        let scale = self.constant(&[hidden], &scale)?;
        let x = self.norm_by(scale, x)?;
        self.router_scores(layer, experts, x)
    }

    /// The experts with the largest scores `[1, q, count]`.
    pub(super) fn chosen(&mut self, layer: usize, of: Experts, scores: ValueId) -> Result<Chosen> {
        let scores = self.b.op(Cast { to: DType::F32 }, &[scores])?;
        let axis = self.b.int(2)?;
        let shares = self.b.op(Softmax, &[scores, axis])?;
        let yes = self.truth()?;
        let sorted = self.b.op(Sort, &[shares, axis, yes, yes])?;
        let order = self.b.op(Argsort, &[shares, axis, yes, yes])?;
        let mut weights = self.columns(sorted, 3, 0, of.used)?;
        let experts = self.columns(order, 3, 0, of.used)?;
        if of.normalised {
            let axes = self.b.ints(&[2])?;
            let sum = self.b.op(ReduceSum, &[weights, axes])?;
            weights = self.b.op(BroadcastingDivide, &[weights, sum])?;
        }
        let to = self.config.dtype;
        weights = self.b.op(Cast { to }, &[weights])?;
        if self.architecture.gemma4 {
            weights = self.weighted_experts(layer, of, experts, weights)?;
        }
        Ok(Chosen { experts, weights })
    }

    /// Gemma 4 has one more weight for each expert.
    fn weighted_experts(
        &mut self,
        layer: usize,
        of: Experts,
        experts: ValueId,
        weights: ValueId,
    ) -> Result<ValueId> {
        let table = self.weight(Part::vector(layer, Vector::ExpertScale), &[of.count])?;
        let axis = self.b.ints(&[3])?;
        let index = self.b.op(ExpandDims, &[experts, axis])?;
        let scale = self.b.op(GatherNd, &[table, index])?;
        self.b.op(BroadcastingMul, &[weights, scale])
    }

    /// What those say about `[1, q, hidden]`, summed by their weights.
    pub(super) fn experts(
        &mut self,
        layer: usize,
        of: Experts,
        x: ValueId,
        chosen: Chosen,
    ) -> Result<ValueId> {
        let (hidden, used) = (self.config.hidden, of.used);
        let ids = self.reshape(chosen.experts, &[None, Some(used)])?;
        let x = self.reshape(x, &[None, Some(1), Some(1), Some(hidden)])?;
        let both = self.stack(layer, of, &[Linear::ExpertGate, Linear::ExpertUp])?;
        let both = self.picked(x, both, ids)?;
        let gate = self.columns(both, 4, 0, of.width)?;
        let up = self.columns(both, 4, of.width, 2 * of.width)?;
        let gate = self.activate(gate)?;
        let inner = self.b.op(BroadcastingMul, &[gate, up])?;
        let down = self.stack(layer, of, &[Linear::ExpertDown])?;
        let said = self.picked(inner, down, ids)?;
        let two = self.b.ints(&[2])?;
        let said = self.b.op(ShrinkDims, &[said, two])?;
        let weights = self.reshape(chosen.weights, &[None, Some(used), Some(1)])?;
        let said = self.b.op(BroadcastingMul, &[said, weights])?;
        let one = self.b.ints(&[1])?;
        let sum = self.b.op(ReduceSum, &[said, one])?;
        self.reshape(sum, &[Some(1), None, Some(hidden)])
    }

    /// Adds what the expert says that is always asked.
    pub(super) fn with_shared(
        &mut self,
        layer: usize,
        of: Experts,
        x: ValueId,
        answer: ValueId,
    ) -> Result<ValueId> {
        let Some(width) = of.shared else {
            return Ok(answer);
        };
        let shared = self.gated(layer, SHARED, width, x)?;
        let score = self.project(layer, Linear::SharedScore, x, [1, self.config.hidden])?;
        let open = self.b.op(Sigmoid, &[score])?;
        let shared = self.b.op(BroadcastingMul, &[shared, open])?;
        self.b.op(BroadcastingAdd, &[answer, shared])
    }

    /// Matrices of all experts side by side, turned for [`Self::picked`]: `[count, in, out]`.
    fn stack(
        &mut self,
        layer: usize,
        of: Experts,
        linears: &[fn(usize) -> Linear],
    ) -> Result<ValueId> {
        let (out, rows) = match linears.len() {
            1 => (self.config.hidden, of.width),
            _ => (of.width, self.config.hidden),
        };
        let wide = out * linears.len();
        // What is allocated was read: a config may claim more experts than there are.
        let mut all = Vec::new();
        for expert in 0..of.count {
            for (i, linear) in linears.iter().enumerate() {
                let part = Part::linear(layer, linear(expert));
                let matrix = self.elements(part, &[out, rows])?;
                let start = expert * rows * wide;
                all.resize(start + rows * wide, 0.0f32);
                let place = all.get_mut(start..).unwrap_or_default();
                turn(&matrix, rows, place, wide, i * out);
            }
        }
        self.constant(&[of.count, rows, wide], &all)
    }

    /// `[q, …, 1, in]` times the matrices that `ids` `[q, used]` pick: `[q, used, 1, out]`.
    fn picked(&mut self, x: ValueId, stack: ValueId, ids: ValueId) -> Result<ValueId> {
        let values = [("num_batch_axes", Attr::Int(0)), ("version", Attr::Int(1))];
        let roles = attributes(&["lhs", "rhs", "rhs_indices"], &values);
        self.b.named("gather_mm", &roles, &[x, stack, ids])
    }

    /// A constant that says yes.
    fn truth(&mut self) -> Result<ValueId> {
        self.b.constant(ConstantData {
            ty: TensorType::fixed(DType::Bool, &[]),
            storage: Storage::Dense(SharedBytes::from_vec(vec![1])),
        })
    }
}

/// Writes a matrix `[out, in]` turned into columns `from..from + out` of rows of `wide`.
fn turn(matrix: &[f32], rows: usize, place: &mut [f32], wide: usize, from: usize) {
    for (column, values) in matrix.chunks_exact(rows).enumerate() {
        let to = place.iter_mut().skip(from + column).step_by(wide);
        to.zip(values).for_each(|(to, v)| *to = *v);
    }
}
