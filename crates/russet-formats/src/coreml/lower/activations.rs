//! Functions of an element with parameters.

use russet_graph::graph::ValueId;

use super::Lowering;
use super::operands::wrong;
use crate::coreml::error::Outcome;
use crate::coreml::program::Operation;

impl Lowering<'_> {
    /// A number of the kind of `x`.
    fn like(&mut self, x: ValueId, value: f64) -> Outcome<ValueId> {
        self.filled(self.dtype_of(x)?, value)
    }

    fn times(&mut self, x: ValueId, by: f64) -> Outcome<ValueId> {
        let by = self.like(x, by)?;
        self.op("broadcasting_mul", &[x, by])
    }

    fn and(&mut self, x: ValueId, more: f64) -> Outcome<ValueId> {
        let more = self.like(x, more)?;
        self.op("broadcasting_add", &[x, more])
    }

    fn at_most(&mut self, x: ValueId, most: f64) -> Outcome<ValueId> {
        let most = self.like(x, most)?;
        self.op("broadcasting_minimum", &[x, most])
    }

    fn no_less(&mut self, x: ValueId, least: f64) -> Outcome<ValueId> {
        let least = self.like(x, least)?;
        self.op("broadcasting_maximum", &[x, least])
    }

    /// `x` where it is not below zero, else `other`.
    fn positive_or(&mut self, x: ValueId, other: ValueId) -> Outcome<ValueId> {
        let zero = self.like(x, 0.0)?;
        let below = self.op("broadcasting_greater", &[zero, x])?;
        self.op("broadcasting_where", &[below, other, x])
    }
}

/// `clip`: between `alpha` and `beta`.
pub(super) fn clip(l: &mut Lowering<'_>, op: &Operation) -> Outcome<ValueId> {
    let x = l.value(op, "x")?;
    let x = l.at_most(x, l.number_or(op, "beta", f64::INFINITY)?)?;
    l.no_less(x, l.number_or(op, "alpha", f64::NEG_INFINITY)?)
}

/// `relu6`.
pub(super) fn relu6(l: &mut Lowering<'_>, op: &Operation) -> Outcome<ValueId> {
    let x = l.value(op, "x")?;
    let x = l.at_most(x, 6.0)?;
    l.no_less(x, 0.0)
}

/// `threshold`: no less than `alpha`.
pub(super) fn threshold(l: &mut Lowering<'_>, op: &Operation) -> Outcome<ValueId> {
    let x = l.value(op, "x")?;
    l.no_less(x, l.number_or(op, "alpha", 0.0)?)
}

/// `leaky_relu`: `alpha · x` below zero.
pub(super) fn leaky_relu(l: &mut Lowering<'_>, op: &Operation) -> Outcome<ValueId> {
    let x = l.value(op, "x")?;
    let less = l.times(x, l.number_or(op, "alpha", 0.01)?)?;
    l.positive_or(x, less)
}

/// `prelu`: the same with an `alpha` for every channel.
pub(super) fn prelu(l: &mut Lowering<'_>, op: &Operation) -> Outcome<ValueId> {
    let (x, alpha) = (l.value(op, "x")?, l.value(op, "alpha")?);
    let rank = l.rank_of(x)?;
    let shape: Vec<i64> = std::iter::once(-1).chain((2..rank).map(|_| 1)).collect();
    let alpha = l.reshaped(alpha, &shape)?;
    let less = l.op("broadcasting_mul", &[x, alpha])?;
    l.positive_or(x, less)
}

/// `clamped_relu`: `alpha · x` below zero, no more than `beta`.
pub(super) fn clamped_relu(l: &mut Lowering<'_>, op: &Operation) -> Outcome<ValueId> {
    let x = leaky_relu(l, op)?;
    l.at_most(x, l.number_or(op, "beta", f64::INFINITY)?)
}

/// `elu`: `alpha · (eˣ - 1)` below zero.
pub(super) fn elu(l: &mut Lowering<'_>, op: &Operation) -> Outcome<ValueId> {
    let x = l.value(op, "x")?;
    let alpha = l.number_or(op, "alpha", 1.0)?;
    l.wide(x, |l, x| {
        let power = l.op("exp", &[x])?;
        let less = l.and(power, -1.0)?;
        let less = l.times(less, alpha)?;
        l.positive_or(x, less)
    })
}

/// `linear_activation`: `alpha · x + beta`.
pub(super) fn linear(l: &mut Lowering<'_>, op: &Operation) -> Outcome<ValueId> {
    let x = l.value(op, "x")?;
    let x = l.times(x, l.number_or(op, "alpha", 1.0)?)?;
    l.and(x, l.number_or(op, "beta", 0.0)?)
}

/// `sigmoid_hard`: `alpha · x + beta`, between 0 and 1.
pub(super) fn sigmoid_hard(l: &mut Lowering<'_>, op: &Operation) -> Outcome<ValueId> {
    let x = l.value(op, "x")?;
    let x = l.times(x, l.number_or(op, "alpha", 0.2)?)?;
    let x = l.and(x, l.number_or(op, "beta", 0.5)?)?;
    let x = l.at_most(x, 1.0)?;
    l.no_less(x, 0.0)
}

/// `scaled_tanh`: `alpha · tanh(beta · x)`.
pub(super) fn scaled_tanh(l: &mut Lowering<'_>, op: &Operation) -> Outcome<ValueId> {
    let x = l.value(op, "x")?;
    let x = l.times(x, l.number_or(op, "beta", 1.0)?)?;
    let x = l.op("tanh", &[x])?;
    l.times(x, l.number_or(op, "alpha", 1.0)?)
}

/// `softsign`: `x / (1 + |x|)`.
pub(super) fn softsign(l: &mut Lowering<'_>, op: &Operation) -> Outcome<ValueId> {
    let x = l.value(op, "x")?;
    let size = l.op("abs", &[x])?;
    let size = l.and(size, 1.0)?;
    l.op("broadcasting_divide", &[x, size])
}

/// `thresholded_relu`: `x` where it is `alpha` or more, else 0.
pub(super) fn thresholded_relu(l: &mut Lowering<'_>, op: &Operation) -> Outcome<ValueId> {
    let x = l.value(op, "x")?;
    let alpha = l.like(x, l.number_or(op, "alpha", 1.0)?)?;
    let (below, zero) = (l.op("broadcasting_greater", &[alpha, x])?, l.like(x, 0.0)?);
    l.op("broadcasting_where", &[below, zero, x])
}

/// `inverse`: `1 / (x + epsilon)`.
pub(super) fn inverse(l: &mut Lowering<'_>, op: &Operation) -> Outcome<ValueId> {
    let x = l.value(op, "x")?;
    let epsilon = l.number_or(op, "epsilon", 1e-4)?;
    l.wide(x, |l, x| {
        let sum = l.and(x, epsilon)?;
        let one = l.like(sum, 1.0)?;
        l.op("broadcasting_divide", &[one, sum])
    })
}

/// `exp2`.
pub(super) fn exp2(l: &mut Lowering<'_>, op: &Operation) -> Outcome<ValueId> {
    let x = l.value(op, "x")?;
    let two = l.like(x, 2.0)?;
    l.op("broadcasting_pow", &[two, x])
}

/// `sign`.
pub(super) fn sign(l: &mut Lowering<'_>, op: &Operation) -> Outcome<ValueId> {
    let x = l.value(op, "x")?;
    let (kind, zero) = (l.dtype_of(x)?, l.like(x, 0.0)?);
    let (above, below) = (
        l.op("broadcasting_greater", &[x, zero])?,
        l.op("broadcasting_greater", &[zero, x])?,
    );
    let (above, below) = (l.cast(above, kind)?, l.cast(below, kind)?);
    l.op("broadcasting_sub", &[above, below])
}

/// `floor`.
pub(super) fn floor(l: &mut Lowering<'_>, op: &Operation) -> Outcome<ValueId> {
    let x = l.value(op, "x")?;
    let one = l.like(x, 1.0)?;
    l.op("broadcasting_floor_divide", &[x, one])
}

/// `ceil`: `-floor(-x)`.
pub(super) fn ceil(l: &mut Lowering<'_>, op: &Operation) -> Outcome<ValueId> {
    let x = l.value(op, "x")?;
    let (one, turned) = (l.like(x, 1.0)?, l.times(x, -1.0)?);
    let floor = l.op("broadcasting_floor_divide", &[turned, one])?;
    l.times(floor, -1.0)
}

/// `mod`: the remainder with the sign of the divisor.
pub(super) fn modulo(l: &mut Lowering<'_>, op: &Operation) -> Outcome<ValueId> {
    let (x, y) = (l.value(op, "x")?, l.value(op, "y")?);
    let rest = l.op("broadcasting_modulo", &[x, y])?;
    let zero = l.like(x, 0.0)?;
    let some = l.op("broadcasting_not_equal", &[rest, zero])?;
    let (low, turned) = (
        l.op("broadcasting_greater", &[zero, rest])?,
        l.op("broadcasting_greater", &[zero, y])?,
    );
    let other = l.op("broadcasting_xor", &[low, turned])?;
    let moved = l.op("broadcasting_and", &[some, other])?;
    let sum = l.op("broadcasting_add", &[rest, y])?;
    l.op("broadcasting_where", &[moved, sum, rest])
}

/// `real_div`: of integers too, whose quotient rounds towards minus infinity.
pub(super) fn divide(l: &mut Lowering<'_>, op: &Operation) -> Outcome<ValueId> {
    let (x, y) = (l.value(op, "x")?, l.value(op, "y")?);
    let kind = l.dtype_of(x)?;
    match kind.is_float() {
        true => l.op("broadcasting_divide", &[x, y]),
        false if kind.is_int() => l.op("broadcasting_floor_divide", &[x, y]),
        false => Err(wrong("x", "numbers")),
    }
}
