//! Element by element: functions, comparisons, choices, other kinds.

use russet_graph::attr::Attr;
use russet_graph::graph::ValueId;
use russet_graph::types::DType;

use super::Lowering;
use super::operands::wrong;
use crate::coreml::error::Outcome;
use crate::coreml::program::{Element, Operation, ValueType};

/// Element kinds by the names that `cast` takes.
const KINDS: &[(&str, DType)] = &[
    ("bool", DType::Bool),
    ("fp16", DType::F16),
    ("fp32", DType::F32),
    ("int8", DType::I8),
    ("int16", DType::I16),
    ("int32", DType::I32),
    ("uint8", DType::U8),
    ("uint16", DType::U16),
    ("uint32", DType::U32),
];

/// The element kind of a name.
pub(super) fn kind(name: &str) -> Option<DType> {
    KINDS.iter().find(|(n, _)| *n == name).map(|(_, d)| *d)
}

impl Lowering<'_> {
    /// An operation of `x`.
    pub(super) fn unary(&mut self, op: &Operation, name: &'static str) -> Outcome<ValueId> {
        let x = self.value(op, "x")?;
        self.op(name, &[x])
    }

    /// An operation of `x` and `y`, which are repeated to one shape.
    pub(super) fn binary(&mut self, op: &Operation, name: &'static str) -> Outcome<ValueId> {
        let (x, y) = self.pair(op)?;
        self.op(name, &[x, y])
    }

    fn pair(&mut self, op: &Operation) -> Outcome<(ValueId, ValueId)> {
        Ok((self.value(op, "x")?, self.value(op, "y")?))
    }

    /// `a > b` or `a = b`; of numbers that are none, neither.
    fn at_least(&mut self, a: ValueId, b: ValueId) -> Outcome<ValueId> {
        if !self.dtype_of(a)?.is_float() {
            let less = self.op("broadcasting_greater", &[b, a])?;
            return self.op("not", &[less]);
        }
        let more = self.op("broadcasting_greater", &[a, b])?;
        let same = self.op("broadcasting_equal", &[a, b])?;
        self.op("broadcasting_or", &[more, same])
    }
}

/// `cast`: the kind is that of the declared result.
pub(super) fn cast(l: &mut Lowering<'_>, op: &Operation) -> Outcome<ValueId> {
    let x = l.value(op, "x")?;
    let name = l.text(op, "dtype")?;
    let declared = op.outputs.first().map(|o| &o.ty);
    let to = match declared {
        Some(ValueType::Tensor(t)) if name.is_empty() => match t.element {
            Element::Number(dtype) => Some(dtype),
            Element::Text => None,
        },
        _ => kind(&name),
    };
    let to = to.ok_or_else(|| wrong("dtype", "the name of an element kind"))?;
    l.cast(x, to)
}

/// `identity`.
pub(super) fn identity(l: &mut Lowering<'_>, op: &Operation) -> Outcome<ValueId> {
    l.value(op, "x")
}

/// `select`: `a` where `cond` holds, else `b`.
pub(super) fn select(l: &mut Lowering<'_>, op: &Operation) -> Outcome<ValueId> {
    let inputs = [l.value(op, "cond")?, l.value(op, "a")?, l.value(op, "b")?];
    l.op("broadcasting_where", &inputs)
}

/// `less`.
pub(super) fn less(l: &mut Lowering<'_>, op: &Operation) -> Outcome<ValueId> {
    let (x, y) = l.pair(op)?;
    l.op("broadcasting_greater", &[y, x])
}

/// `less_equal`.
pub(super) fn less_equal(l: &mut Lowering<'_>, op: &Operation) -> Outcome<ValueId> {
    let (x, y) = l.pair(op)?;
    l.at_least(y, x)
}

/// `greater_equal`.
pub(super) fn greater_equal(l: &mut Lowering<'_>, op: &Operation) -> Outcome<ValueId> {
    let (x, y) = l.pair(op)?;
    l.at_least(x, y)
}

/// `gelu`, by its mode.
pub(super) fn gelu(l: &mut Lowering<'_>, op: &Operation) -> Outcome<ValueId> {
    let x = l.value(op, "x")?;
    let mode = match &*l.text(op, "mode")? {
        "" | "EXACT" => "none",
        "TANH_APPROXIMATION" => "tanh",
        "SIGMOID_APPROXIMATION" => "sigmoid",
        _ => {
            return Err(wrong(
                "mode",
                "EXACT, TANH_APPROXIMATION or SIGMOID_APPROXIMATION",
            ));
        }
    };
    l.op_with("gelu", &[("approximate", Attr::str(mode))], &[x])
}

/// `rsqrt`: `1 / √(x + epsilon)`. The sum is taken wide, or a small epsilon would be lost.
pub(super) fn rsqrt(l: &mut Lowering<'_>, op: &Operation) -> Outcome<ValueId> {
    let x = l.value(op, "x")?;
    let epsilon = l.number_or(op, "epsilon", 1e-12)?;
    l.wide(x, |l, x| {
        let epsilon = l.filled(l.dtype_of(x)?, epsilon)?;
        let sum = l.op("broadcasting_add", &[x, epsilon])?;
        l.op("rsqrt", &[sum])
    })
}

/// `log`: of `x + epsilon`.
pub(super) fn log(l: &mut Lowering<'_>, op: &Operation) -> Outcome<ValueId> {
    let x = l.value(op, "x")?;
    let epsilon = l.number_or(op, "epsilon", 1e-45)?;
    l.wide(x, |l, x| {
        let epsilon = l.filled(l.dtype_of(x)?, epsilon)?;
        let sum = l.op("broadcasting_add", &[x, epsilon])?;
        l.op("log", &[sum])
    })
}

/// `softplus`: `log(1 + eˣ)`, as `max(x, 0) + log(1 + e^-|x|)`, which does not overflow.
pub(super) fn softplus(l: &mut Lowering<'_>, op: &Operation) -> Outcome<ValueId> {
    let x = l.value(op, "x")?;
    l.wide(x, |l, x| {
        let kind = l.dtype_of(x)?;
        let (one, minus) = (l.filled(kind, 1.0)?, l.filled(kind, -1.0)?);
        let size = l.op("abs", &[x])?;
        let less = l.op("broadcasting_mul", &[size, minus])?;
        let power = l.op("exp", &[less])?;
        let sum = l.op("broadcasting_add", &[power, one])?;
        let rest = l.op("log", &[sum])?;
        let positive = l.op("relu", &[x])?;
        l.op("broadcasting_add", &[positive, rest])
    })
}

/// `square`.
pub(super) fn square(l: &mut Lowering<'_>, op: &Operation) -> Outcome<ValueId> {
    let x = l.value(op, "x")?;
    l.op("broadcasting_mul", &[x, x])
}
