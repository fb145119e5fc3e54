//! Operations on and with indices: order, places, counting.

use russet_graph::attr::Attr;
use russet_graph::graph::ValueId;
use russet_graph::tensor::Tensor;
use russet_graph::types::DType;

use super::Lowering;
use super::elementwise::kind;
use super::operands::wrong;
use crate::coreml::error::{Outcome, Problem};
use crate::coreml::program::{Element, Operation, ValueType};

impl Lowering<'_> {
    /// The element kind that the program declares of a result.
    pub(super) fn kind_of(&self, op: &Operation, result: usize) -> Option<DType> {
        match op.outputs.get(result).map(|o| &o.ty) {
            Some(ValueType::Tensor(t)) => match t.element {
                Element::Number(dtype) => Some(dtype),
                Element::Text => None,
            },
            _ => None,
        }
    }

    /// In the kind that is declared.
    fn as_declared(&mut self, op: &Operation, result: usize, x: ValueId) -> Outcome<ValueId> {
        match self.kind_of(op, result) {
            Some(kind) => self.cast(x, kind),
            None => Ok(x),
        }
    }

    fn bit(&mut self, value: bool) -> Outcome<ValueId> {
        let one = Tensor::from_ints(DType::Bool, &[], &[value.into()]);
        self.constant(&one.map_err(|e| Problem::Value(e.to_string()))?)
    }

    /// The places of elements in order along an axis; equal ones keep their order.
    fn order(&mut self, x: ValueId, axis: usize, ascending: bool) -> Outcome<ValueId> {
        let (axis, descending) = (self.scalar(axis as i64)?, self.bit(!ascending)?);
        let stable = self.bit(true)?;
        self.op("argsort", &[x, axis, descending, stable])
    }
}

/// `argsort`.
pub(super) fn argsort(l: &mut Lowering<'_>, op: &Operation) -> Outcome<ValueId> {
    let x = l.value(op, "x")?;
    let axis = l.axis_in(l.int_or(op, "axis", -1)?, l.rank_of(x)?)?;
    let order = l.order(x, axis, l.flag_or(op, "ascending", false)?)?;
    l.as_declared(op, 0, order)
}

/// `topk`: values and their places, largest first.
pub(super) fn topk(l: &mut Lowering<'_>, op: &Operation) -> Outcome<Vec<ValueId>> {
    let x = l.value(op, "x")?;
    let rank = l.rank_of(x)?;
    let axis = l.axis_in(l.int_or(op, "axis", -1)?, rank)?;
    let count = l.int_or(op, "k", 1)?;
    let order = l.order(x, axis, l.flag_or(op, "ascending", false)?)?;
    let mut end = vec![i64::from(i32::MAX); rank];
    if let Some(bound) = end.get_mut(axis).filter(|_| count >= 0) {
        *bound = count;
    }
    let (begin, end) = (l.vector(&vec![0; rank])?, l.vector(&end)?);
    let steps = l.vector(&vec![1; rank])?;
    let places = l.op("slice", &[order, begin, end, steps])?;
    let axis = l.scalar(axis as i64)?;
    let values = l.op("gather_along_axis", &[x, places, axis])?;
    if !l.flag_or(op, "return_indices", true)? {
        return Ok(vec![values]);
    }
    let places = l.as_declared(op, 1, places)?;
    Ok(vec![values, places])
}

/// `reduce_argmin`: the place of the smallest element, of equal ones the first.
pub(super) fn argmin(l: &mut Lowering<'_>, op: &Operation) -> Outcome<ValueId> {
    let x = l.value(op, "x")?;
    let at = l.axis_in(l.int_or(op, "axis", -1)?, l.rank_of(x)?)? as i64;
    let minus = l.filled(l.dtype_of(x)?, -1.0)?;
    let turned = l.op("broadcasting_mul", &[x, minus])?;
    let axis = l.scalar(at)?;
    let place = l.op("argmax", &[turned, axis])?;
    let place = l.as_declared(op, 0, place)?;
    match l.flag_or(op, "keep_dims", false)? {
        true => Ok(place),
        false => l.shrunk(place, &[at]),
    }
}

/// `cumsum`: itself included, or (`exclusive`) not.
pub(super) fn cumsum(l: &mut Lowering<'_>, op: &Operation) -> Outcome<ValueId> {
    let x = l.value(op, "x")?;
    let axis = l.axis_in(l.int_or(op, "axis", 0)?, l.rank_of(x)?)?;
    let reverse = l.flag_or(op, "reverse", false)?;
    let exclusive = l.flag_or(op, "exclusive", false)?;
    let along = l.scalar(axis as i64)?;
    let back = l.bit(reverse)?;
    l.wide(x, |l, x| {
        let sums = l.op_with("scan", &[("combiner", Attr::str("sum"))], &[x, along, back])?;
        match exclusive {
            true => l.op("broadcasting_sub", &[sums, x]),
            false => Ok(sums),
        }
    })
}

/// `range_1d`: `start`, `start + step` … before `end`.
pub(super) fn range(l: &mut Lowering<'_>, op: &Operation) -> Outcome<ValueId> {
    let bounds = [
        l.value(op, "start")?,
        l.value(op, "end")?,
        l.value(op, "step")?,
    ];
    l.op("range", &bounds)
}

/// `shape`.
pub(super) fn shape(l: &mut Lowering<'_>, op: &Operation) -> Outcome<ValueId> {
    let x = l.value(op, "x")?;
    let shape = l.op("get_shape", &[x])?;
    let to = kind(&l.text(op, "output_dtype")?).or_else(|| l.kind_of(op, 0));
    l.cast(shape, to.unwrap_or(DType::I32))
}

/// `one_hot`: `on_value` at the index, `off_value` elsewhere, along a new axis.
pub(super) fn one_hot(l: &mut Lowering<'_>, op: &Operation) -> Outcome<ValueId> {
    let indices = l.value(op, "indices")?;
    let rank = l.rank_of(indices)?;
    let axis = l.axis_in(l.int_or(op, "axis", -1)?, rank + 1)?;
    let size = l.int(op, "one_hot_vector_size")?;
    let count = usize::try_from(size).ok().filter(|n| *n <= 1 << 24);
    let count = count.ok_or_else(|| wrong("one_hot_vector_size", "a size"))?;
    let indices = l.expanded(indices, &[axis as i64])?;
    let (zero, end, one) = (l.scalar(0)?, l.scalar(count as i64)?, l.scalar(1)?);
    let places = l.op("range", &[zero, end, one])?;
    let places = l.cast(places, l.dtype_of(indices)?)?;
    let mut shape = vec![1; rank + 1];
    if let Some(extent) = shape.get_mut(axis) {
        *extent = -1;
    }
    let places = l.reshaped(places, &shape)?;
    let hot = l.op("broadcasting_equal", &[indices, places])?;
    let on = match l.optional(op, "on_value")? {
        Some(on) => on,
        None => l.scalar(1)?,
    };
    let off = match l.optional(op, "off_value")? {
        Some(off) => off,
        None => l.scalar(0)?,
    };
    l.op("broadcasting_where", &[hot, on, off])
}

/// `gather_nd`.
pub(super) fn gather_nd(l: &mut Lowering<'_>, op: &Operation) -> Outcome<ValueId> {
    if l.int_or(op, "batch_dims", 0)? != 0 {
        return Err(Problem::Unsupported("gather_nd with batch_dims".into()));
    }
    let (x, indices) = (l.value(op, "x")?, l.value(op, "indices")?);
    l.op("gather_nd", &[x, indices])
}

/// How updates meet what is there.
fn mode(l: &Lowering<'_>, op: &Operation) -> Outcome<Attr> {
    let mode = l.text(op, "mode")?;
    match &*mode {
        "" => Ok(Attr::str("add")),
        "update" | "add" | "sub" | "mul" | "div" | "max" | "min" => Ok(Attr::Str(mode)),
        _ => Err(wrong("mode", "update, add, sub, mul, div, max or min")),
    }
}

/// `scatter_along_axis`.
pub(super) fn scatter_along_axis(l: &mut Lowering<'_>, op: &Operation) -> Outcome<ValueId> {
    let data = l.value(op, "data")?;
    let (indices, updates) = (l.value(op, "indices")?, l.value(op, "updates")?);
    let axis = l.scalar(l.int_or(op, "axis", 0)?)?;
    let mode = [("scatter_mode", mode(l, op)?)];
    l.op_with("scatter_along_axis", &mode, &[data, indices, updates, axis])
}

/// `scatter_nd`, where updates replace what is there.
pub(super) fn scatter_nd(l: &mut Lowering<'_>, op: &Operation) -> Outcome<ValueId> {
    if mode(l, op)? != Attr::str("update") {
        return Err(Problem::Unsupported(
            "scatter_nd in a mode other than update".into(),
        ));
    }
    let data = l.value(op, "data")?;
    let (indices, updates) = (l.value(op, "indices")?, l.value(op, "updates")?);
    l.op("scatter_nd", &[data, indices, updates])
}

/// `reverse`: along `axes`, all where it names none.
pub(super) fn reverse(l: &mut Lowering<'_>, op: &Operation) -> Outcome<ValueId> {
    let x = l.value(op, "x")?;
    let axes = l.axes(op, x)?;
    let axes = l.vector(&axes)?;
    l.op("reverse", &[x, axes])
}
