//! Elements picked by indices. Indices below zero count from the end.

use russet_graph::graph::ValueId;
use russet_graph::types::DType;

use super::Lowering;
use super::operands::wrong;
use crate::coreml::error::Outcome;
use crate::coreml::program::Operation;

/// `gather`: slices of `x` along an axis; the first `batch_dims` axes of `x` and `indices` go together.
pub(super) fn gather(l: &mut Lowering<'_>, op: &Operation) -> Outcome<ValueId> {
    let (x, indices) = (l.value(op, "x")?, l.value(op, "indices")?);
    let rank = l.rank_of(x)?;
    let at = l.axis_in(l.int_or(op, "axis", 0)?, rank)?;
    let batch = l.int_or(op, "batch_dims", 0)?;
    match usize::try_from(batch) {
        Ok(0) => along(l, x, indices, at),
        Ok(b) if b <= at && b <= l.rank_of(indices)? => batched(l, x, indices, at, b),
        _ => Err(wrong("batch_dims", "not behind the axis")),
    }
}

/// Slices along an axis, which gives way to the axes of the indices.
fn along(l: &mut Lowering<'_>, x: ValueId, indices: ValueId, at: usize) -> Outcome<ValueId> {
    let (rank, wide) = (l.rank_of(x)?, l.rank_of(indices)?);
    let first: Vec<usize> = std::iter::once(at)
        .chain((0..rank).filter(|a| *a != at))
        .collect();
    let x = l.permuted(x, &first)?;
    let indices = l.expanded(indices, &[-1])?;
    let picked = l.op("gather_nd", &[x, indices])?;
    let order = (wide..wide + at)
        .chain(0..wide)
        .chain(wide + at..wide + rank - 1);
    l.permuted(picked, &order.collect::<Vec<_>>())
}

/// The same for each of the first `batch` axes: rows of all of them lie one under the other, and every index is moved to its own.
fn batched(
    l: &mut Lowering<'_>,
    x: ValueId,
    indices: ValueId,
    at: usize,
    batch: usize,
) -> Outcome<ValueId> {
    let (shape, wide) = (l.extents_of(x)?, l.extents_of(indices)?);
    let (lead, own) = wide.split_at(batch.min(wide.len()));
    let (rows, extent) = (
        lead.iter().product::<usize>(),
        shape.get(at).copied().unwrap_or(1),
    );
    let order = (0..batch)
        .chain([at])
        .chain((batch..shape.len()).filter(|a| *a != at));
    let x = l.permuted(x, &order.collect::<Vec<_>>())?;
    let rest: Vec<usize> = shape
        .iter()
        .enumerate()
        .filter(|(i, _)| *i >= batch && *i != at)
        .map(|(_, d)| *d)
        .collect();
    let flat: Vec<i64> = std::iter::once(rows.saturating_mul(extent))
        .chain(rest.clone())
        .map(|d| d as i64)
        .collect();
    let x = l.reshaped(x, &flat)?;
    let indices = l.cast(indices, DType::I32)?;
    let indices = l.reshaped(
        indices,
        &[rows as i64, own.iter().product::<usize>() as i64],
    )?;
    let (zero, size) = (l.scalar(0)?, l.scalar(extent as i64)?);
    let below = l.op("broadcasting_greater", &[zero, indices])?;
    let counted = l.op("broadcasting_add", &[indices, size])?;
    let indices = l.op("broadcasting_where", &[below, counted, indices])?;
    let end = l.scalar(rows.saturating_mul(extent) as i64)?;
    let starts = l.op("range", &[zero, end, size])?;
    let starts = l.reshaped(starts, &[rows as i64, 1])?;
    let indices = l.op("broadcasting_add", &[indices, starts])?;
    let indices = l.expanded(indices, &[-1])?;
    let picked = l.op("gather_nd", &[x, indices])?;
    let full: Vec<i64> = lead
        .iter()
        .chain(own)
        .chain(&rest)
        .map(|&d| d as i64)
        .collect();
    let picked = l.reshaped(picked, &full)?;
    let (owns, before) = (own.len(), at - batch);
    let end = batch + owns + rest.len();
    let order = (0..batch)
        .chain(batch + owns..batch + owns + before)
        .chain(batch..batch + owns)
        .chain(batch + owns + before..end);
    l.permuted(picked, &order.collect::<Vec<_>>())
}

/// `gather_along_axis`.
pub(super) fn gather_along_axis(l: &mut Lowering<'_>, op: &Operation) -> Outcome<ValueId> {
    let (x, indices) = (l.value(op, "x")?, l.value(op, "indices")?);
    let axis = l.scalar(l.int_or(op, "axis", 0)?)?;
    l.op("gather_along_axis", &[x, indices, axis])
}
