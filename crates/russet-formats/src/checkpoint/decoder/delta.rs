//! The gated delta rule with the short convolution before it (Yang et al., "Gated Delta Networks", arXiv 2412.06464).

use russet_graph::graph::ValueId;
use russet_graph::ops::broadcasting_add::BroadcastingAdd;
use russet_graph::ops::broadcasting_greater::BroadcastingGreater;
use russet_graph::ops::broadcasting_mul::BroadcastingMul;
use russet_graph::ops::broadcasting_where::BroadcastingWhere;
use russet_graph::ops::cast::Cast;
use russet_graph::ops::concat::Concat;
use russet_graph::ops::exp::Exp;
use russet_graph::ops::expand_dims::ExpandDims;
use russet_graph::ops::gated_delta_update::GatedDeltaUpdate;
use russet_graph::ops::log::Log;
use russet_graph::ops::sigmoid::Sigmoid;
use russet_graph::ops::silu::Silu;
use russet_graph::ops::slice::Slice;
use russet_graph::ops::tile::Tile;
use russet_graph::types::DType;

use super::super::config::Delta;
use super::super::weights::{Linear, Part, Vector};
use super::cache::Which;
use super::{Decoder, END, Result, extent};

/// Beyond this `log(1 + e^x)` is `x` (PyTorch's `softplus`).
const STRAIGHT: f32 = 20.0;

impl Decoder<'_> {
    /// Of `[1, q, hidden]`, normalised.
    pub(super) fn delta(&mut self, layer: usize, of: Delta, x: ValueId) -> Result<ValueId> {
        let hidden = self.config.hidden;
        let mixed = self.project(layer, Linear::DeltaIn, x, [of.channels(), hidden])?;
        let mixed = self.convolved(layer, of, mixed)?;
        let keys = of.key_heads * of.key_dim;
        let query = self.repeated(of, mixed, 0)?;
        let key = self.repeated(of, mixed, keys)?;
        let value = self.columns(mixed, 3, 2 * keys, of.channels())?;
        let value = self.split(value, of.value_heads, of.value_dim)?;
        let decay = self.decay(layer, of, x)?;
        let beta = self.project(layer, Linear::DeltaBeta, x, [of.value_heads, hidden])?;
        let beta = self.b.op(Sigmoid, &[beta])?;
        let beta = self.transpose(beta, &[0, 2, 1])?;
        let state = self.running(Which::Recurrent, of.row, 5)?;
        let rule = GatedDeltaUpdate { normalise: true };
        let inputs = [query, key, value, decay, beta, state];
        let [output, state] = self.b.ops(rule, &inputs)?;
        self.run(Which::Recurrent, of.row, state, 5)?;
        self.delta_out(layer, of, x, output)
    }

    /// The convolution over the last positions of each channel, and what follows it: `[1, q, channels]`.
    fn convolved(&mut self, layer: usize, of: Delta, x: ValueId) -> Result<ValueId> {
        let past = self.running(Which::Convolution, of.row, 4)?;
        let one = self.b.int(1)?;
        let long = self.b.op(Concat, &[one, past, x])?;
        let zero = self.b.ints(&[0])?;
        let axis = self.b.int(0)?;
        let begin = self.b.op(Concat, &[axis, zero, self.lengths.query, zero])?;
        let (end, steps) = (self.b.ints(&[END; 3])?, self.b.ints(&[1; 3])?);
        let kept = self.b.op(Slice, &[long, begin, end, steps])?;
        self.run(Which::Convolution, of.row, kept, 4)?;
        let kernel = self.elements(
            Part::vector(layer, Vector::DeltaKernel),
            &[of.channels(), 1, of.kernel],
        )?;
        let mut sum = None;
        for tap in 0..of.kernel {
            let by: Vec<f32> = kernel
                .iter()
                .skip(tap)
                .step_by(of.kernel)
                .copied()
                .collect();
            let term = self.tap(long, tap, &by)?;
            sum = Some(match sum {
                None => term,
                Some(sum) => self.b.op(BroadcastingAdd, &[sum, term])?,
            });
        }
        self.activate(sum.unwrap_or(x))
    }

    /// Positions `tap..tap + q` times one number a channel.
    fn tap(&mut self, long: ValueId, tap: usize, by: &[f32]) -> Result<ValueId> {
        let (axis, end) = (self.b.int(0)?, self.b.ints(&[END])?);
        let shift = self.b.ints(&[extent(tap)])?;
        let last = self.b.op(BroadcastingAdd, &[self.lengths.query, shift])?;
        let end = self.b.op(Concat, &[axis, end, last, end])?;
        let begin = self.b.ints(&[0, extent(tap), 0])?;
        let steps = self.b.ints(&[1; 3])?;
        let part = self.b.op(Slice, &[long, begin, end, steps])?;
        let by = self.constant(&[by.len()], by)?;
        self.b.op(BroadcastingMul, &[part, by])
    }

    /// Queries or keys, which start at a channel, `[1, value heads, q, dk]`: each serves several heads of values.
    fn repeated(&mut self, of: Delta, mixed: ValueId, from: usize) -> Result<ValueId> {
        let (heads, width) = (of.key_heads, of.key_dim);
        let x = self.columns(mixed, 3, from, from + heads * width)?;
        let x = self.split(x, heads, width)?;
        let times = of.value_heads / heads;
        if times == 1 {
            return Ok(x);
        }
        let two = self.b.ints(&[2])?;
        let x = self.b.op(ExpandDims, &[x, two])?;
        let times = self.b.ints(&[1, 1, extent(times), 1, 1])?;
        let x = self.b.op(Tile, &[x, times])?;
        self.reshape(x, &[Some(1), Some(of.value_heads), None, Some(width)])
    }

    /// The logarithm of what is kept of the state, `[1, h, q]` in f32: `-e^A · softplus(a + bias)`.
    fn decay(&mut self, layer: usize, of: Delta, x: ValueId) -> Result<ValueId> {
        let heads = of.value_heads;
        let a = self.project(layer, Linear::DeltaDecay, x, [heads, self.config.hidden])?;
        let a = self.transpose(a, &[0, 2, 1])?;
        let a = self.b.op(Cast { to: DType::F32 }, &[a])?;
        let shape = [1, heads, 1];
        let bias = self.elements(Part::vector(layer, Vector::DeltaBias), &[heads])?;
        let bias = self.constant_of(DType::F32, &shape, &bias)?;
        let a = self.b.op(BroadcastingAdd, &[a, bias])?;
        let grown = self.b.op(Exp, &[a])?;
        let one = self.constant_of(DType::F32, &[], &[1.0])?;
        let grown = self.b.op(BroadcastingAdd, &[grown, one])?;
        let curve = self.b.op(Log, &[grown])?;
        let limit = self.constant_of(DType::F32, &[], &[STRAIGHT])?;
        let beyond = self.b.op(BroadcastingGreater, &[a, limit])?;
        let soft = self.b.op(BroadcastingWhere, &[beyond, a, curve])?;
        let logs = self.elements(Part::vector(layer, Vector::DeltaLog), &[heads])?;
        let rates: Vec<f32> = logs.iter().map(|a| -a.exp()).collect();
        let rates = self.constant_of(DType::F32, &shape, &rates)?;
        self.b.op(BroadcastingMul, &[soft, rates])
    }

    /// Of what the rule gives, `[1, q, h, dv]`: normalised, gated, projected.
    fn delta_out(&mut self, layer: usize, of: Delta, x: ValueId, y: ValueId) -> Result<ValueId> {
        let (heads, width, hidden) = (of.value_heads, of.value_dim, self.config.hidden);
        let wide = heads * width;
        let scale = self.weight(Part::vector(layer, Vector::DeltaNorm), &[width])?;
        let normed = self.norm_by(scale, y)?;
        let gate = self.project(layer, Linear::DeltaGate, x, [wide, hidden])?;
        let gate = self.reshape(gate, &[Some(1), None, Some(heads), Some(width)])?;
        let open = self.b.op(Silu, &[gate])?;
        let gated = self.b.op(BroadcastingMul, &[normed, open])?;
        let joined = self.reshape(gated, &[Some(1), None, Some(wide)])?;
        self.project(layer, Linear::DeltaOut, joined, [hidden, wide])
    }
}
