//! Views: concrete shape and strides over bytes, on the stack, with readers and writers for rows.

use half::{bf16, f16};
use russet_kernels::convert::convert;
use russet_kernels::mem::{cast_slice, cast_slice_mut};

use crate::types::DType;

/// Views have at most this many axes.
pub const MAX_RANK: usize = 8;

/// Shape and strides of a view, in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    pub(crate) rank: usize,
    pub(crate) shape: [usize; MAX_RANK],
    pub(crate) strides: [usize; MAX_RANK],
    pub(crate) offset: usize,
}

impl Geometry {
    pub(crate) fn shape(&self) -> &[usize] {
        &self.shape[..self.rank]
    }

    pub(crate) fn strides(&self) -> &[usize] {
        &self.strides[..self.rank]
    }

    pub(crate) fn len(&self) -> usize {
        self.shape().iter().product()
    }

    /// One past the last element that is touched, relative to the storage.
    pub(crate) fn end(&self) -> Option<usize> {
        if self.len() == 0 {
            return Some(0);
        }
        self.shape()
            .iter()
            .zip(self.strides())
            .try_fold(self.offset, |at, (&d, &s)| {
                at.checked_add((d - 1).checked_mul(s)?)
            })?
            .checked_add(1)
    }

    pub(crate) fn is_contiguous(&self) -> bool {
        let mut expected = 1;
        self.shape()
            .iter()
            .zip(self.strides())
            .rev()
            .all(|(&d, &s)| {
                let fits = d == 1 || s == expected;
                expected *= d;
                fits
            })
    }

    /// The last axis as (extent, stride), and the number of rows before it.
    pub(crate) fn rows(&self) -> (usize, usize, usize) {
        match self.rank {
            0 => (1, 0, 1),
            r => (
                self.shape[r - 1],
                self.strides[r - 1],
                self.shape[..r - 1].iter().product(),
            ),
        }
    }

    /// The offset of row `row` (all axes but the last, row-major).
    pub(crate) fn row_offset(&self, mut row: usize) -> usize {
        let mut at = self.offset;
        for i in (0..self.rank.saturating_sub(1)).rev() {
            at += row % self.shape[i] * self.strides[i];
            row /= self.shape[i];
        }
        at
    }

    /// The offset of element `index` in row-major order.
    pub(crate) fn element_offset(&self, index: usize) -> usize {
        let (n, stride, _) = self.rows();
        self.row_offset(index / n.max(1)) + index % n.max(1) * stride
    }
}

/// A tensor that a step reads.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    pub(crate) dtype: DType,
    pub(crate) geometry: Geometry,
    pub(crate) data: &'a [u8],
}

/// Reads elements `at`, `at + stride` … as f32.
macro_rules! gather {
    ($t:ty, $data:expr, $at:expr, $stride:expr, $out:expr, $convert:expr) => {{
        let data: &[$t] = typed($data);
        for (i, o) in $out.iter_mut().enumerate() {
            *o = $convert(data[$at + i * $stride]);
        }
    }};
}

/// The bytes as elements; storage is aligned for every kind, an unaligned constant gives nothing.
pub(crate) fn typed<T: russet_kernels::mem::Pod>(data: &[u8]) -> &[T] {
    let size = size_of::<T>();
    cast_slice(&data[..data.len() / size * size]).unwrap_or(&[])
}

pub(crate) fn typed_mut<T: russet_kernels::mem::Pod>(data: &mut [u8]) -> &mut [T] {
    let len = data.len() / size_of::<T>() * size_of::<T>();
    cast_slice_mut(&mut data[..len]).unwrap_or(&mut [])
}

impl<'a> View<'a> {
    /// Element kind.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Extents.
    pub fn shape(&self) -> &[usize] {
        self.geometry.shape()
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.geometry.len()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes, where the elements lie row-major without gaps.
    pub fn contiguous(&self) -> Option<&'a [u8]> {
        let size = self.dtype.size()?;
        if !self.geometry.is_contiguous() {
            return None;
        }
        self.data
            .get(self.geometry.offset * size..(self.geometry.offset + self.len()) * size)
    }

    /// The bytes of row `row` (all axes but the last counted together), where its elements lie side by side; `None` too where
    /// there is no such row.
    pub fn row_bytes(&self, row: usize) -> Option<&'a [u8]> {
        let (n, stride, rows) = self.geometry.rows();
        if row >= rows || (stride != 1 && n > 1) {
            return None;
        }
        let (size, at) = (self.dtype.size()?, self.geometry.row_offset(row));
        self.data.get(at * size..(at + n) * size)
    }

    /// `out.len()` elements from element offset `at` with a stride, as f32.
    pub(crate) fn load(&self, at: usize, stride: usize, out: &mut [f32]) {
        let n = out.len();
        match (self.dtype, stride) {
            (DType::F32, 1) => out.copy_from_slice(&typed::<f32>(self.data)[at..at + n]),
            (DType::F16, 1) if n > 1 => convert(&typed::<f16>(self.data)[at..at + n], out),
            (DType::BF16, 1) if n > 1 => convert(&typed::<bf16>(self.data)[at..at + n], out),
            (_, 0) if n > 0 => {
                let mut one = [0f32];
                self.load(at, 1, &mut one);
                out.fill(one[0]);
            }
            (DType::F32, _) => gather!(f32, self.data, at, stride, out, |x| x),
            (DType::F16, _) => gather!(f16, self.data, at, stride, out, f16::to_f32),
            (DType::BF16, _) => gather!(bf16, self.data, at, stride, out, bf16::to_f32),
            _ => {
                for (i, o) in out.iter_mut().enumerate() {
                    *o = self.int(at + i * stride) as f32;
                }
            }
        }
    }

    /// Row `row` of a float view (all axes but the last counted together) as f32. `out` has the last extent's length.
    ///
    /// # Panics
    /// If there is no such row or `out` has another length.
    pub fn read_row(&self, row: usize, out: &mut [f32]) {
        let (n, _, rows) = self.geometry.rows();
        assert!(
            row < rows && out.len() == n,
            "row {row} of {rows}, {} of {n} elements",
            out.len()
        );
        self.load_row(row, out);
    }

    /// Row `row` (last axis) as f32.
    pub(crate) fn load_row(&self, row: usize, out: &mut [f32]) {
        self.load(self.geometry.row_offset(row), self.geometry.rows().1, out);
    }

    /// The integer (or bool) at element offset `at`; 0 for floats.
    pub(crate) fn int(&self, at: usize) -> i64 {
        match self.dtype {
            DType::I64 => typed::<i64>(self.data)[at],
            DType::U64 => typed::<u64>(self.data)[at].cast_signed(),
            DType::I32 => typed::<i32>(self.data)[at].into(),
            DType::U32 => typed::<u32>(self.data)[at].into(),
            DType::I16 => typed::<i16>(self.data)[at].into(),
            DType::U16 => typed::<u16>(self.data)[at].into(),
            DType::I8 => typed::<i8>(self.data)[at].into(),
            DType::U8 | DType::Bool => self.data[at].into(),
            _ => 0,
        }
    }

    /// Integer number `index` in row-major order.
    pub(crate) fn int_at(&self, index: usize) -> i64 {
        self.int(self.geometry.element_offset(index))
    }
}

/// Rounds and stores f32 values as consecutive elements of `dtype` at `out`.
pub(crate) fn store(dtype: DType, values: &[f32], out: &mut [u8]) {
    match dtype {
        DType::F16 => convert(values, typed_mut::<f16>(out)),
        DType::BF16 => convert(values, typed_mut::<bf16>(out)),
        DType::F32 => typed_mut::<f32>(out).copy_from_slice(values),
        _ => {
            let size = dtype.size().unwrap_or(1);
            for (v, o) in values.iter().zip(out.chunks_exact_mut(size)) {
                store_int(dtype, *v as i64, o);
            }
        }
    }
}

/// Stores one integer (wrapped) or bool into the bytes of one element.
pub(crate) fn store_int(dtype: DType, value: i64, out: &mut [u8]) {
    match dtype {
        DType::Bool => out[0] = u8::from(value != 0),
        DType::F32 => out.copy_from_slice(&(value as f32).to_le_bytes()),
        DType::F16 => out.copy_from_slice(&f16::from_f64(value as f64).to_le_bytes()),
        DType::BF16 => out.copy_from_slice(&bf16::from_f64(value as f64).to_le_bytes()),
        _ => {
            let n = out.len();
            out.copy_from_slice(&value.to_le_bytes()[..n]);
        }
    }
}
