//! Operations that move elements and compute none: other shapes, other orders, several tensors as one.

use russet_graph::attr::Attr;
use russet_graph::graph::ValueId;
use russet_graph::ops::shape::axis;
use russet_graph::types::{DType, Dim};

use super::operands::wrong;
use super::{Lowering, tensor};
use crate::coreml::error::{Outcome, Problem};
use crate::coreml::program::{Operation, ValueType};

impl Lowering<'_> {
    /// The declared extents of the first result.
    pub(super) fn declared(&self, op: &Operation) -> Option<Vec<Dim>> {
        let output = op.outputs.first()?;
        let ValueType::Tensor(ty) = &output.ty else {
            return None;
        };
        Some(tensor(output, ty).ok()?.shape)
    }

    /// An axis that may count from the end.
    pub(super) fn axis_in(&self, at: i64, rank: usize) -> Outcome<usize> {
        axis(at, rank).map_err(|e| Problem::Value(e.to_string()))
    }

    /// Another order of the axes.
    pub(super) fn permuted(&mut self, x: ValueId, order: &[usize]) -> Outcome<ValueId> {
        if order.iter().enumerate().all(|(i, &a)| i == a) {
            return Ok(x);
        }
        let order: Vec<i64> = order.iter().map(|&a| a as i64).collect();
        let order = self.vector(&order)?;
        self.op("transpose", &[x, order])
    }

    /// Another shape; one extent may be -1.
    pub(super) fn reshaped(&mut self, x: ValueId, shape: &[i64]) -> Outcome<ValueId> {
        let shape = self.vector(shape)?;
        self.op("reshape", &[x, shape])
    }

    /// New axes of extent 1, counted in the result.
    pub(super) fn expanded(&mut self, x: ValueId, axes: &[i64]) -> Outcome<ValueId> {
        let axes = self.vector(axes)?;
        self.op("expand_dims", &[x, axes])
    }

    /// Without some axes of extent 1.
    pub(super) fn shrunk(&mut self, x: ValueId, axes: &[i64]) -> Outcome<ValueId> {
        if axes.is_empty() {
            return Ok(x);
        }
        let axes = self.vector(axes)?;
        self.op("shrink_dims", &[x, axes])
    }

    /// Repeated to the shape of another value.
    fn repeated_like(&mut self, x: ValueId, other: ValueId) -> Outcome<ValueId> {
        let ty = self.tensor_of(other)?;
        let shape = match ty.fixed_shape() {
            Some(shape) => {
                let shape: Vec<i64> = shape.iter().map(|&d| d as i64).collect();
                self.vector(&shape)?
            }
            None => self.op("get_shape", &[other])?,
        };
        self.op("broadcast_to", &[x, shape])
    }
}

/// `concat`, with the parts one behind the other or (`interleave`) element by element.
pub(super) fn concat(l: &mut Lowering<'_>, op: &Operation) -> Outcome<ValueId> {
    let (at, interleave) = (l.int(op, "axis")?, l.flag_or(op, "interleave", false)?);
    let mut parts = l.list(op, "values")?;
    let first = *parts
        .first()
        .ok_or_else(|| wrong("values", "one tensor or more"))?;
    let at = l.axis_in(at, l.rank_of(first)?.max(1))?;
    if !interleave {
        parts.insert(0, l.scalar(at as i64)?);
        return l.op("concat", &parts);
    }
    let mut shape: Vec<i64> = l.extents_of(first)?.iter().map(|&d| d as i64).collect();
    let behind = at as i64 + 1;
    for part in &mut parts {
        *part = l.expanded(*part, &[behind])?;
    }
    if let Some(extent) = shape.get_mut(at) {
        *extent = extent.saturating_mul(parts.len() as i64);
    }
    parts.insert(0, l.scalar(behind)?);
    let joined = l.op("concat", &parts)?;
    l.reshaped(joined, &shape)
}

/// `expand_dims`.
pub(super) fn expand_dims(l: &mut Lowering<'_>, op: &Operation) -> Outcome<ValueId> {
    let (x, axes) = (l.value(op, "x")?, l.must_ints(op, "axes")?);
    l.expanded(x, &axes)
}

/// `squeeze`: without `axes`, every axis of extent 1 goes.
pub(super) fn squeeze(l: &mut Lowering<'_>, op: &Operation) -> Outcome<ValueId> {
    let x = l.value(op, "x")?;
    let axes = match l.ints(op, "axes")? {
        Some(axes) => axes,
        None => {
            let shape = l.tensor_of(x)?.shape;
            let ones = shape
                .iter()
                .enumerate()
                .filter(|(_, d)| d.as_const() == Some(1));
            ones.map(|(i, _)| i as i64).collect()
        }
    };
    l.shrunk(x, &axes)
}

/// `reshape`. Extents that the program declares go before those that are computed.
pub(super) fn reshape(l: &mut Lowering<'_>, op: &Operation) -> Outcome<ValueId> {
    let x = l.value(op, "x")?;
    let declared = l.declared(op);
    let fixed = declared.and_then(|s| s.iter().map(Dim::as_const).collect::<Option<Vec<_>>>());
    if let Some(shape) = fixed {
        return l.reshaped(x, &shape);
    }
    let shape = l.value(op, "shape")?;
    l.op("reshape", &[x, shape])
}

/// `transpose`.
pub(super) fn transpose(l: &mut Lowering<'_>, op: &Operation) -> Outcome<ValueId> {
    let (x, order) = (l.value(op, "x")?, l.must_ints(op, "perm")?);
    let rank = l.rank_of(x)?;
    let order = order
        .iter()
        .map(|&a| l.axis_in(a, rank))
        .collect::<Outcome<Vec<_>>>()?;
    l.permuted(x, &order)
}

/// `tile`. Axes of extent 1 are repeated without a copy.
pub(super) fn tile(l: &mut Lowering<'_>, op: &Operation) -> Outcome<ValueId> {
    let (x, times) = (l.value(op, "x")?, l.must_ints(op, "reps")?);
    let shape = l.tensor_of(x)?.shape;
    let known: Option<Vec<i64>> = shape.iter().map(Dim::as_const).collect();
    let flat = known.filter(|s| {
        s.len() == times.len() && s.iter().zip(&times).all(|(d, t)| *d == 1 || *t == 1)
    });
    if let Some(shape) = flat {
        let shape: Vec<i64> = shape
            .iter()
            .zip(&times)
            .map(|(d, t)| (*d).max(*t))
            .collect();
        let shape = l.vector(&shape)?;
        return l.op("broadcast_to", &[x, shape]);
    }
    let times = l.vector(&times)?;
    l.op("tile", &[x, times])
}

/// `fill_like`: one value in the shape of another tensor.
pub(super) fn fill_like(l: &mut Lowering<'_>, op: &Operation) -> Outcome<ValueId> {
    let (like, value) = (l.value(op, "ref_tensor")?, l.value(op, "value")?);
    l.repeated_like(value, like)
}

/// `fill`: one value in a shape.
pub(super) fn fill(l: &mut Lowering<'_>, op: &Operation) -> Outcome<ValueId> {
    let shape = l.value(op, "shape")?;
    let value = match l.optional(op, "value")? {
        Some(value) => value,
        None => l.filled(l.kind_of(op, 0).unwrap_or(DType::F32), 0.0)?,
    };
    l.op("broadcast_to", &[value, shape])
}

/// `stack`: tensors one behind the other along a new axis.
pub(super) fn stack(l: &mut Lowering<'_>, op: &Operation) -> Outcome<ValueId> {
    let mut parts = l.list(op, "values")?;
    let first = *parts
        .first()
        .ok_or_else(|| wrong("values", "one tensor or more"))?;
    let at = l.axis_in(l.int(op, "axis")?, l.rank_of(first)? + 1)? as i64;
    for part in &mut parts {
        *part = l.expanded(*part, &[at])?;
    }
    parts.insert(0, l.scalar(at)?);
    l.op("concat", &parts)
}

/// `flatten2d`: the axes before `axis` as one, and the others.
pub(super) fn flatten(l: &mut Lowering<'_>, op: &Operation) -> Outcome<ValueId> {
    let x = l.value(op, "x")?;
    let shape = l.extents_of(x)?;
    let at = l.axis_in(l.int_or(op, "axis", 1)?, shape.len() + 1)?;
    let (before, behind) = shape.split_at(at.min(shape.len()));
    let product = |extents: &[usize]| extents.iter().product::<usize>() as i64;
    l.reshaped(x, &[product(before), product(behind)])
}

/// `pad`: two amounts for each of the last axes.
pub(super) fn pad(l: &mut Lowering<'_>, op: &Operation) -> Outcome<ValueId> {
    let (x, mut amounts) = (l.value(op, "x")?, l.must_ints(op, "pad")?);
    let all = 2 * l.rank_of(x)?;
    if amounts.len() > all {
        return Err(wrong("pad", "no more than two amounts for every axis"));
    }
    amounts.splice(0..0, vec![0; all - amounts.len()]);
    let mode = match &*l.text(op, "mode")? {
        "" | "constant" => "constant",
        "reflect" => "reflect",
        "replicate" => "replicate",
        _ => return Err(wrong("mode", "constant, reflect or replicate")),
    };
    let value = match l.optional(op, "constant_val")? {
        Some(value) => value,
        None => l.filled(l.dtype_of(x)?, 0.0)?,
    };
    let amounts = l.vector(&amounts)?;
    l.op_with(
        "pad",
        &[("padding_mode", Attr::str(mode))],
        &[x, amounts, value],
    )
}

/// `split`, into `num_splits` equal parts or parts of `split_sizes`.
pub(super) fn split(l: &mut Lowering<'_>, op: &Operation) -> Outcome<Vec<ValueId>> {
    let x = l.value(op, "x")?;
    let at = l.axis_in(l.int(op, "axis")?, l.rank_of(x)?)?;
    let sizes = match l.ints(op, "split_sizes")? {
        Some(sizes) => sizes,
        None => {
            let parts = usize::try_from(l.int(op, "num_splits")?)
                .ok()
                .filter(|n| *n > 0);
            let parts = parts.ok_or_else(|| wrong("num_splits", "1 or more"))?;
            let extent = l.tensor_of(x)?.shape.get(at).and_then(Dim::as_const);
            let extent = extent.ok_or_else(|| wrong("x", "of a known extent along the axis"))?;
            // As many as there are results: a number alone does not justify more.
            let parts = parts.min(op.outputs.len());
            vec![extent / (parts.max(1) as i64); parts]
        }
    };
    let (sizes, at) = (l.vector(&sizes)?, l.scalar(at as i64)?);
    let split = russet_graph::ops::split::Split;
    l.b.all(split, &[x, sizes, at])
}
