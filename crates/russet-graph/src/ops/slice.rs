//! `slice`: a box out of a tensor.

use std::sync::Arc;

use super::{Case, Fact, Known, OpDef, Operands};
use crate::attr::Attr;
use crate::error::OpError;
use crate::tensor::{Tensor, TensorMut, strides};
use crate::types::{DType, Dim, TensorType};

simple_op! {
    /// `x[begin:end:stride]` with one entry an axis. Operands: tensor, begin, end, stride (integer tensors `[rank]`).
    ///
    /// Negative bounds count from the end; bounds beyond the extent are clamped to it. A negative stride walks back: then `begin`
    /// is clamped to `[0, n - 1]`, and `end` to `[-1, n - 1]` after counting from the end where it is below -1.
    Slice
}

/// `begin` and `end` of one axis, resolved against its extent.
///
/// A symbolic bound is taken as it stands where it is the extent itself, and clamped otherwise; it never counts from the end.
pub fn bound(value: &Dim, extent: &Dim) -> Dim {
    match (value.as_const(), extent.as_const()) {
        (Some(v), _) if v >= i64::from(i32::MAX) => extent.clone(),
        (Some(0), _) => Dim::Const(0),
        (Some(v), Some(n)) => Dim::Const(if v < 0 { (v + n).max(0) } else { v.min(n) }),
        (Some(v), None) if v < 0 => extent.add(&Dim::Const(v)).larger(&Dim::Const(0)),
        _ if value == extent => extent.clone(),
        _ => value.smaller(extent),
    }
}

/// Number of steps from `begin` to `end` with a stride of 1 or more.
pub fn extent(begin: &Dim, end: &Dim, stride: &Dim) -> Dim {
    let span = end.sub(begin);
    let count = match stride.as_const() {
        Some(1) => span,
        _ => span.add(stride).sub(&Dim::Const(1)).div(stride),
    };
    if count.as_const().is_some_and(|c| c < 0) {
        Dim::Const(0)
    } else {
        count
    }
}

/// `(begin, extent, stride)` of one axis of a concrete slice.
pub fn resolve(
    begin: i64,
    end: i64,
    stride: i64,
    n: usize,
) -> Result<(usize, usize, usize), OpError> {
    if stride < 1 {
        return Err(OpError::Range {
            what: "a slice stride",
            value: stride,
            allowed: "1 or more".into(),
        });
    }
    let (begin, count, stride) = walk(begin, end, stride, n)?;
    Ok((begin, count, stride as usize))
}

/// `(begin, extent, stride)` of one axis of a concrete slice that may walk back.
pub fn walk(
    begin: i64,
    end: i64,
    stride: i64,
    n: usize,
) -> Result<(usize, usize, i64), OpError> {
    let n = n as i64;
    // The lowest bound that may be meant, and the highest.
    let (low, high) = match stride {
        0 => {
            return Err(OpError::Range {
                what: "a slice stride",
                value: 0,
                allowed: "not 0".into(),
            });
        }
        1.. => (0, n),
        _ => (-1, n - 1),
    };
    let clamp = |v: i64, low: i64| {
        let counted = if v < low { v.saturating_add(n) } else { v };
        counted.max(low).min(high)
    };
    let (b, e) = (clamp(begin, 0), clamp(end, low));
    let span = if stride > 0 { e - b } else { b - e };
    let count = if span > 0 && n > 0 { (span - 1) / stride.saturating_abs() + 1 } else { 0 };
    Ok((b.max(0) as usize, count as usize, stride))
}

/// The place in a tensor of `shape` of element `index` of a slice with these axes.
pub fn place(mut index: usize, shape: &[usize], axes: &[(usize, usize, i64)]) -> usize {
    let mut at = 0;
    for (&step, &(begin, count, stride)) in strides(shape).iter().zip(axes).rev() {
        let along = begin as i64 + (index % count) as i64 * stride;
        at += along as usize * step;
        index /= count;
    }
    at
}

/// The resolved axes of a slice of `shape` with concrete bounds in `inputs[1..4]`.
pub fn axes(shape: &[usize], inputs: &[Tensor]) -> Result<Vec<(usize, usize, i64)>, OpError> {
    let bounds: Vec<Vec<i64>> = inputs.iter().map(Tensor::ints).collect();
    if bounds.iter().any(|b| b.len() != shape.len()) {
        return Err(OpError::shapes(
            "slice bounds have one entry an axis",
            &[shape, &inputs[0].shape],
        ));
    }
    (0..shape.len())
        .map(|i| walk(bounds[0][i], bounds[1][i], bounds[2][i], shape[i]))
        .collect()
}

impl OpDef for Slice {
    const NAME: &'static str = "slice";
    const SUMMARY: &'static str = "a box out of a tensor";
    const ARITY: std::ops::RangeInclusive<usize> = 4..=4;

    fn from_attributes(_: &[(Arc<str>, Attr)]) -> Result<Self, OpError> {
        Ok(Self)
    }

    fn infer(&self, operands: Operands<'_>) -> Result<Vec<Fact>, OpError> {
        let t = operands.tensor(0)?;
        let bounds: Option<Vec<Known>> = (1..4).map(|i| operands.known(i)).collect();
        let shape = (0..t.rank()).map(|i| {
            let at = |k: usize| bounds.as_ref().and_then(|b| b[k].get(i).cloned());
            match (at(0), at(1), at(2)) {
                (Some(b), Some(e), Some(s)) => count(&b, &e, &s, &t.shape[i]),
                _ => Dim::Unknown,
            }
        });
        let ty = TensorType::new(t.dtype, shape);
        let known = slice_known(operands, t, &ty);
        Ok(vec![Fact::with_known(ty, known)])
    }

    fn reference(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, OpError> {
        let x = &inputs[0];
        let axes = axes(&x.shape, &inputs[1..])?;
        let shape: Vec<usize> = axes.iter().map(|a| a.1).collect();
        let mut out = TensorMut::zeros(x.dtype, &shape)?;
        (0..out.len()).for_each(|i| out.set(i, x.get(place(i, &x.shape, &axes))));
        Ok(vec![out.finish()])
    }

    fn cases() -> Vec<Case<Self>> {
        let case = |shape: &[usize], b: &[i64], e: &[i64], s: &[i64]| {
            let values: Vec<i64> = (0..shape.iter().product::<usize>() as i64).collect();
            let ints = |v: &[i64]| Tensor::from_ints(DType::I32, &[v.len()], v);
            let x = Tensor::from_ints(DType::I32, shape, &values).ok()?;
            Some(Case {
                op: Self,
                inputs: vec![x, ints(b).ok()?, ints(e).ok()?, ints(s).ok()?],
            })
        };
        let max = i64::from(i32::MAX);
        [
            case(&[4, 6], &[1, 0], &[3, max], &[1, 2]),
            case(&[4, 6], &[-3, -2], &[-1, max], &[1, 1]),
            case(&[5], &[4], &[2], &[1]),
            case(&[4, 6], &[max, 4], &[-5, -7], &[-1, -2]),
            case(&[0, 3], &[2, -1], &[0, 0], &[-1, -1]),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

/// The extent of one axis of a slice.
fn count(begin: &Dim, end: &Dim, stride: &Dim, n: &Dim) -> Dim {
    let constants = [begin, end, stride, n].map(Dim::as_const);
    match (constants, stride.as_const()) {
        ([Some(b), Some(e), Some(s), Some(n)], Some(i64::MIN..=-1)) => usize::try_from(n)
            .ok()
            .and_then(|n| walk(b, e, s, n).ok())
            .map_or(Dim::Unknown, |(_, count, _)| Dim::from(count)),
        (_, Some(1..)) => extent(&bound(begin, n), &bound(end, n), stride),
        _ => Dim::Unknown,
    }
}

/// Follows the contents of a slice of a followed vector.
fn slice_known(operands: Operands<'_>, t: &TensorType, out: &TensorType) -> Option<Vec<Dim>> {
    let (known, [n]) = (operands.known(0)?, &t.fixed_shape()?[..]) else {
        return None;
    };
    let (b, e, s) = (operands.int(1)?, operands.int(2)?, operands.int(3)?);
    let axes = [walk(b, e, s, *n).ok()?];
    (out.fixed_len()? == axes[0].1).then(|| {
        (0..axes[0].1)
            .map(|i| known.get(place(i, &[*n], &axes)).cloned())
            .collect()
    })?
}
