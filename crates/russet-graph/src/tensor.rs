//! Tensors of the reference: dense, row-major, packed as the file packs them, read one scalar at a time.
//!
//! Nothing here is fast. The reference of an operation reads elements with [`Tensor::get`], computes in the widest
//! arithmetic, and writes with [`TensorMut::set`], which rounds once to the element kind.

use half::{bf16, f16};
use russet_kernels::mem::SharedBytes;

use crate::error::OpError;
use crate::graph::{ConstantData, Storage};
use crate::minifloat;
use crate::types::{Class, DType, TensorType};

/// One element in the widest arithmetic of its class.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar {
    /// A float.
    Float(f64),
    /// A signed or unsigned integer.
    Int(i128),
    /// A truth value.
    Bool(bool),
    /// A complex number: real and imaginary part.
    Complex(f64, f64),
}

impl Scalar {
    /// As a float; a complex number gives its real part.
    pub fn float(self) -> f64 {
        match self {
            Self::Float(v) | Self::Complex(v, _) => v,
            Self::Int(v) => v as f64,
            Self::Bool(v) => f64::from(u8::from(v)),
        }
    }

    /// As an integer; floats truncate, out-of-range values saturate, NaN gives 0.
    pub fn int(self) -> i128 {
        match self {
            Self::Float(v) | Self::Complex(v, _) => v as i128,
            Self::Int(v) => v,
            Self::Bool(v) => i128::from(v),
        }
    }

    /// As a truth value: not zero.
    pub fn bool(self) -> bool {
        match self {
            Self::Float(v) => v != 0.0,
            Self::Int(v) => v != 0,
            Self::Bool(v) => v,
            Self::Complex(re, im) => re != 0.0 || im != 0.0,
        }
    }
}

/// A tensor with a value. Cloning shares the bytes.
#[derive(Clone, Debug)]
pub struct Tensor {
    /// Element kind.
    pub dtype: DType,
    /// Extents, outermost first.
    pub shape: Vec<usize>,
    data: SharedBytes,
}

impl PartialEq for Tensor {
    fn eq(&self, other: &Self) -> bool {
        self.dtype == other.dtype && self.shape == other.shape && self.data[..] == other.data[..]
    }
}

/// A tensor that is being written.
#[derive(Clone, Debug)]
pub struct TensorMut {
    /// Element kind.
    pub dtype: DType,
    /// Extents, outermost first.
    pub shape: Vec<usize>,
    data: Vec<u8>,
}

/// Number of elements; an error where it does not fit in memory.
pub fn element_count(shape: &[usize]) -> Result<usize, OpError> {
    shape
        .iter()
        .try_fold(1usize, |n, &d| n.checked_mul(d))
        .filter(|&n| n <= isize::MAX as usize / 16)
        .ok_or_else(|| OpError::TooLarge {
            shape: shape.to_vec(),
        })
}

/// Row-major strides in elements.
pub fn strides(shape: &[usize]) -> Vec<usize> {
    let mut out = vec![1; shape.len()];
    for i in (1..shape.len()).rev() {
        out[i - 1] = out[i] * shape[i];
    }
    out
}

impl Tensor {
    /// A tensor over existing packed bytes.
    pub fn new(dtype: DType, shape: Vec<usize>, data: SharedBytes) -> Result<Self, OpError> {
        let need = dtype.packed_len(element_count(&shape)?);
        if need != Some(data.len()) {
            return Err(OpError::Bytes {
                dtype,
                shape,
                bytes: data.len(),
            });
        }
        Ok(Self { dtype, shape, data })
    }

    /// A tensor of these scalars.
    pub fn from_scalars(dtype: DType, shape: &[usize], values: &[Scalar]) -> Result<Self, OpError> {
        let mut out = TensorMut::zeros(dtype, shape)?;
        if out.len() != values.len() {
            return Err(OpError::Bytes {
                dtype,
                shape: shape.to_vec(),
                bytes: values.len(),
            });
        }
        values.iter().enumerate().for_each(|(i, &v)| out.set(i, v));
        Ok(out.finish())
    }

    /// A tensor of these floats, rounded to `dtype`.
    pub fn from_floats(dtype: DType, shape: &[usize], values: &[f64]) -> Result<Self, OpError> {
        let values: Vec<Scalar> = values.iter().map(|&v| Scalar::Float(v)).collect();
        Self::from_scalars(dtype, shape, &values)
    }

    /// A tensor of these integers, wrapped to `dtype`.
    pub fn from_ints(dtype: DType, shape: &[usize], values: &[i64]) -> Result<Self, OpError> {
        let values: Vec<Scalar> = values.iter().map(|&v| Scalar::Int(v.into())).collect();
        Self::from_scalars(dtype, shape, &values)
    }

    /// The value of a constant, with splats and blocks spelled out.
    pub fn from_constant(c: &ConstantData) -> Result<Self, OpError> {
        let shape =
            c.ty.fixed_shape()
                .ok_or(OpError::Unknown("the shape of a constant"))?;
        match &c.storage {
            Storage::Dense(bytes) => Self::new(c.ty.dtype, shape, bytes.clone()),
            Storage::Splat(bytes) => {
                let one = Self::new(c.ty.dtype, vec![1], bytes.clone())?.get(0);
                let mut out = TensorMut::zeros(c.ty.dtype, &shape)?;
                (0..out.len()).for_each(|i| out.set(i, one));
                Ok(out.finish())
            }
            Storage::Blocks(format, bytes) => {
                let row = shape.last().copied().unwrap_or(1);
                let mut out = TensorMut::zeros(c.ty.dtype, &shape)?;
                let mut line = vec![0f32; row];
                let stride = format
                    .row_bytes(row)
                    .ok_or(OpError::Unknown("the row length of a block constant"))?;
                for r in 0..out.len().checked_div(row).unwrap_or(0) {
                    let bytes = bytes
                        .get(r * stride..(r + 1) * stride)
                        .ok_or(OpError::Unknown("a row of blocks"))?;
                    format.dequantize(bytes, &mut line);
                    line.iter()
                        .enumerate()
                        .for_each(|(i, &v)| out.set(r * row + i, Scalar::Float(v.into())));
                }
                Ok(out.finish())
            }
        }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The packed bytes.
    pub fn bytes(&self) -> &SharedBytes {
        &self.data
    }

    /// The type.
    pub fn ty(&self) -> TensorType {
        TensorType::fixed(self.dtype, &self.shape)
    }

    /// Element `i` in row-major order. `i` is below [`Tensor::len`].
    pub fn get(&self, i: usize) -> Scalar {
        read(self.dtype, &self.data, i)
    }

    /// All elements.
    pub fn scalars(&self) -> impl Iterator<Item = Scalar> + '_ {
        (0..self.len()).map(|i| self.get(i))
    }

    /// All elements as floats.
    pub fn floats(&self) -> Vec<f64> {
        self.scalars().map(Scalar::float).collect()
    }

    /// All elements as integers.
    pub fn ints(&self) -> Vec<i64> {
        self.scalars().map(|s| s.int() as i64).collect()
    }

    /// The same elements under another shape of equal size.
    pub fn reshaped(&self, shape: &[usize]) -> Result<Self, OpError> {
        if element_count(shape)? != self.len() {
            return Err(OpError::shapes(
                "reshape keeps the number of elements",
                &[&self.shape, shape],
            ));
        }
        Ok(Self {
            dtype: self.dtype,
            shape: shape.to_vec(),
            data: self.data.clone(),
        })
    }
}

impl TensorMut {
    /// A tensor of zeros.
    pub fn zeros(dtype: DType, shape: &[usize]) -> Result<Self, OpError> {
        let too_large = || OpError::TooLarge {
            shape: shape.to_vec(),
        };
        let bytes = dtype
            .packed_len(element_count(shape)?)
            .ok_or_else(too_large)?;
        let mut data = Vec::new();
        data.try_reserve_exact(bytes).map_err(|_| too_large())?;
        data.resize(bytes, 0);
        Ok(Self {
            dtype,
            shape: shape.to_vec(),
            data,
        })
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads back element `i`.
    pub fn get(&self, i: usize) -> Scalar {
        read(self.dtype, &self.data, i)
    }

    /// Writes element `i`, rounding floats to nearest even and wrapping integers.
    pub fn set(&mut self, i: usize, value: Scalar) {
        write(self.dtype, &mut self.data, i, value);
    }

    /// The finished tensor.
    pub fn finish(self) -> Tensor {
        Tensor {
            dtype: self.dtype,
            shape: self.shape,
            data: SharedBytes::from_vec(self.data),
        }
    }
}

/// A float rounded to what an element of `dtype` can hold.
pub fn round_to(dtype: DType, value: f64) -> f64 {
    let mut bytes = [0; 8];
    write(dtype, &mut bytes, 0, Scalar::Float(value));
    read(dtype, &bytes, 0).float()
}

fn le<const N: usize>(data: &[u8], i: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&data[i * N..(i + 1) * N]);
    out
}

fn packed_bits(data: &[u8], i: usize, bits: usize) -> u64 {
    (0..bits).fold(0, |v, b| {
        let at = i * bits + b;
        v | u64::from(data[at / 8] >> (at % 8) & 1) << b
    })
}

fn read(dtype: DType, data: &[u8], i: usize) -> Scalar {
    match dtype {
        DType::F64 => Scalar::Float(f64::from_le_bytes(le(data, i))),
        DType::F32 => Scalar::Float(f32::from_le_bytes(le(data, i)).into()),
        DType::F16 => Scalar::Float(f16::from_le_bytes(le(data, i)).into()),
        DType::BF16 => Scalar::Float(bf16::from_le_bytes(le(data, i)).into()),
        DType::C32 => {
            let part = |k| f32::from_le_bytes(le(data, 2 * i + k)).into();
            Scalar::Complex(part(0), part(1))
        }
        DType::C16 => {
            let part = |k| f16::from_le_bytes(le(data, 2 * i + k)).into();
            Scalar::Complex(part(0), part(1))
        }
        DType::Bool => Scalar::Bool(data[i] != 0),
        d if d.is_float() => {
            Scalar::Float(minifloat::decode(d, packed_bits(data, i, d.bits()) as u8))
        }
        d => {
            let raw = packed_bits(data, i, d.bits());
            let shift = 64 - d.bits();
            Scalar::Int(match d.class() {
                Class::Signed => i128::from((raw << shift).cast_signed() >> shift),
                _ => i128::from(raw),
            })
        }
    }
}

fn write(dtype: DType, data: &mut [u8], i: usize, value: Scalar) {
    fn put<const N: usize>(data: &mut [u8], i: usize, bytes: [u8; N]) {
        data[i * N..(i + 1) * N].copy_from_slice(&bytes);
    }
    match dtype {
        DType::F64 => put(data, i, value.float().to_le_bytes()),
        DType::F32 => put(data, i, (value.float() as f32).to_le_bytes()),
        DType::F16 => put(data, i, f16::from_f64(value.float()).to_le_bytes()),
        DType::BF16 => put(data, i, bf16::from_f64(value.float()).to_le_bytes()),
        DType::C32 | DType::C16 => {
            let (re, im) = if let Scalar::Complex(re, im) = value {
                (re, im)
            } else {
                (value.float(), 0.0)
            };
            for (k, part) in [re, im].into_iter().enumerate() {
                match dtype {
                    DType::C32 => put(data, 2 * i + k, (part as f32).to_le_bytes()),
                    _ => put(data, 2 * i + k, f16::from_f64(part).to_le_bytes()),
                }
            }
        }
        DType::Bool => data[i] = u8::from(value.bool()),
        d if d.is_float() => pack(
            data,
            i,
            d.bits(),
            minifloat::encode(d, value.float()).into(),
        ),
        d => pack(data, i, d.bits(), value.int() as u64),
    }
}

fn pack(data: &mut [u8], i: usize, bits: usize, raw: u64) {
    for b in 0..bits {
        let at = i * bits + b;
        let bit = 1u8 << (at % 8);
        if raw >> b & 1 == 1 {
            data[at / 8] |= bit;
        } else {
            data[at / 8] &= !bit;
        }
    }
}
