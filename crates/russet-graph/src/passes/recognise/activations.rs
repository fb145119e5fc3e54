//! Activations that are spelled out: known by what they give, not by the order in which an exporter writes their terms.

use super::sight::{Pair, Patch, Sight};
use crate::graph::{Node, ValueId};
use crate::ops::Op;
use crate::ops::erf::erfc;
use crate::ops::gelu::{Approximate, Gelu};
use crate::ops::sigmoid::Sigmoid;
use crate::ops::silu::Silu;

/// Where a function is looked at.
const AT: [f64; 11] = [
    -6.0, -2.75, -1.5, -0.625, -0.1, 0.2, 0.75, 1.25, 2.0, 3.5, 7.0,
];
/// The most operations that spell out a function, counted as often as they are used.
const OPERATIONS: usize = 24;

/// A function with an operation of its own.
struct Known {
    op: fn() -> Op,
    value: fn(f64) -> f64,
}

const KNOWN: &[Known] = &[
    Known {
        op: || Sigmoid.into(),
        value: sigmoid,
    },
    Known {
        op: || Silu.into(),
        value: |x| x * sigmoid(x),
    },
    Known {
        op: || gelu(Approximate::Tanh),
        value: |x| 0.5 * x * (1.0 + (0.797_884_560_802_865_4 * (x + 0.044_715 * x * x * x)).tanh()),
    },
    Known {
        op: || gelu(Approximate::None),
        value: |x| 0.5 * x * erfc(-x * std::f64::consts::FRAC_1_SQRT_2),
    },
];

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn gelu(approximate: Approximate) -> Op {
    Gelu { approximate }.into()
}

/// A product or sum that is, of some one value, one of the [`KNOWN`] functions.
pub(super) fn named(sight: &Sight<'_>, node: &Node) -> Option<Patch> {
    let spelled = matches!(Pair::of(&node.op)?, Pair::Add | Pair::Mul | Pair::Div);
    let &[id] = &node.outputs[..] else {
        return None;
    };
    let mut terms = Terms::default();
    terms.walk(sight, node);
    if !spelled || !terms.curved {
        return None;
    }
    let found = |&x: &ValueId| Some((x, known(sight, node, x)?));
    let (x, known) = terms.values.iter().find_map(found)?;
    let same = sight.dtype(x) == sight.dtype(id) && sight.shape(x) == sight.shape(id);
    same.then(|| Patch::new(sight).finish((known.op)(), &[x], node))
}

/// The function of `x` that a node gives, as near as constants in half precision allow.
fn known(sight: &Sight<'_>, node: &Node, x: ValueId) -> Option<&'static Known> {
    let at = |&at: &f64| {
        let mut left = OPERATIONS;
        value(sight, node, (x, at), &mut left)
    };
    let values: Vec<f64> = AT.iter().map(at).collect::<Option<_>>()?;
    let near = |(x, got): (&f64, &f64), known: &Known| {
        (got - (known.value)(*x)).abs() <= 1.5e-4 * x.abs().max(1.0)
    };
    KNOWN
        .iter()
        .find(|k| AT.iter().zip(&values).all(|pair| near(pair, k)))
}

/// The values that terms may be functions of.
#[derive(Default)]
struct Terms {
    values: Vec<ValueId>,
    nodes: usize,
    /// Whether there is more than sums and products.
    curved: bool,
}

impl Terms {
    fn walk(&mut self, sight: &Sight<'_>, node: &Node) {
        self.nodes += 1;
        self.curved |= curve(&node.op).is_some_and(|c| c.curved);
        for &id in &node.inputs {
            if self.values.contains(&id) || sight.number(id).is_some() {
                continue;
            }
            self.values.push(id);
            let maker = sight.maker(id).filter(|n| is_step(&n.op));
            if let Some(maker) = maker.filter(|_| self.nodes < OPERATIONS) {
                self.walk(sight, maker);
            }
        }
    }
}

/// A function of one operand.
struct Curve {
    value: fn(f64) -> f64,
    curved: bool,
}

fn curve(op: &Op) -> Option<Curve> {
    let curved = |value| {
        Some(Curve {
            value,
            curved: true,
        })
    };
    match op {
        Op::Tanh(_) => curved(f64::tanh),
        Op::Exp(_) => curved(f64::exp),
        Op::Sigmoid(_) => curved(sigmoid),
        Op::Erf(_) => curved(|x| 1.0 - erfc(x)),
        Op::Cast(_) => Some(Curve {
            value: |x| x,
            curved: false,
        }),
        _ => None,
    }
}

fn is_step(op: &Op) -> bool {
    curve(op).is_some() || Pair::of(op).is_some_and(|p| p != Pair::Product)
}

/// What a node gives where a value is this number, and nothing else is open.
fn value(sight: &Sight<'_>, node: &Node, x: (ValueId, f64), left: &mut usize) -> Option<f64> {
    *left = left.checked_sub(1)?;
    let mut operand = |id: ValueId| {
        if id == x.0 {
            return Some(x.1);
        }
        match sight.number(id) {
            Some(number) => Some(number),
            None => value(sight, sight.maker(id)?, x, left),
        }
    };
    if let [a] = node.inputs[..] {
        return Some((curve(&node.op)?.value)(operand(a)?));
    }
    let &[a, b] = &node.inputs[..] else {
        return None;
    };
    let (kind, a) = (Pair::of(&node.op)?, operand(a)?);
    let b = operand(b)?;
    match kind {
        Pair::Add => Some(a + b),
        Pair::Sub => Some(a - b),
        Pair::Mul => Some(a * b),
        Pair::Div => Some(a / b),
        Pair::Product => None,
    }
}
