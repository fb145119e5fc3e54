//! Boxes out of tensors and into them. Bounds may be constants or computed; masks say which of them do not count.
//!
//! `begin_mask` and `end_mask` put a bound to the edge that it comes from; where `squeeze_mask` is set, one index is taken and the
//! axis goes.

use russet_graph::graph::ValueId;
use russet_graph::ops::slice_update::SliceUpdate;
use russet_graph::tensor::Tensor;
use russet_graph::types::{DType, Dim};

use super::Lowering;
use super::operands::wrong;
use crate::coreml::error::{Outcome, Problem};
use crate::coreml::program::Operation;

/// To the end, whatever the extent.
const END: i64 = i32::MAX as i64;

/// What the arguments of a slice say.
struct Masks {
    begin: Vec<bool>,
    end: Vec<bool>,
    squeeze: Vec<bool>,
    strides: Vec<i64>,
}

/// Bounds in the graph's terms.
struct Bounds {
    begin: ValueId,
    end: ValueId,
    strides: ValueId,
}

impl Masks {
    fn of(l: &Lowering<'_>, op: &Operation, rank: usize) -> Outcome<Self> {
        let strides = l.ints(op, "stride")?.unwrap_or_else(|| vec![1; rank]);
        if strides.len() != rank || strides.contains(&0) {
            return Err(wrong("stride", "a step for every axis"));
        }
        Ok(Self {
            begin: l.flags(op, "begin_mask", rank)?,
            end: l.flags(op, "end_mask", rank)?,
            squeeze: l.flags(op, "squeeze_mask", rank)?,
            strides,
        })
    }

    /// Axes that go.
    fn gone(&self) -> Vec<i64> {
        let gone = self.squeeze.iter().enumerate().filter(|(_, s)| **s);
        gone.map(|(i, _)| i as i64).collect()
    }
}

/// One axis of constant bounds: begin, end, stride.
fn resolve(
    (begin, end, stride): (i64, i64, i64),
    [from_start, to_end, one]: [bool; 3],
    extent: Option<i64>,
) -> Option<(i64, i64, i64)> {
    if one {
        let behind = if begin == -1 { END } else { begin + 1 };
        return Some((begin, behind, 1));
    }
    if stride > 0 {
        let begin = if from_start { 0 } else { begin };
        return Some((begin, if to_end { END } else { end }, stride));
    }
    // Backwards, -1 lies before the first element.
    let counted = |v: i64| Some(if v < 0 { v + extent? } else { v });
    let begin = if from_start { END } else { counted(begin)? };
    let end = if to_end { -1 } else { counted(end)?.max(-1) };
    Some((begin, end, stride))
}

impl Lowering<'_> {
    /// The bounds of an operation on `x`.
    fn bounds(&mut self, op: &Operation, x: ValueId, masks: &Masks) -> Outcome<Bounds> {
        let constant = (self.ints(op, "begin")?, self.ints(op, "end")?);
        if let (Some(begin), Some(end)) = constant {
            return self.constant_bounds(x, masks, &begin, &end);
        }
        if masks.strides.iter().any(|s| *s < 0) {
            return Err(Problem::Unsupported(
                "computed bounds with steps backwards".into(),
            ));
        }
        let (given, end) = (self.value(op, "begin")?, self.value(op, "end")?);
        let (given, end) = (self.cast(given, DType::I32)?, self.cast(end, DType::I32)?);
        let begin = self.masked(&masks.begin, 0, given)?;
        let mut end = self.masked(&masks.end, END, end)?;
        if masks.squeeze.contains(&true) {
            let one = self.scalar(1)?;
            let behind = self.op("broadcasting_add", &[given, one])?;
            end = self.chosen(&masks.squeeze, behind, end)?;
        }
        let strides = self.vector(&masks.strides)?;
        Ok(Bounds {
            begin,
            end,
            strides,
        })
    }

    fn constant_bounds(
        &mut self,
        x: ValueId,
        masks: &Masks,
        begin: &[i64],
        end: &[i64],
    ) -> Outcome<Bounds> {
        let extents = self.tensor_of(x)?.shape;
        let rank = extents.len();
        if begin.len() != rank || end.len() != rank {
            return Err(wrong("begin", "a bound for every axis, and so should end"));
        }
        let axes = begin.iter().zip(end).zip(&masks.strides);
        let flags = masks.begin.iter().zip(&masks.end).zip(&masks.squeeze);
        let mut all = (Vec::new(), Vec::new(), Vec::new());
        for ((((b, e), s), ((bm, em), sm)), extent) in axes.zip(flags).zip(&extents) {
            let resolved = resolve((*b, *e, *s), [*bm, *em, *sm], extent.as_const());
            let resolved =
                resolved.ok_or_else(|| wrong("x", "of known extents, for steps backwards"))?;
            all.0.push(resolved.0);
            all.1.push(resolved.1);
            all.2.push(resolved.2);
        }
        Ok(Bounds {
            begin: self.vector(&all.0)?,
            end: self.vector(&all.1)?,
            strides: self.vector(&all.2)?,
        })
    }

    /// `values`, with `instead` where a mask is set.
    fn masked(&mut self, mask: &[bool], instead: i64, values: ValueId) -> Outcome<ValueId> {
        if !mask.contains(&true) {
            return Ok(values);
        }
        let instead = self.scalar(instead)?;
        self.chosen(mask, instead, values)
    }

    fn chosen(&mut self, mask: &[bool], a: ValueId, b: ValueId) -> Outcome<ValueId> {
        let mask: Vec<i64> = mask.iter().map(|m| i64::from(*m)).collect();
        let mask = Tensor::from_ints(DType::Bool, &[mask.len()], &mask);
        let mask = self.constant(&mask.map_err(|e| Problem::Value(e.to_string()))?)?;
        self.op("broadcasting_where", &[mask, a, b])
    }

    /// A slice; of computed bounds the extents are those that the program declares.
    fn sliced(
        &mut self,
        op: &Operation,
        x: ValueId,
        bounds: &Bounds,
        gone: &[i64],
    ) -> Outcome<ValueId> {
        let part = self.op("slice", &[x, bounds.begin, bounds.end, bounds.strides])?;
        if let Some(mut shape) = self.declared(op) {
            for &axis in gone {
                let at = usize::try_from(axis).unwrap_or_default().min(shape.len());
                shape.insert(at, Dim::Const(1));
            }
            let agreed = self.b.declare(part, &shape);
            agreed.ok_or_else(|| {
                Problem::Value("the bounds give another shape than is declared".into())
            })?;
        }
        self.shrunk(part, gone)
    }
}

/// `slice_by_index`.
pub(super) fn slice_by_index(l: &mut Lowering<'_>, op: &Operation) -> Outcome<ValueId> {
    let x = l.value(op, "x")?;
    let masks = Masks::of(l, op, l.rank_of(x)?)?;
    let bounds = l.bounds(op, x, &masks)?;
    l.sliced(op, x, &bounds, &masks.gone())
}

/// `slice_by_size`: `size` elements from `begin` on; of -1, all that follow.
pub(super) fn slice_by_size(l: &mut Lowering<'_>, op: &Operation) -> Outcome<ValueId> {
    let x = l.value(op, "x")?;
    let begin = l.value(op, "begin")?;
    let begin = l.cast(begin, DType::I32)?;
    let size = l.must_ints(op, "size")?;
    let all: Vec<bool> = size.iter().map(|s| *s == -1).collect();
    let size = l.vector(&size)?;
    let end = l.op("broadcasting_add", &[begin, size])?;
    let end = l.masked(&all, END, end)?;
    let strides = l.vector(&vec![1; l.rank_of(x)?])?;
    let bounds = Bounds {
        begin,
        end,
        strides,
    };
    l.sliced(op, x, &bounds, &[])
}

/// `slice_update`: `x` with a box replaced by `update`.
pub(super) fn slice_update(l: &mut Lowering<'_>, op: &Operation) -> Outcome<ValueId> {
    let (x, mut update) = (l.value(op, "x")?, l.value(op, "update")?);
    let masks = Masks::of(l, op, l.rank_of(x)?)?;
    let bounds = l.bounds(op, x, &masks)?;
    let gone = masks.gone();
    if !gone.is_empty() {
        update = l.expanded(update, &gone)?;
    }
    l.b.op(
        SliceUpdate,
        &[x, bounds.begin, bounds.end, bounds.strides, update],
    )
}
