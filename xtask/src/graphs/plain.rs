//! Operations on single elements, moves of elements, sums and products.

use russet_graph::ops::*;
use russet_graph::tensor::Tensor;
use russet_graph::types::DType;

use super::{Builder, Choices, KINDS, Val, filled, float, number};

/// One of the operations of a list, on an exact value.
pub(super) fn unary(b: &mut Builder, c: &mut Choices<'_>) -> Option<Val> {
    if c.below(3) == 0 {
        let x = b.exact(c, number)?;
        let ops: [Op; 3] = [abs::Abs.into(), relu::Relu.into(), round::Round.into()];
        return b.push(ops[c.below(3)].clone(), &[&x], false);
    }
    let x = b.exact(c, float)?;
    let ops: [Op; 13] = [
        exp::Exp.into(),
        sin::Sin.into(),
        cos::Cos.into(),
        tanh::Tanh.into(),
        sigmoid::Sigmoid.into(),
        silu::Silu.into(),
        sqrt::Sqrt.into(),
        rsqrt::Rsqrt.into(),
        gelu::Gelu::default().into(),
        erf::Erf.into(),
        log::Log.into(),
        atan::Atan.into(),
        tan::Tan.into(),
    ];
    let op = ops[c.below(ops.len())].clone();
    b.push(op, &[&x], true)
}

pub(super) fn binary(b: &mut Builder, c: &mut Choices<'_>) -> Option<Val> {
    let x = b.exact(c, number)?;
    let y = b.exact(c, |d| d == x.tensor.dtype)?;
    let ops: [Op; 8] = [
        broadcasting_add::BroadcastingAdd.into(),
        broadcasting_sub::BroadcastingSub.into(),
        broadcasting_mul::BroadcastingMul.into(),
        broadcasting_maximum::BroadcastingMaximum.into(),
        broadcasting_minimum::BroadcastingMinimum.into(),
        broadcasting_modulo::BroadcastingModulo.into(),
        broadcasting_floor_divide::BroadcastingFloorDivide.into(),
        broadcasting_divide::BroadcastingDivide.into(),
    ];
    let at = c.below(ops.len());
    b.push(ops[at].clone(), &[&x, &y], at >= 5 && float(x.tensor.dtype))
}

pub(super) fn compare(b: &mut Builder, c: &mut Choices<'_>) -> Option<Val> {
    let x = b.exact(c, number)?;
    let y = b.exact(c, |d| d == x.tensor.dtype)?;
    let ops: [Op; 3] = [
        broadcasting_greater::BroadcastingGreater.into(),
        broadcasting_equal::BroadcastingEqual.into(),
        broadcasting_not_equal::BroadcastingNotEqual.into(),
    ];
    b.push(ops[c.below(3)].clone(), &[&x, &y], false)
}

pub(super) fn convert(b: &mut Builder, c: &mut Choices<'_>) -> Option<Val> {
    let x = b.exact(c, |_| true)?;
    let to = KINDS[c.below(KINDS.len())];
    let whole = |v: f64| v.is_finite() && v.abs() < 100.0 && v >= 0.0;
    if !to.is_float() && !x.tensor.floats().into_iter().all(whole) {
        return None;
    }
    b.push(cast::Cast { to }, &[&x], false)
}

pub(super) fn reshape(b: &mut Builder, c: &mut Choices<'_>) -> Option<Val> {
    let x = b.any(c, |_| true)?;
    if c.below(2) == 0 {
        let axes = b.ints(DType::I32, &[0, -1])?;
        return b.push(expand_dims::ExpandDims, &[&x, &axes], false);
    }
    let shape = b.ints(
        DType::I32,
        &[-1, x.tensor.shape.last().copied().unwrap_or(1) as i64],
    )?;
    b.push(reshape::Reshape, &[&x, &shape], false)
}

pub(super) fn transpose(b: &mut Builder, c: &mut Choices<'_>) -> Option<Val> {
    let x = b.any(c, |v| v.tensor.shape.len() > 1)?;
    let mut left: Vec<i64> = (0..x.tensor.shape.len() as i64).collect();
    let mut order = Vec::new();
    while !left.is_empty() {
        order.push(left.remove(c.below(left.len())));
    }
    let order = b.ints(DType::U32, &order)?;
    b.push(transpose::Transpose, &[&x, &order], false)
}

/// A slice of a tensor whose extents are all known, and an update of it.
pub(super) fn slice(b: &mut Builder, c: &mut Choices<'_>) -> Option<Val> {
    let x = b.any(c, |v| !v.tensor.shape.is_empty() && b.is_fixed(v))?;
    let rank = x.tensor.shape.len();
    let mut numbers = |low: i64, n: usize| {
        (0..rank)
            .map(|_| low + c.below(n) as i64)
            .collect::<Vec<_>>()
    };
    let (begin, end) = (numbers(-3, 6), numbers(-2, 8));
    let back = numbers(0, 5).contains(&0);
    let stride: Vec<i64> = numbers(1, 2)
        .into_iter()
        .map(|s| if back { -s } else { s })
        .collect();
    let bounds = [
        b.ints(DType::I32, &begin)?,
        b.ints(DType::I32, &end)?,
        b.ints(DType::I32, &stride)?,
    ];
    let [begin, end, stride] = &bounds;
    let part = b.push(slice::Slice, &[&x, begin, end, stride], false)?;
    if c.below(2) == 0 {
        let update = b.any(c, |v| {
            v.tensor.dtype == x.tensor.dtype && v.tensor.shape == part.tensor.shape
        })?;
        return b.push(
            slice_update::SliceUpdate,
            &[&x, begin, end, stride, &update],
            false,
        );
    }
    Some(part)
}

pub(super) fn concat(b: &mut Builder, c: &mut Choices<'_>) -> Option<Val> {
    let x = b.any(c, |v| !v.tensor.shape.is_empty())?;
    let y = b.any(c, |v| {
        v.tensor.dtype == x.tensor.dtype && v.tensor.shape.len() == x.tensor.shape.len()
    })?;
    let at = b.int(c.below(x.tensor.shape.len()) as i64)?;
    b.push(concat::Concat, &[&at, &x, &y], false)
}

pub(super) fn broadcast(b: &mut Builder, c: &mut Choices<'_>) -> Option<Val> {
    let x = b.any(c, |_| true)?;
    let widen = |d: &usize| {
        if *d == 1 {
            1 + c.below(3) as i64
        } else {
            *d as i64
        }
    };
    let shape: Vec<i64> = x.tensor.shape.iter().map(widen).collect();
    let shape = b.ints(DType::U32, &[&[2][..], &shape].concat())?;
    b.push(broadcast_to::BroadcastTo, &[&x, &shape], false)
}

pub(super) fn reduce(b: &mut Builder, c: &mut Choices<'_>) -> Option<Val> {
    let x = b.exact(c, number)?;
    let rank = x.tensor.shape.len();
    let axes: Vec<i64> = (0..rank as i64).filter(|_| c.below(2) == 0).collect();
    let axes = b.ints(DType::I32, &axes)?;
    let ops: [Op; 5] = [
        reduce_sum::ReduceSum.into(),
        reduce_max::ReduceMax.into(),
        reduce_min::ReduceMin.into(),
        reduce_product::ReduceProduct.into(),
        reduce_mean::ReduceMean.into(),
    ];
    let at = c.below(if float(x.tensor.dtype) { 5 } else { 4 });
    b.push(ops[at].clone(), &[&x, &axes], at >= 3)
}

/// Operations along an axis that put elements in order or run over them.
pub(super) fn order(b: &mut Builder, c: &mut Choices<'_>) -> Option<Val> {
    let x = b.exact(c, |d| number(d) && d != DType::BF16)?;
    let rank = x.tensor.shape.len();
    let at = b.int(c.below(rank.max(1)) as i64)?;
    match c.below(4) {
        0 => {
            let (down, stable) = (b.flag(c.coin())?, b.flag(true)?);
            b.push(sort::Sort, &[&x, &at, &down, &stable], false)
        }
        1 => {
            let (down, stable) = (b.flag(c.coin())?, b.flag(true)?);
            b.push(argsort::Argsort, &[&x, &at, &down, &stable], false)
        }
        2 if float(x.tensor.dtype) => b.push(softmax::Softmax, &[&x, &at], true),
        _ => {
            let back = b.flag(c.coin())?;
            b.push(scan::Scan::default(), &[&x, &at, &back], false)
        }
    }
}

pub(super) fn gather(b: &mut Builder, c: &mut Choices<'_>) -> Option<Val> {
    let x = b.any(c, |v| !v.tensor.is_empty() && !v.tensor.shape.is_empty())?;
    let first = x.tensor.shape[0];
    let rows: Vec<i64> = (0..1 + c.below(4))
        .map(|_| c.below(2 * first) as i64 - first as i64)
        .collect();
    let rows = Tensor::from_ints(DType::I32, &[rows.len(), 1], &rows).ok()?;
    let rows = b.constant(rows)?;
    let part = b.push(gather_nd::GatherNd, &[&x, &rows], false)?;
    match c.coin() {
        true => b.push(scatter_nd::ScatterNd, &[&x, &rows, &part], false),
        false => Some(part),
    }
}

pub(super) fn matmul(b: &mut Builder, c: &mut Choices<'_>) -> Option<Val> {
    let x = b.exact(c, |d| number(d) && d.size() == Some(4))?;
    let y = b.exact(c, |d| d == x.tensor.dtype)?;
    b.push(
        broadcasting_batch_matmul::BroadcastingBatchMatmul,
        &[&x, &y],
        float(x.tensor.dtype),
    )
}

pub(super) fn choose(b: &mut Builder, c: &mut Choices<'_>) -> Option<Val> {
    let condition = b.exact(c, |d| d == DType::Bool)?;
    let x = b.any(c, |_| true)?;
    let y = b.any(c, |v| v.tensor.dtype == x.tensor.dtype)?;
    b.push(
        broadcasting_where::BroadcastingWhere,
        &[&condition, &x, &y],
        false,
    )
}

/// Truth values and bits.
pub(super) fn logic(b: &mut Builder, c: &mut Choices<'_>) -> Option<Val> {
    let x = b.exact(c, |d| d == DType::Bool || d.is_int())?;
    let y = b.exact(c, |d| d == x.tensor.dtype)?;
    if x.tensor.dtype != DType::Bool {
        let ops: [Op; 3] = [
            broadcasting_bitwise_and::BroadcastingBitwiseAnd.into(),
            broadcasting_bitwise_or::BroadcastingBitwiseOr.into(),
            broadcasting_bitwise_xor::BroadcastingBitwiseXor.into(),
        ];
        return b.push(ops[c.below(3)].clone(), &[&x, &y], false);
    }
    let axes: Vec<i64> = (0..x.tensor.shape.len() as i64)
        .filter(|_| c.coin())
        .collect();
    match c.below(5) {
        0 => b.push(broadcasting_and::BroadcastingAnd, &[&x, &y], false),
        1 => b.push(broadcasting_xor::BroadcastingXor, &[&x, &y], false),
        2 => b.push(not::Not, &[&x], false),
        3 => {
            let axes = b.ints(DType::I32, &axes)?;
            b.push(any::Any, &[&x, &axes], false)
        }
        _ => {
            let axes = b.ints(DType::I32, &axes)?;
            b.push(all::All, &[&x, &axes], false)
        }
    }
}

/// The same elements in other places, or more of them.
pub(super) fn rearrange(b: &mut Builder, c: &mut Choices<'_>) -> Option<Val> {
    let x = b.any(c, |v| !v.tensor.shape.is_empty())?;
    let rank = x.tensor.shape.len();
    match c.below(3) {
        0 => {
            let axes: Vec<i64> = (0..rank as i64).filter(|_| c.coin()).collect();
            let axes = b.ints(DType::I32, &axes)?;
            b.push(reverse::Reverse, &[&x, &axes], false)
        }
        1 => {
            let counts: Vec<i64> = (0..rank).map(|_| 1 + c.below(2) as i64).collect();
            let counts = b.ints(DType::I32, &counts)?;
            b.push(tile::Tile, &[&x, &counts], false)
        }
        _ => {
            let amounts: Vec<i64> = (0..2 * rank).map(|_| c.below(3) as i64).collect();
            let amounts = b.ints(DType::I32, &amounts)?;
            let value = b.constant(filled(x.tensor.dtype, &[], &[1.0]).ok()?)?;
            let modes = [pad::PaddingMode::Constant, pad::PaddingMode::Replicate];
            let mode = modes[c.below(2)];
            b.push(pad::Pad { mode }, &[&x, &amounts, &value], false)
        }
    }
}

/// Parts of a tensor along an axis, and the place of the largest element.
pub(super) fn split(b: &mut Builder, c: &mut Choices<'_>) -> Option<Val> {
    let x = b.exact(c, number)?;
    let at = c.below(x.tensor.shape.len());
    let extent = x.tensor.shape.get(at).copied()?;
    let axis = b.int(at as i64)?;
    if c.coin() {
        return b.push(argmax::Argmax, &[&x, &axis], false);
    }
    let first = (1 + c.below(extent)).min(extent);
    let mut sizes = vec![first as i64];
    sizes.extend((first < extent).then(|| (extent - first) as i64));
    let sizes = b.ints(DType::I32, &sizes)?;
    b.push(split::Split, &[&x, &sizes, &axis], false)
}

/// A convolution or a pooling of something that looks like a picture.
pub(super) fn convolve(b: &mut Builder, c: &mut Choices<'_>) -> Option<Val> {
    let fits = |v: &Val| {
        v.tensor.shape.len() == 4 && v.tensor.dtype == DType::F32 && !v.rough && b.is_fixed(v)
    };
    let x = b.any(c, fits)?;
    let (channels, made) = (x.tensor.shape[1], 1 + c.below(3));
    let step = b.ints(DType::I32, &[1, 1 + c.below(2) as i64])?;
    let spread = b.ints(DType::I32, &[1, 1])?;
    let window = [1 + c.below(2), 1 + c.below(2)];
    if c.coin() {
        let window = b.ints(DType::I32, &window.map(|w| w as i64))?;
        let up = b.flag(false)?;
        return b.push(
            max_pool_2d::MaxPool2d,
            &[&x, &window, &step, &spread, &up],
            false,
        );
    }
    let shape = [made, channels, window[0], window[1]];
    let values: Vec<f64> = (0..shape.iter().product())
        .map(|_| c.below(9) as f64 / 4.0 - 1.0)
        .collect();
    let weight = b.constant(filled(DType::F32, &shape, &values).ok()?)?;
    let groups = b.int(1)?;
    b.push(
        conv2d::Conv2d,
        &[&x, &weight, &step, &spread, &groups],
        true,
    )
}
