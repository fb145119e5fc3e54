//! Along axes: sums and extremes, the softmax, the layer norm. Sums are taken in 32 bits and rounded once.

use russet_graph::graph::ValueId;

use super::Lowering;
use super::operands::wrong;
use crate::coreml::error::Outcome;
use crate::coreml::program::Operation;

impl Lowering<'_> {
    /// The axes of an operation, all where it names none.
    pub(super) fn axes(&self, op: &Operation, x: ValueId) -> Outcome<Vec<i64>> {
        let rank = self.rank_of(x)?;
        let Some(axes) = self.ints(op, "axes")? else {
            return Ok((0..rank as i64).collect());
        };
        let axes = axes.iter().map(|&a| Ok(self.axis_in(a, rank)? as i64));
        axes.collect()
    }

    /// A reduction by the operation of the graph with this name.
    fn reduced(&mut self, op: &Operation, name: &'static str, wide: bool) -> Outcome<ValueId> {
        self.composed(op, |l, x, along| match wide {
            true => l.wide(x, |l, x| l.op(name, &[x, along])),
            false => l.op(name, &[x, along]),
        })
    }

    /// A reduction that `compute` makes of `x` and axes, which keep extent 1.
    fn composed(
        &mut self,
        op: &Operation,
        compute: impl FnOnce(&mut Self, ValueId, ValueId) -> Outcome<ValueId>,
    ) -> Outcome<ValueId> {
        let x = self.value(op, "x")?;
        let axes = self.axes(op, x)?;
        let along = self.vector(&axes)?;
        let out = compute(self, x, along)?;
        match self.flag_or(op, "keep_dims", false)? {
            true => Ok(out),
            false => self.shrunk(out, &axes),
        }
    }
}

/// `reduce_sum`.
pub(super) fn sum(l: &mut Lowering<'_>, op: &Operation) -> Outcome<ValueId> {
    l.reduced(op, "reduce_sum", true)
}

/// `reduce_mean`.
pub(super) fn mean(l: &mut Lowering<'_>, op: &Operation) -> Outcome<ValueId> {
    l.reduced(op, "reduce_mean", true)
}

/// `reduce_prod`.
pub(super) fn product(l: &mut Lowering<'_>, op: &Operation) -> Outcome<ValueId> {
    l.reduced(op, "reduce_product", true)
}

/// `reduce_max`.
pub(super) fn max(l: &mut Lowering<'_>, op: &Operation) -> Outcome<ValueId> {
    l.reduced(op, "reduce_max", false)
}

/// `reduce_min`.
pub(super) fn min(l: &mut Lowering<'_>, op: &Operation) -> Outcome<ValueId> {
    l.reduced(op, "reduce_min", false)
}

/// `reduce_sum_square`.
pub(super) fn sum_square(l: &mut Lowering<'_>, op: &Operation) -> Outcome<ValueId> {
    l.composed(op, |l, x, along| l.wide(x, |l, x| squares(l, x, along)))
}

/// `reduce_l2_norm`: the root of the sum of squares.
pub(super) fn l2(l: &mut Lowering<'_>, op: &Operation) -> Outcome<ValueId> {
    l.composed(op, |l, x, along| {
        l.wide(x, |l, x| {
            let sum = squares(l, x, along)?;
            l.op("sqrt", &[sum])
        })
    })
}

/// `reduce_l1_norm`: the sum of sizes.
pub(super) fn l1(l: &mut Lowering<'_>, op: &Operation) -> Outcome<ValueId> {
    l.composed(op, |l, x, along| {
        l.wide(x, |l, x| {
            let size = l.op("abs", &[x])?;
            l.op("reduce_sum", &[size, along])
        })
    })
}

/// `reduce_log_sum`.
pub(super) fn log_sum(l: &mut Lowering<'_>, op: &Operation) -> Outcome<ValueId> {
    l.composed(op, |l, x, along| {
        l.wide(x, |l, x| {
            let sum = l.op("reduce_sum", &[x, along])?;
            l.op("log", &[sum])
        })
    })
}

/// `reduce_log_sum_exp`, behind the largest element, so that nothing overflows.
pub(super) fn log_sum_exp(l: &mut Lowering<'_>, op: &Operation) -> Outcome<ValueId> {
    l.composed(op, |l, x, along| {
        l.wide(x, |l, x| {
            let most = l.op("reduce_max", &[x, along])?;
            let below = l.op("broadcasting_sub", &[x, most])?;
            let power = l.op("exp", &[below])?;
            let sum = l.op("reduce_sum", &[power, along])?;
            let log = l.op("log", &[sum])?;
            l.op("broadcasting_add", &[log, most])
        })
    })
}

fn squares(l: &mut Lowering<'_>, x: ValueId, along: ValueId) -> Outcome<ValueId> {
    let square = l.op("broadcasting_mul", &[x, x])?;
    l.op("reduce_sum", &[square, along])
}

/// `l2_norm`: `x / √(Σ x² + epsilon)` over the last three axes.
pub(super) fn l2_norm(l: &mut Lowering<'_>, op: &Operation) -> Outcome<ValueId> {
    let x = l.value(op, "x")?;
    let epsilon = l.number_or(op, "epsilon", 1e-6)?;
    l.wide(x, |l, x| {
        let along = l.vector(&[-3, -2, -1])?;
        let sum = squares(l, x, along)?;
        let epsilon = l.filled(l.dtype_of(x)?, epsilon)?;
        let sum = l.op("broadcasting_add", &[sum, epsilon])?;
        let scale = l.op("rsqrt", &[sum])?;
        l.op("broadcasting_mul", &[x, scale])
    })
}

/// `reduce_argmax`, of the kind that is declared.
pub(super) fn argmax(l: &mut Lowering<'_>, op: &Operation) -> Outcome<ValueId> {
    let x = l.value(op, "x")?;
    let at = l.axis_in(l.int_or(op, "axis", -1)?, l.rank_of(x)?)? as i64;
    let axis = l.scalar(at)?;
    let out = l.op("argmax", &[x, axis])?;
    let kind = l
        .kind_of(op, 0)
        .ok_or_else(|| wrong("output_dtype", "a kind of integer"))?;
    let out = l.cast(out, kind)?;
    match l.flag_or(op, "keep_dims", false)? {
        true => Ok(out),
        false => l.shrunk(out, &[at]),
    }
}

/// `softmax`.
pub(super) fn softmax(l: &mut Lowering<'_>, op: &Operation) -> Outcome<ValueId> {
    let x = l.value(op, "x")?;
    let axis = l.scalar(l.int_or(op, "axis", -1)?)?;
    l.op("softmax", &[x, axis])
}

/// `layer_norm`: `(x - mean) / √(variance + epsilon) · gamma + beta`, in 32 bits: squares of large elements overflow 16.
pub(super) fn layer_norm(l: &mut Lowering<'_>, op: &Operation) -> Outcome<ValueId> {
    let x = l.value(op, "x")?;
    let axes = l.axes(op, x)?;
    let epsilon = l.number_or(op, "epsilon", 1e-5)?;
    let gamma = parameter(l, op, "gamma", x, &axes)?;
    let beta = parameter(l, op, "beta", x, &axes)?;
    l.wide(x, |l, x| {
        let (kind, along) = (l.dtype_of(x)?, l.vector(&axes)?);
        let mean = l.op("reduce_mean", &[x, along])?;
        let away = l.op("broadcasting_sub", &[x, mean])?;
        let squares = l.op("broadcasting_mul", &[away, away])?;
        let variance = l.op("reduce_mean", &[squares, along])?;
        let epsilon = l.filled(kind, epsilon)?;
        let sum = l.op("broadcasting_add", &[variance, epsilon])?;
        let scale = l.op("rsqrt", &[sum])?;
        let mut out = l.op("broadcasting_mul", &[away, scale])?;
        if let Some(gamma) = gamma {
            let gamma = l.cast(gamma, kind)?;
            out = l.op("broadcasting_mul", &[out, gamma])?;
        }
        if let Some(beta) = beta {
            let beta = l.cast(beta, kind)?;
            out = l.op("broadcasting_add", &[out, beta])?;
        }
        Ok(out)
    })
}

/// A parameter of a norm, whose axes are those that are normalised, among all axes of `x`.
fn parameter(
    l: &mut Lowering<'_>,
    op: &Operation,
    name: &str,
    x: ValueId,
    axes: &[i64],
) -> Outcome<Option<ValueId>> {
    let Some(value) = l.optional(op, name)? else {
        return Ok(None);
    };
    let extents = l.extents_of(value)?;
    if extents.len() != axes.len() {
        return Err(wrong(name, "of as many axes as are normalised"));
    }
    let mut shape = vec![1; l.rank_of(x)?];
    for (axis, extent) in axes.iter().zip(extents) {
        let at = usize::try_from(*axis).unwrap_or_default();
        if let Some(d) = shape.get_mut(at) {
            *d = extent as i64;
        }
    }
    l.reshaped(value, &shape).map(Some)
}
