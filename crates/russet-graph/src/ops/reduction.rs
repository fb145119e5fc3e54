//! What reductions share: axes as an operand, extents of 1 where axes went.

use std::collections::BTreeSet;

use crate::error::OpError;
use crate::ops::shape::axis;
use crate::ops::{Case, Fact, Operands};
use crate::tensor::{Scalar, Tensor, TensorMut, element_count};
use crate::types::{DType, Dim, TensorType, Type};

/// The result keeps the rank; reduced axes have extent 1. Operands: tensor, axes (integers; none: every axis stays).
pub fn infer(operands: Operands<'_>) -> Result<Vec<Fact>, OpError> {
    let t = operands.tensor(0)?;
    let mut shape = t.shape.clone();
    match operands.ints(1) {
        Some(axes) => {
            for a in axes {
                shape[axis(a, t.rank())?] = Dim::Const(1);
            }
        }
        None => shape.fill(Dim::Unknown),
    }
    Ok(vec![TensorType::new(t.dtype, shape).into()])
}

/// [`infer`], following the contents of a one-dimensional operand that is reduced to one element.
pub fn infer_folded(
    operands: Operands<'_>,
    fold: impl Fn(&[Dim]) -> Dim,
) -> Result<Vec<Fact>, OpError> {
    let facts = infer(operands)?;
    let whole = operands.tensor(0)?.rank() == 1 && operands.ints(1).is_some_and(|a| a.len() == 1);
    let known = operands.known(0).filter(|_| whole).map(|k| vec![fold(&k)]);
    let fact = |f: Fact| match f.ty {
        Type::Tensor(ty) => Fact::with_known(ty, known.clone()),
        _ => f,
    };
    Ok(facts.into_iter().map(fact).collect())
}

/// Folds every group of elements that ends in one place of the result.
pub fn reduce(
    inputs: &[Tensor],
    fold: impl Fn(&[Scalar]) -> Scalar,
) -> Result<Vec<Tensor>, OpError> {
    reduce_to(inputs, inputs[0].dtype, |group| Ok(fold(group)))
}

/// [`reduce`] to elements of kind `dtype`, with a fold that can fail. Operands: tensor, axes.
pub fn reduce_to(
    inputs: &[Tensor],
    dtype: DType,
    mut fold: impl FnMut(&[Scalar]) -> Result<Scalar, OpError>,
) -> Result<Vec<Tensor>, OpError> {
    let x = &inputs[0];
    let axes = inputs[1]
        .ints()
        .into_iter()
        .map(|a| axis(a, x.shape.len()))
        .collect::<Result<BTreeSet<_>, _>>()?;
    let shape: Vec<usize> = x
        .shape
        .iter()
        .enumerate()
        .map(|(i, &d)| if axes.contains(&i) { 1 } else { d })
        .collect();
    let mut groups: Vec<Vec<Scalar>> = vec![Vec::new(); element_count(&shape)?];
    for i in 0..x.len() {
        let (mut rest, mut at, mut stride) = (i, 0, 1);
        for k in (0..shape.len()).rev() {
            at += rest % x.shape[k] % shape[k].max(1) * stride;
            rest /= x.shape[k];
            stride *= shape[k];
        }
        groups[at].push(x.get(i));
    }
    let mut out = TensorMut::zeros(dtype, &shape)?;
    for (i, group) in groups.iter().enumerate() {
        out.set(i, fold(group)?);
    }
    Ok(vec![out.finish()])
}

/// Calls `visit(line, elements, places)` for every line of `x` along axis `at`: its number in row-major order of the other axes,
/// its elements, and their places in `x`.
pub fn along(x: &Tensor, at: usize, mut visit: impl FnMut(usize, &[Scalar], &[usize])) {
    let inner: usize = x.shape[at + 1..].iter().product();
    let outer: usize = x.shape[..at].iter().product();
    let n = x.shape[at];
    for line in 0..outer * inner {
        let first = line / inner * n * inner + line % inner;
        let places: Vec<usize> = (0..n).map(|k| first + k * inner).collect();
        let elements: Vec<Scalar> = places.iter().map(|&i| x.get(i)).collect();
        visit(line, &elements, &places);
    }
}

/// `f` over floats, `g` over integers.
pub fn by_class(
    group: &[Scalar],
    float: bool,
    f: impl Fn(f64, f64) -> f64,
    g: impl Fn(i128, i128) -> i128,
    start: (f64, i128),
) -> Scalar {
    if float {
        Scalar::Float(group.iter().fold(start.0, |a, v| f(a, v.float())))
    } else {
        Scalar::Int(group.iter().fold(start.1, |a, v| g(a, v.int())))
    }
}

/// Examples: one axis, the last axis, several, none.
pub fn cases<O: Copy>(op: O, kinds: &[DType]) -> Vec<Case<O>> {
    let axes: [&[i64]; 4] = [&[0], &[-1], &[0, 1], &[]];
    let values: Vec<i64> = (0..12).map(|i| (i * 5) % 7 - 2).collect();
    let mut out = Vec::new();
    for &dtype in kinds {
        let floats: Vec<f64> = values.iter().map(|&v| v as f64 * 0.5).collect();
        let x = if dtype.is_float() {
            Tensor::from_floats(dtype, &[3, 4], &floats)
        } else {
            Tensor::from_ints(dtype, &[3, 4], &values)
        };
        for a in axes {
            let pair = x
                .clone()
                .and_then(|x| Ok(vec![x, Tensor::from_ints(DType::I32, &[a.len()], a)?]));
            out.extend(pair.map(|inputs| Case { op, inputs }));
        }
        let line = x.and_then(|x| x.reshaped(&[12]));
        let axis = Tensor::from_ints(DType::I32, &[1], &[0]);
        out.extend(
            line.and_then(|x| Ok(vec![x, axis?]))
                .map(|inputs| Case { op, inputs }),
        );
    }
    out
}
