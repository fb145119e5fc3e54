//! Rules that shapes share: axes that count from the end, broadcasting, slices.

use crate::error::OpError;
use crate::types::{Dim, Shape};

/// An axis that may count from the end, checked against `rank`.
pub fn axis(axis: i64, rank: usize) -> Result<usize, OpError> {
    let n = rank as i64;
    let at = if axis < 0 { axis + n } else { axis };
    if (0..n).contains(&at) {
        return Ok(at as usize);
    }
    Err(OpError::Range {
        what: "an axis",
        value: axis,
        allowed: format!("{}..{n}", -n),
    })
}

/// Position `index` of an axis of `n`; negative ones count from the end.
pub fn position(index: i64, n: usize) -> Result<usize, OpError> {
    let at = if index < 0 {
        index.saturating_add(n as i64)
    } else {
        index
    };
    if (0..n as i64).contains(&at) {
        return Ok(at as usize);
    }
    Err(OpError::Range {
        what: "an index",
        value: index,
        allowed: format!("0..{n}"),
    })
}

/// The dimension two operands broadcast to, `None` where they cannot.
///
/// Where nothing proves it, a symbolic or unknown extent wins over the constant 1 and equals anything else.
pub fn broadcast_dim(a: &Dim, b: &Dim) -> Option<Dim> {
    match (a.as_const(), b.as_const()) {
        (Some(x), Some(y)) if x == y => Some(a.clone()),
        (Some(1), _) => Some(b.clone()),
        (_, Some(1)) => Some(a.clone()),
        (Some(_), Some(_)) => None,
        (Some(_), None) => Some(a.clone()),
        (None, Some(_)) => Some(b.clone()),
        (None, None) => Some(if a.is_unknown() { b.clone() } else { a.clone() }),
    }
}

/// Whether two extents may be the same: what is not known yet may be anything.
pub fn agree(a: &Dim, b: &Dim) -> bool {
    match (a.as_const(), b.as_const()) {
        (Some(x), Some(y)) => x == y,
        _ => true,
    }
}

/// Whether an operand of shape `from` may be repeated to the shape `to`, aligned at the last axis.
pub fn repeats_to(from: &[Dim], to: &[Dim]) -> bool {
    let fits = |(a, b): (&Dim, &Dim)| a.as_const() == Some(1) || agree(a, b);
    from.len() <= to.len() && from.iter().rev().zip(to.iter().rev()).all(fits)
}

/// The shape two operands broadcast to, aligned at the last axis (NumPy's rule).
pub fn broadcast(a: &[Dim], b: &[Dim]) -> Result<Shape, OpError> {
    let rank = a.len().max(b.len());
    let one = Dim::Const(1);
    let at = |s: &[Dim], i: usize| {
        (i + s.len())
            .checked_sub(rank)
            .map_or(one.clone(), |j| s[j].clone())
    };
    (0..rank)
        .map(|i| broadcast_dim(&at(a, i), &at(b, i)))
        .collect::<Option<Shape>>()
        .ok_or_else(|| dims_error("operands broadcast to one shape", &[a, b]))
}

/// The concrete shape two operands broadcast to.
pub fn broadcast_fixed(a: &[usize], b: &[usize]) -> Result<Vec<usize>, OpError> {
    let rank = a.len().max(b.len());
    let at = |s: &[usize], i: usize| (i + s.len()).checked_sub(rank).map_or(1, |j| s[j]);
    (0..rank)
        .map(|i| match (at(a, i), at(b, i)) {
            (x, y) if x == y => Ok(x),
            (1, y) => Ok(y),
            (x, 1) => Ok(x),
            _ => Err(OpError::shapes("operands broadcast to one shape", &[a, b])),
        })
        .collect()
}

/// A [`OpError::Shape`] over symbolic shapes.
pub fn dims_error(rule: &'static str, shapes: &[&[Dim]]) -> OpError {
    let list: Vec<String> = shapes
        .iter()
        .map(|s| {
            format!(
                "[{}]",
                s.iter()
                    .map(ToString::to_string)
                    .collect::<Vec<_>>()
                    .join(", ")
            )
        })
        .collect();
    OpError::Shape {
        rule,
        shapes: list.join(" and "),
    }
}

/// The index of an element of a broadcast operand: `index` counts in `out`, `shape` is the operand's, aligned at the end.
pub fn broadcast_index(mut index: usize, out: &[usize], shape: &[usize]) -> usize {
    let (mut at, mut stride) = (0, 1);
    for i in (0..out.len()).rev() {
        let coordinate = index % out[i];
        index /= out[i];
        if let Some(j) = (i + shape.len()).checked_sub(out.len()) {
            if shape[j] != 1 {
                at += coordinate * stride;
            }
            stride *= shape[j];
        }
    }
    at
}

/// Product of dims.
pub fn product(dims: &[Dim]) -> Dim {
    dims.iter().fold(Dim::Const(1), |p, d| p.mul(d))
}

/// Coordinates of element `index` in row-major order. `shape` has no empty axis.
pub fn unravel(mut index: usize, shape: &[usize]) -> Vec<usize> {
    let mut at = vec![0; shape.len()];
    for k in (0..shape.len()).rev() {
        at[k] = index % shape[k];
        index /= shape[k];
    }
    at
}
