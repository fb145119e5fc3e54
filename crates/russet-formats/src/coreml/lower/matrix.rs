//! Products: `matmul`, `linear`, and convolutions, of which those of one tap are products too.

use russet_graph::attr::Attr;
use russet_graph::graph::ValueId;

use super::Lowering;
use super::operands::{missing, wrong};
use crate::coreml::error::{Outcome, Problem};
use crate::coreml::program::Operation;

/// The most taps of a convolution without sums over channels that are written out one by one.
const TAPS: usize = 16;

impl Lowering<'_> {
    fn product(&mut self, x: ValueId, y: ValueId) -> Outcome<ValueId> {
        self.op("broadcasting_batch_matmul", &[x, y])
    }

    /// `x · wᵀ`.
    fn product_with(&mut self, x: ValueId, weight: ValueId) -> Outcome<ValueId> {
        let turned = self.permuted(weight, &[1, 0])?;
        self.product(x, turned)
    }

    /// The last two axes exchanged.
    fn turned(&mut self, x: ValueId) -> Outcome<ValueId> {
        let rank = self.rank_of(x)?;
        let Some(lead) = rank.checked_sub(2) else {
            return Ok(x);
        };
        let order: Vec<usize> = (0..lead).chain([lead + 1, lead]).collect();
        self.permuted(x, &order)
    }

    /// The bias of an operation; `None` where it adds nothing.
    fn bias(&mut self, op: &Operation) -> Outcome<Option<ValueId>> {
        match self.held(op, "bias")? {
            Some(held) if held.is_zero() => Ok(None),
            _ => self.optional(op, "bias"),
        }
    }

    fn plus(&mut self, x: ValueId, bias: Option<ValueId>) -> Outcome<ValueId> {
        match bias {
            Some(bias) => self.op("broadcasting_add", &[x, bias]),
            None => Ok(x),
        }
    }

    /// Adds zeros before and after the axes behind batch and channel.
    fn padded(&mut self, x: ValueId, amounts: &[(i64, i64)]) -> Outcome<ValueId> {
        if amounts.iter().all(|a| *a == (0, 0)) {
            return Ok(x);
        }
        let pairs = [(0, 0); 2]
            .iter()
            .chain(amounts)
            .flat_map(|(a, b)| [*a, *b]);
        let amounts = self.vector(&pairs.collect::<Vec<_>>())?;
        let zero = self.filled(self.dtype_of(x)?, 0.0)?;
        self.op_with(
            "pad",
            &[("padding_mode", Attr::str("constant"))],
            &[x, amounts, zero],
        )
    }
}

/// `matmul`: NumPy's rules; operands may be transposed first.
pub(super) fn matmul(l: &mut Lowering<'_>, op: &Operation) -> Outcome<ValueId> {
    let (mut x, mut y) = (l.value(op, "x")?, l.value(op, "y")?);
    let (row, column) = (l.rank_of(x)? == 1, l.rank_of(y)? == 1);
    if row {
        x = l.expanded(x, &[0])?;
    } else if l.flag_or(op, "transpose_x", false)? {
        x = l.turned(x)?;
    }
    if column {
        y = l.expanded(y, &[1])?;
    } else if l.flag_or(op, "transpose_y", false)? {
        y = l.turned(y)?;
    }
    let out = l.product(x, y)?;
    match (row, column) {
        (false, false) => Ok(out),
        (true, true) => l.shrunk(out, &[-2, -1]),
        (true, false) => l.shrunk(out, &[-2]),
        (false, true) => l.shrunk(out, &[-1]),
    }
}

/// `linear`: `x · weightᵀ + bias`.
pub(super) fn linear(l: &mut Lowering<'_>, op: &Operation) -> Outcome<ValueId> {
    let (mut x, weight) = (l.value(op, "x")?, l.value(op, "weight")?);
    let flat = l.rank_of(x)? == 1;
    if flat {
        x = l.expanded(x, &[0])?;
    }
    let mut out = l.product_with(x, weight)?;
    if flat {
        out = l.shrunk(out, &[0])?;
    }
    let bias = l.bias(op)?;
    l.plus(out, bias)
}

/// What a convolution does along the axes behind batch and channel.
struct Window {
    sizes: Vec<usize>,
    strides: Vec<i64>,
    dilations: Vec<i64>,
    padding: Vec<(i64, i64)>,
}

impl Window {
    fn of(l: &Lowering<'_>, op: &Operation, x: ValueId, sizes: &[usize]) -> Outcome<Self> {
        let axes = sizes.len();
        let each = |name: &'static str| -> Outcome<Vec<i64>> {
            let values = l.ints(op, name)?.unwrap_or_else(|| vec![1; axes]);
            let fit = values.len() == axes && values.iter().all(|v| *v > 0);
            if fit {
                Ok(values)
            } else {
                Err(wrong(name, "a positive number for every axis"))
            }
        };
        let (strides, dilations) = (each("strides")?, each("dilations")?);
        let padding = match &*l.text(op, "pad_type")? {
            "" | "valid" => vec![(0, 0); axes],
            "custom" => custom(&l.must_ints(op, "pad")?, axes)?,
            kind @ ("same" | "same_lower") => {
                let shape = l.extents_of(x)?;
                let extents = shape.get(2..).unwrap_or_default().iter();
                let parts = extents.zip(sizes).zip(strides.iter().zip(&dilations));
                parts
                    .map(|((n, k), (s, d))| same((*n, *k), (*s, *d), kind == "same_lower"))
                    .collect()
            }
            _ => return Err(wrong("pad_type", "valid, same, same_lower or custom")),
        };
        Ok(Self {
            sizes: sizes.to_vec(),
            strides,
            dilations,
            padding,
        })
    }

    fn is_one_tap(&self) -> bool {
        let plain = |v: &[i64]| v.iter().all(|n| *n == 1);
        self.sizes.iter().all(|n| *n == 1)
            && plain(&self.strides)
            && self.padding.iter().all(|p| *p == (0, 0))
    }
}

/// Before and after every axis.
fn custom(pad: &[i64], axes: usize) -> Outcome<Vec<(i64, i64)>> {
    let (pairs, rest) = pad.as_chunks::<2>();
    if pairs.len() != axes || !rest.is_empty() || pad.iter().any(|p| *p < 0) {
        return Err(wrong("pad", "two amounts for every axis"));
    }
    Ok(pairs.iter().map(|[a, b]| (*a, *b)).collect())
}

/// Padding that gives one window for every stride; the odd element goes to the end, or to the start.
fn same((n, size): (usize, usize), (stride, dilation): (i64, i64), lower: bool) -> (i64, i64) {
    let (n, size) = (n as i64, size as i64);
    let windows = (n + stride - 1) / stride;
    let reach = (size - 1).saturating_mul(dilation) + 1;
    let total = ((windows - 1) * stride)
        .saturating_add(reach)
        .saturating_sub(n)
        .max(0);
    let (less, more) = (total / 2, total - total / 2);
    if lower { (more, less) } else { (less, more) }
}

/// `conv`.
pub(super) fn conv(l: &mut Lowering<'_>, op: &Operation) -> Outcome<ValueId> {
    let x = l.value(op, "x")?;
    let weight = match l.held(op, "weight")? {
        Some(held) => held.shape().ok_or_else(|| wrong("weight", "a tensor"))?,
        None => {
            let weight = l.value(op, "weight")?;
            l.extents_of(weight)?
        }
    };
    let [_, depth, sizes @ ..] = &weight[..] else {
        return Err(wrong("weight", "of three axes or more"));
    };
    if l.rank_of(x)? != weight.len() {
        return Err(wrong("weight", "of as many axes as x"));
    }
    let groups = l.int_or(op, "groups", 1)?;
    let window = Window::of(l, op, x, sizes)?;
    if groups == 1 && window.is_one_tap() {
        return pointwise(l, op, x, &weight);
    }
    let x = l.padded(x, &window.padding)?;
    let out = match (&weight[..], *depth) {
        ([made, 1, taps], 1)
            if groups == *made as i64 && window.strides == [1] && *taps <= TAPS =>
        {
            by_channel(l, op, x, &window)?
        }
        _ => sliding(l, op, x, &window, groups)?,
    };
    let bias = l.bias(op)?.map(|bias| {
        let shape = std::iter::once(-1).chain(sizes.iter().map(|_| 1));
        l.reshaped(bias, &shape.collect::<Vec<_>>())
    });
    l.plus(out, bias.transpose()?)
}

/// A convolution of one tap: a product along the channels.
fn pointwise(
    l: &mut Lowering<'_>,
    op: &Operation,
    x: ValueId,
    weight: &[usize],
) -> Outcome<ValueId> {
    let rank = weight.len();
    let taps: Vec<usize> = (2..rank).collect();
    let matrix = if l.held(op, "weight")?.is_some() {
        l.optional_without(op, "weight", &taps)?
            .ok_or_else(|| missing("weight"))?
    } else {
        let weight = l.value(op, "weight")?;
        l.shrunk(weight, &taps.iter().map(|&a| a as i64).collect::<Vec<_>>())?
    };
    let last: Vec<usize> = std::iter::once(0).chain(2..rank).chain([1]).collect();
    let x = l.permuted(x, &last)?;
    let out = l.product_with(x, matrix)?;
    let bias = l.bias(op)?;
    let out = l.plus(out, bias)?;
    let back: Vec<usize> = [0, rank - 1].into_iter().chain(1..rank - 1).collect();
    l.permuted(out, &back)
}

/// Every channel by itself along one axis: a sum of `x`, moved by each tap, times that tap's weights.
fn by_channel(
    l: &mut Lowering<'_>,
    op: &Operation,
    x: ValueId,
    window: &Window,
) -> Outcome<ValueId> {
    let weight = l.value(op, "weight")?;
    let ([taps], [dilation]) = (&window.sizes[..], &window.dilations[..]) else {
        return Err(wrong("weight", "of three axes"));
    };
    let extent = *l.extents_of(x)?.last().unwrap_or(&0) as i64;
    let reach = (*taps as i64 - 1).saturating_mul(*dilation);
    if reach >= extent {
        return Err(Problem::Value("a window does not fit into its axis".into()));
    }
    // Channels, then taps: [c, 1, k] as [1, c, k].
    let weight = l.permuted(weight, &[1, 0, 2])?;
    l.wide(x, |l, x| {
        let weight = l.cast(weight, l.dtype_of(x)?)?;
        let mut sum = None;
        for tap in 0..*taps as i64 {
            let moved = l.part(x, tap * dilation, extent - reach)?;
            let by = l.part(weight, tap, 1)?;
            let term = l.op("broadcasting_mul", &[moved, by])?;
            sum = Some(match sum {
                Some(sum) => l.op("broadcasting_add", &[sum, term])?,
                None => term,
            });
        }
        sum.ok_or_else(|| wrong("weight", "of one tap or more"))
    })
}

impl Lowering<'_> {
    /// `count` elements of the last of three axes.
    fn part(&mut self, x: ValueId, first: i64, count: i64) -> Outcome<ValueId> {
        let end = i64::from(i32::MAX);
        let begin = self.vector(&[0, 0, first])?;
        let behind = self.vector(&[end, end, first + count])?;
        let steps = self.vector(&[1; 3])?;
        self.op("slice", &[x, begin, behind, steps])
    }
}

/// Any convolution, by the graph's own; one of a single axis gets another of extent 1.
fn sliding(
    l: &mut Lowering<'_>,
    op: &Operation,
    x: ValueId,
    window: &Window,
    groups: i64,
) -> Outcome<ValueId> {
    let (mut x, mut weight) = (x, l.value(op, "weight")?);
    let (mut strides, mut dilations) = (window.strides.clone(), window.dilations.clone());
    let line = strides.len() == 1;
    if line {
        (x, weight) = (l.expanded(x, &[2])?, l.expanded(weight, &[2])?);
        strides.insert(0, 1);
        dilations.insert(0, 1);
    }
    let name = match strides.len() {
        2 => "conv2d",
        3 => "conv3d",
        _ => return Err(wrong("x", "of three to five axes")),
    };
    let numbers = [
        l.vector(&strides)?,
        l.vector(&dilations)?,
        l.vector(&[groups])?,
    ];
    let [strides, dilations, groups] = numbers;
    let out = l.op(name, &[x, weight, strides, dilations, groups])?;
    if line { l.shrunk(out, &[2]) } else { Ok(out) }
}
