//! What convolutions and pools share: windows that slide over the axes after batch and channel.

use std::ops::{Add, Mul};

use crate::error::OpError;
use crate::ops::shape::dims_error;
use crate::ops::{Case, Fact, Operands};
use crate::tensor::{Scalar, Tensor, TensorMut, round_to, strides};
use crate::types::{DType, Dim, TensorType};

/// One axis of a window: how many elements, how far apart, and how far the window moves.
#[derive(Clone, Copy, Debug)]
struct Step {
    size: usize,
    dilation: usize,
    stride: usize,
}

impl Step {
    /// Elements from the first to the last of a window.
    fn span(self) -> Option<usize> {
        self.size
            .checked_sub(1)?
            .checked_mul(self.dilation)?
            .checked_add(1)
    }
}

/// The numbers of a small operand: one for each of `n` axes, each at least `least`.
fn numbers(t: &Tensor, n: usize, what: &'static str, least: i64) -> Result<Vec<usize>, OpError> {
    let values = t.ints();
    if values.len() != n {
        return Err(OpError::shapes(
            "a window has one number an axis",
            &[&t.shape, &[n]],
        ));
    }
    let number = |v: i64| {
        usize::try_from(v)
            .ok()
            .filter(|_| v >= least && v <= i64::from(u32::MAX))
            .ok_or(OpError::Range {
                what,
                value: v,
                allowed: format!("{least} or more"),
            })
    };
    values.into_iter().map(number).collect()
}

fn steps(sizes: &[usize], stride: &Tensor, dilation: &Tensor) -> Result<Vec<Step>, OpError> {
    let n = sizes.len();
    let stride = numbers(stride, n, "a stride", 1)?;
    let dilation = numbers(dilation, n, "a dilation", 1)?;
    Ok((0..n)
        .map(|i| Step {
            size: sizes[i],
            dilation: dilation[i],
            stride: stride[i],
        })
        .collect())
}

/// How many windows fit on an axis of `n` elements; rounded up where `ceil`.
fn count(n: usize, step: Step, ceil: bool) -> Result<usize, OpError> {
    let free = step.span().and_then(|s| n.checked_sub(s)).ok_or_else(|| {
        OpError::shapes(
            "a window is not empty and fits into its axis",
            &[&[n], &[step.size]],
        )
    })?;
    Ok(if ceil {
        free.div_ceil(step.stride) + 1
    } else {
        free / step.stride + 1
    })
}

/// The symbolic form of [`count`]: unknown where a number is.
fn count_dim(n: &Dim, size: &Dim, dilation: &Dim, stride: &Dim, ceil: Option<bool>) -> Dim {
    let one = Dim::Const(1);
    if stride.as_const().is_none_or(|s| s < 1) {
        return Dim::Unknown;
    }
    let free = n.sub(&size.sub(&one).mul(dilation)).sub(&one);
    match ceil {
        Some(false) => free.div(stride).add(&one),
        Some(true) => free.add(stride).sub(&one).div(stride).add(&one),
        None => Dim::Unknown,
    }
}

/// Splits a shape of `rank` axes into batch, channels and the rest.
fn split(shape: &[usize], rank: usize) -> Result<(usize, usize, &[usize]), OpError> {
    match shape {
        [n, c, rest @ ..] if shape.len() == rank => Ok((*n, *c, rest)),
        _ => Err(OpError::shapes(
            "a batch, channels and the axes of the window",
            &[shape],
        )),
    }
}

/// Places of the first element of every window, and places of its elements relative to it, in a plane of `shape`.
fn places(shape: &[usize], out: &[usize], steps: &[Step]) -> (Vec<usize>, Vec<usize>) {
    let stride = strides(shape);
    let grid = |extents: &[usize], factor: &dyn Fn(Step) -> usize| {
        let mut all = vec![0];
        for (i, (&extent, &step)) in extents.iter().zip(steps).enumerate() {
            let by = factor(step) * stride[i];
            all = all
                .iter()
                .flat_map(|&at| (0..extent).map(move |k| at + k * by))
                .collect();
        }
        all
    };
    let sizes: Vec<usize> = steps.iter().map(|s| s.size).collect();
    (grid(out, &|s| s.stride), grid(&sizes, &|s| s.dilation))
}

fn store<T: Copy>(
    dtype: DType,
    shape: &[usize],
    values: &[T],
    scalar: impl Fn(T) -> Scalar,
) -> Result<Vec<Tensor>, OpError> {
    let mut out = TensorMut::zeros(dtype, shape)?;
    values
        .iter()
        .enumerate()
        .for_each(|(i, &v)| out.set(i, scalar(v)));
    Ok(vec![out.finish()])
}

/// Channels of a convolution by group: how many groups, and how many of `channels` in each.
fn grouped(groups: &Tensor, channels: usize) -> Result<(usize, usize), OpError> {
    let groups = numbers(groups, 1, "the number of groups", 1)?[0];
    if !channels.is_multiple_of(groups) {
        return Err(OpError::shapes(
            "channels split evenly into groups",
            &[&[channels], &[groups]],
        ));
    }
    Ok((groups, channels / groups))
}

fn same_kind(operands: [DType; 2]) -> Result<(), OpError> {
    if operands[0] != operands[1] {
        return Err(OpError::Kind {
            rule: "input and weight have one element kind",
            index: 1,
            got: operands[1],
        });
    }
    Ok(())
}

/// Inference of a convolution over tensors of `rank` axes. Operands: input, weight, stride, dilation, groups.
pub fn conv_infer(operands: Operands<'_>, rank: usize) -> Result<Vec<Fact>, OpError> {
    let (x, w) = (operands.tensor(0)?, operands.tensor(1)?);
    same_kind([x.dtype, w.dtype])?;
    if x.rank() != rank || w.rank() != rank {
        return Err(dims_error(
            "a batch, channels and the axes of the window",
            &[&x.shape, &w.shape],
        ));
    }
    let number = |operand: usize, i: usize| {
        let known = operands.known(operand).and_then(|k| k.get(i).cloned());
        known.unwrap_or(Dim::Unknown)
    };
    let mut shape = vec![x.shape[0].clone(), w.shape[0].clone()];
    shape.extend((2..rank).map(|i| {
        let (stride, dilation) = (number(2, i - 2), number(3, i - 2));
        count_dim(&x.shape[i], &w.shape[i], &dilation, &stride, Some(false))
    }));
    Ok(vec![TensorType::new(x.dtype, shape).into()])
}

/// The meaning of a convolution: sums in the widest arithmetic, rounded once.
pub fn conv(inputs: &[Tensor], rank: usize) -> Result<Vec<Tensor>, OpError> {
    let (x, w) = (&inputs[0], &inputs[1]);
    same_kind([x.dtype, w.dtype])?;
    let (batch, channels, plane) = split(&x.shape, rank)?;
    let (made, depth, sizes) = split(&w.shape, rank)?;
    let (groups, per_group) = grouped(&inputs[4], channels)?;
    if depth != per_group || made % groups != 0 {
        return Err(OpError::shapes(
            "the weight has the channels of one group",
            &[&x.shape, &w.shape],
        ));
    }
    let steps = steps(sizes, &inputs[2], &inputs[3])?;
    let out: Vec<usize> = plane
        .iter()
        .zip(&steps)
        .map(|(&n, &s)| count(n, s, false))
        .collect::<Result<_, _>>()?;
    let (starts, taps) = places(plane, &out, &steps);
    let geometry = Conv {
        batch,
        made,
        channels,
        depth,
        per_group: made / groups,
        plane: plane.iter().product(),
        starts: &starts,
        taps: &taps,
    };
    let shape: Vec<usize> = [batch, made].into_iter().chain(out).collect();
    if x.dtype.is_float() {
        let sums = geometry.sums(&x.floats(), &w.floats());
        store(x.dtype, &shape, &sums, Scalar::Float)
    } else {
        let ints = |t: &Tensor| t.scalars().map(Scalar::int).collect::<Vec<i128>>();
        store(
            x.dtype,
            &shape,
            &geometry.sums(&ints(x), &ints(w)),
            Scalar::Int,
        )
    }
}

struct Conv<'a> {
    batch: usize,
    made: usize,
    channels: usize,
    /// Channels that one window reads.
    depth: usize,
    /// Channels that one group makes.
    per_group: usize,
    /// Elements of one channel.
    plane: usize,
    starts: &'a [usize],
    taps: &'a [usize],
}

impl Conv<'_> {
    fn sums<T: Copy + Default + Add<Output = T> + Mul<Output = T>>(
        &self,
        x: &[T],
        w: &[T],
    ) -> Vec<T> {
        let mut out = Vec::new();
        let window = self.depth * self.taps.len();
        for (n, o) in (0..self.batch).flat_map(|n| (0..self.made).map(move |o| (n, o))) {
            let first = n * self.channels + o / self.per_group * self.depth;
            let weights = &w[o * window..(o + 1) * window];
            out.extend(self.starts.iter().map(|start| {
                let mut sum = T::default();
                for (c, row) in weights.chunks(self.taps.len().max(1)).enumerate() {
                    let base = (first + c) * self.plane + start;
                    let terms = row.iter().zip(self.taps);
                    sum = terms.fold(sum, |sum, (&w, tap)| sum + x[base + tap] * w);
                }
                sum
            }));
        }
        out
    }
}

/// Inference of a transposed convolution. Operands: input, weight, stride, padding, dilation, output padding, groups.
pub fn transposed_infer(operands: Operands<'_>, rank: usize) -> Result<Vec<Fact>, OpError> {
    let (x, w) = (operands.tensor(0)?, operands.tensor(1)?);
    same_kind([x.dtype, w.dtype])?;
    if x.rank() != rank || w.rank() != rank {
        return Err(dims_error(
            "a batch, channels and the axes of the window",
            &[&x.shape, &w.shape],
        ));
    }
    let number = |operand: usize, i: usize| {
        let known = operands.known(operand).and_then(|k| k.get(i).cloned());
        known.unwrap_or(Dim::Unknown)
    };
    let one = Dim::Const(1);
    let mut shape = vec![x.shape[0].clone(), w.shape[1].mul(&number(6, 0))];
    shape.extend((2..rank).map(|i| {
        let [stride, padding, dilation, extra] = [2, 3, 4, 5].map(|k| number(k, i - 2));
        let spread = x.shape[i].sub(&one).mul(&stride);
        let window = w.shape[i].sub(&one).mul(&dilation);
        let cut = padding.mul(&Dim::Const(2));
        spread.add(&window).add(&extra).add(&one).sub(&cut)
    }));
    Ok(vec![TensorType::new(x.dtype, shape).into()])
}

/// One axis of a transposed convolution.
struct Spread {
    step: Step,
    padding: usize,
    extent: usize,
}

fn spreads(inputs: &[Tensor], plane: &[usize], sizes: &[usize]) -> Result<Vec<Spread>, OpError> {
    let n = plane.len();
    let padding = numbers(&inputs[3], n, "a padding", 0)?;
    let extra = numbers(&inputs[5], n, "an output padding", 0)?;
    let axis = |(i, step): (usize, Step)| {
        let covered = plane[i]
            .checked_sub(1)
            .and_then(|m| m.checked_mul(step.stride)?.checked_add(step.span()?));
        let extent = covered
            .and_then(|c| c.checked_add(extra[i])?.checked_sub(2 * padding[i]))
            .ok_or_else(|| {
                OpError::shapes(
                    "padding leaves something of a transposed convolution",
                    &[plane, sizes],
                )
            })?;
        Ok(Spread {
            step,
            padding: padding[i],
            extent,
        })
    };
    let steps = steps(sizes, &inputs[2], &inputs[4])?;
    steps.into_iter().enumerate().map(axis).collect()
}

/// For every element of the input plane and every tap of the window, in this order: the place it adds to, if it is inside.
fn targets(plane: &[usize], spreads: &[Spread]) -> Vec<Vec<Option<usize>>> {
    let extents: Vec<usize> = spreads.iter().map(|s| s.extent).collect();
    let stride = strides(&extents);
    let coordinates = |shape: &[usize], mut i: usize| {
        let mut at = vec![0; shape.len()];
        for k in (0..shape.len()).rev() {
            at[k] = i % shape[k];
            i /= shape[k];
        }
        at
    };
    let sizes: Vec<usize> = spreads.iter().map(|s| s.step.size).collect();
    let place = |from: &[usize], tap: &[usize]| {
        spreads.iter().enumerate().try_fold(0, |at, (k, s)| {
            let to = (from[k] * s.step.stride + tap[k] * s.step.dilation).checked_sub(s.padding)?;
            (to < s.extent).then(|| at + to * stride[k])
        })
    };
    let taps: Vec<Vec<usize>> = (0..sizes.iter().product())
        .map(|t| coordinates(&sizes, t))
        .collect();
    (0..plane.iter().product())
        .map(|i| {
            let from = coordinates(plane, i);
            taps.iter().map(|tap| place(&from, tap)).collect()
        })
        .collect()
}

/// The meaning of a transposed convolution: every input element adds its multiple of the weight to the result, channel after
/// channel and row after row. The runtime rounds the result at every step, which shows in sixteen bits.
pub fn transposed(inputs: &[Tensor], rank: usize) -> Result<Vec<Tensor>, OpError> {
    let (x, w) = (&inputs[0], &inputs[1]);
    same_kind([x.dtype, w.dtype])?;
    let (batch, channels, plane) = split(&x.shape, rank)?;
    let (rows, made, sizes) = split(&w.shape, rank)?;
    let (groups, depth) = grouped(&inputs[6], channels)?;
    if rows != channels {
        return Err(OpError::shapes(
            "the weight has the channels of the input",
            &[&x.shape, &w.shape],
        ));
    }
    let spreads = spreads(inputs, plane, sizes)?;
    let targets = targets(plane, &spreads);
    let extents = spreads.iter().map(|s| s.extent);
    let shape: Vec<usize> = [batch, made * groups].into_iter().chain(extents).collect();
    let count = crate::tensor::element_count(&shape)?;
    let mut sums: Vec<f64> = Vec::new();
    let reserved = sums.try_reserve_exact(count);
    reserved.map_err(|_| OpError::TooLarge {
        shape: shape.clone(),
    })?;
    sums.resize(count, 0.0);
    let area: usize = shape[2..].iter().product();
    let (size, taps) = (targets.len(), sizes.iter().product::<usize>());
    let (x_values, w_values) = (x.floats(), w.floats());
    let add = adder(x.dtype);
    for i in 0..x_values.len() {
        let (n, c, from) = (i / (channels * size), i / size % channels, i % size);
        for o in 0..made {
            let to = (n * made * groups + c / depth * made + o) * area;
            let weights = &w_values[(c * made + o) * taps..][..taps];
            for (weight, place) in weights.iter().zip(&targets[from]) {
                if let Some(place) = place {
                    sums[to + place] = add(sums[to + place], x_values[i] * weight);
                }
            }
        }
    }
    store(x.dtype, &shape, &sums, Scalar::Float)
}

/// The sum of two numbers in the arithmetic of a kind: below 64 bits products and sums are f32 before they are rounded.
fn adder(dtype: DType) -> fn(f64, f64) -> f64 {
    let single = |a: f64, b: f64| f64::from(a as f32 + b as f32);
    match dtype {
        DType::F64 => |a, b| a + b,
        DType::F16 => |a, b| round_to(DType::F16, f64::from(a as f32 + b as f32)),
        DType::BF16 => |a, b| round_to(DType::BF16, f64::from(a as f32 + b as f32)),
        _ => single,
    }
}

/// Inference of a pool. Operands: input, sizes, strides, dilations and, where `ceil`, whether counts round up.
pub fn pool_infer(operands: Operands<'_>, rank: usize, ceil: bool) -> Result<Vec<Fact>, OpError> {
    let x = operands.tensor(0)?;
    if x.rank() != rank {
        return Err(dims_error(
            "a batch, channels and the axes of the window",
            &[&x.shape],
        ));
    }
    let up = if ceil {
        operands.int(4).map(|v| v != 0)
    } else {
        Some(false)
    };
    let number = |operand: usize, i: usize| {
        let known = operands.known(operand).and_then(|k| k.get(i).cloned());
        known.unwrap_or(Dim::Unknown)
    };
    let mut shape = x.shape.clone();
    for i in 2..rank {
        let [size, stride, dilation] = [1, 2, 3].map(|k| number(k, i - 2));
        shape[i] = count_dim(&x.shape[i], &size, &dilation, &stride, up);
    }
    Ok(vec![TensorType::new(x.dtype, shape).into()])
}

/// The meaning of a pool: every window of every channel folded. Windows that reach past the end hold what is inside.
pub fn pool(
    inputs: &[Tensor],
    rank: usize,
    fold: impl Fn(&[Scalar]) -> Scalar,
) -> Result<Vec<Tensor>, OpError> {
    let x = &inputs[0];
    let (batch, channels, plane) = split(&x.shape, rank)?;
    let sizes = numbers(&inputs[1], plane.len(), "a window", 1)?;
    let steps = steps(&sizes, &inputs[2], &inputs[3])?;
    let ceil = inputs
        .get(4)
        .and_then(|t| t.scalars().next())
        .is_some_and(Scalar::bool);
    let extents: Vec<usize> = plane
        .iter()
        .zip(&steps)
        .map(|(&n, &s)| count(n, s, ceil))
        .collect::<Result<_, _>>()?;
    let shape: Vec<usize> = [batch, channels]
        .into_iter()
        .chain(extents.clone())
        .collect();
    let mut out = TensorMut::zeros(x.dtype, &shape)?;
    let (area, to): (usize, usize) = (plane.iter().product(), extents.iter().product());
    for i in 0..out.len() {
        let elements: Vec<Scalar> = inside(plane, &extents, &steps, i % to)
            .into_iter()
            .map(|at| x.get(i / to * area + at))
            .collect();
        out.set(i, fold(&elements));
    }
    Ok(vec![out.finish()])
}

/// Places of the elements of window `index` that lie inside the plane.
fn inside(plane: &[usize], extents: &[usize], steps: &[Step], mut index: usize) -> Vec<usize> {
    let (mut all, mut stride) = (vec![0], 1);
    for k in (0..plane.len()).rev() {
        let first = index % extents[k] * steps[k].stride;
        index /= extents[k];
        let line = (0..steps[k].size)
            .map(|j| first + j * steps[k].dilation)
            .filter(|&at| at < plane[k]);
        all = line
            .flat_map(|at| all.iter().map(move |rest| at * stride + rest))
            .collect();
        stride *= plane[k];
    }
    all
}

/// The largest element; not a number where one of them is not.
pub fn largest(elements: &[Scalar]) -> Scalar {
    let larger = |a: Scalar, b: Scalar| match (a, b) {
        (Scalar::Float(x), Scalar::Float(y)) if x.is_nan() || y <= x => Scalar::Float(x),
        (Scalar::Float(_), Scalar::Float(y)) => Scalar::Float(y),
        _ => Scalar::Int(a.int().max(b.int())),
    };
    elements
        .iter()
        .copied()
        .reduce(larger)
        .unwrap_or(Scalar::Int(0))
}

/// The sum of the elements.
pub fn total(elements: &[Scalar]) -> Scalar {
    let plus = |a: Scalar, b: Scalar| match (a, b) {
        (Scalar::Float(x), Scalar::Float(y)) => Scalar::Float(x + y),
        (Scalar::Complex(x, u), Scalar::Complex(y, v)) => Scalar::Complex(x + y, u + v),
        _ => Scalar::Int(a.int() + b.int()),
    };
    elements
        .iter()
        .copied()
        .reduce(plus)
        .unwrap_or(Scalar::Int(0))
}

/// Examples: `shapes` of the leading tensors, then the numbers of the small operands.
pub fn cases<O: Copy>(op: O, examples: &[(&[&[usize]], &[&[i64]])]) -> Vec<Case<O>> {
    let tensor = |shape: &[usize], dtype| {
        let ramp = (0..shape.iter().product::<usize>()).map(|i| (i * 7 % 11) as f64 * 0.5 - 2.0);
        Tensor::from_floats(dtype, shape, &ramp.collect::<Vec<_>>())
    };
    let mut out = Vec::new();
    for (shapes, small) in examples {
        for dtype in [DType::F32, DType::F16] {
            let tensors = shapes.iter().map(|s| tensor(s, dtype));
            let numbers = small
                .iter()
                .map(|v| Tensor::from_ints(DType::U32, &[v.len()], v));
            let inputs: Result<Vec<Tensor>, OpError> = tensors.chain(numbers).collect();
            out.extend(inputs.map(|inputs| Case { op, inputs }));
        }
    }
    out
}
