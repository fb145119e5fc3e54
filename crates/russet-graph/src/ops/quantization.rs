//! What quantisation shares: parameters that are one number or one a channel, and their axis.

use crate::error::OpError;
use crate::ops::shape::axis;
use crate::ops::{Case, Fact, Operands};
use crate::tensor::{Tensor, strides};
use crate::types::{Class, DType, Dim, TensorType};

/// Which channel an element belongs to.
#[derive(Clone, Copy, Debug)]
pub struct Channels {
    stride: usize,
    count: usize,
}

impl Channels {
    /// Channels along the axis in operand `axis_operand`; one channel where that lists several axes.
    pub fn new(x: &Tensor, axis_operand: &Tensor) -> Result<Self, OpError> {
        match axis_operand.ints()[..] {
            [a] => {
                let at = axis(a, x.shape.len())?;
                Ok(Self {
                    stride: strides(&x.shape)[at],
                    count: x.shape[at],
                })
            }
            _ => Ok(Self {
                stride: 1,
                count: 1,
            }),
        }
    }

    /// How many there are.
    pub fn count(self) -> usize {
        self.count
    }

    /// The channel of element `i`.
    pub fn of(self, i: usize) -> usize {
        i / self.stride % self.count.max(1)
    }

    /// The parameter of element `i`: the only one, or that of its channel. A list that is too short goes on with zeros, as in
    /// the reference runtime.
    pub fn pick(self, parameter: &Tensor, i: usize) -> f64 {
        let at = if parameter.shape.is_empty() {
            0
        } else {
            self.of(i)
        };
        if at < parameter.len() {
            parameter.get(at).float()
        } else {
            0.0
        }
    }
}

/// The operand's shape with the element kind of operand `kind`.
pub fn infer(operands: Operands<'_>, kind: usize) -> Result<Vec<Fact>, OpError> {
    let dtype = operands.tensor(kind)?.dtype;
    Ok(vec![
        TensorType::new(dtype, operands.tensor(0)?.shape.iter().cloned()).into(),
    ])
}

/// The largest and smallest number of a kind.
pub fn limits(dtype: DType) -> (f64, f64) {
    let (bits, largest) = (dtype.bits() as i32, |v: f64| (-v, v));
    match (dtype.class(), dtype) {
        (Class::Signed, _) => (-2f64.powi(bits - 1), 2f64.powi(bits - 1) - 1.0),
        (Class::Unsigned, _) => (0.0, 2f64.powi(bits) - 1.0),
        (_, DType::F8E4M3) => largest(448.0),
        (_, DType::F8E5M2) => largest(57344.0),
        (_, DType::F4E2M1) => largest(6.0),
        (_, DType::F16) => largest(65504.0),
        _ => largest(f64::INFINITY),
    }
}

/// One entry a channel, of kind `dtype`.
pub fn per_channel(operands: Operands<'_>, dtype: DType) -> Result<TensorType, OpError> {
    let t = operands.tensor(0)?;
    let extent = match operands.int(2) {
        Some(a) => t.shape[axis(a, t.rank())?].clone(),
        None => Dim::Unknown,
    };
    Ok(TensorType::new(dtype, [extent]))
}

/// Smallest and largest element of every channel, NaN where it has one.
pub fn extremes(x: &Tensor, channels: Channels) -> Vec<(f64, f64)> {
    let mut out = vec![(f64::INFINITY, f64::NEG_INFINITY); channels.count()];
    for i in 0..x.len() {
        let (v, range) = (x.get(i).float(), &mut out[channels.of(i)]);
        let keep = |best: f64, beaten: bool| if beaten || v.is_nan() { v } else { best };
        *range = (keep(range.0, v < range.0), keep(range.1, v > range.1));
    }
    out
}

/// The two ends of the range in operand 1, in order.
pub fn ends(range: &Tensor) -> Result<(f64, f64), OpError> {
    match range.floats()[..] {
        [low, high] if low < high => Ok((low, high)),
        _ => Err(OpError::shapes(
            "a range has two ends in order",
            &[&range.shape],
        )),
    }
}

/// Examples of an operation with operands: tensor, scale, offset of kind `quantized`, offset of a float kind, axis.
pub fn cases<O: Copy>(op: O, quantize: bool) -> Vec<Case<O>> {
    let values = [0.1, -0.4, 0.375, 12.0, 100.0, -100.0];
    let case = |float: DType, code: DType, channels: bool| {
        let shape: &[usize] = if channels { &[2] } else { &[] };
        let n = if channels { 2 } else { 1 };
        let wide = |v: [f64; 2]| Tensor::from_floats(float, shape, &v[..n]);
        let axes: &[i64] = if channels { &[0] } else { &[0, 1] };
        let axis = Tensor::from_ints(DType::I32, if channels { &[] } else { &[2] }, axes);
        let inputs = vec![
            Tensor::from_floats(if quantize { float } else { code }, &[2, 3], &values).ok()?,
            wide([0.25, 0.5]).ok()?,
            Tensor::from_floats(code, shape, &[3.0, 1.0][..n]).ok()?,
            wide([0.0, 0.1]).ok()?,
            axis.ok()?,
        ];
        Some(Case { op, inputs })
    };
    let (wide, half) = (DType::F32, DType::F16);
    [
        case(wide, DType::I8, true),
        case(half, DType::U8, false),
        case(wide, DType::I4, true),
        case(wide, DType::F8E4M3, false),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Examples of an operation with operands: tensor, range of kind `code`, axis.
pub fn statistics_cases<O: Copy>(op: O, kinds: &[(DType, DType)]) -> Vec<Case<O>> {
    let values = [-100.0, -1000.0, 1.5, 100.0, 1000.0, 10.5];
    let case = |&(dtype, code): &(DType, DType), at| {
        let inputs = vec![
            Tensor::from_floats(dtype, &[2, 3], &values).ok()?,
            Tensor::from_floats(code, &[2], &[-8.0, 7.0]).ok()?,
            Tensor::from_ints(DType::I32, &[], &[at]).ok()?,
        ];
        Some(Case { op, inputs })
    };
    kinds
        .iter()
        .flat_map(|k| [case(k, 1), case(k, -2)])
        .flatten()
        .collect()
}
