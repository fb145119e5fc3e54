//! Weight matrices that stay compressed: what a product and an embedding read.

use std::borrow::Cow;
use std::sync::Arc;

use half::{bf16, f16};
use russet_kernels::elem::Rounding;
use russet_kernels::isa::Isa;
use russet_kernels::mem::{AlignedBuf, SharedBytes};
use russet_kernels::packed::{self, BlockSource};
use russet_kernels::quant::{
    BlockFormat, BlockRows, Code, DenseRows, Floats, GgufRows, Order, RowFormat, dequantize_row,
};

use super::tables::{Numbers, Parameters, Tables};
use super::{Cx, Kernel, Touched, Work};
use crate::error::OpError;
use crate::exec::view::{store, typed};
use crate::graph::{ConstantData, Storage};
use crate::types::DType;

/// A matrix `[n, k]` in a storage format that products can read.
#[derive(Debug)]
pub(crate) struct Weights {
    n: usize,
    k: usize,
    dtype: DType,
    format: Format,
}

#[derive(Debug)]
enum Format {
    Dense(DType, SharedBytes),
    Codes {
        code: Code,
        block: usize,
        data: SharedBytes,
        scales: Vector,
        zeros: Option<SharedBytes>,
        shifts: Option<Vector>,
    },
    Blocks(BlockFormat, SharedBytes),
    Tables(Box<Tables>),
}

/// Codes that can be read in blocks of rows.
const KINDS: [(DType, Code); 4] = [
    (DType::I4, Code::I4),
    (DType::U4, Code::U4),
    (DType::I8, Code::I8),
    (DType::U8, Code::U8),
];

/// Scales or shifts in their kind.
#[derive(Debug)]
struct Vector(DType, SharedBytes);

impl Vector {
    fn new(c: &ConstantData) -> Option<Self> {
        matches!(c.ty.dtype, DType::F32 | DType::F16 | DType::BF16)
            .then(|| Some(Self(c.ty.dtype, dense(c)?)))?
    }

    fn floats(&self) -> Floats<'_> {
        match self.0 {
            DType::F16 => Floats::F16(typed::<f16>(&self.1)),
            DType::BF16 => Floats::Bf16(typed::<bf16>(&self.1)),
            _ => Floats::F32(typed::<f32>(&self.1)),
        }
    }
}

/// The same bytes at an address that suits any element kind: shared where they already are, copied where not.
pub(crate) fn aligned(bytes: &SharedBytes) -> Result<SharedBytes, OpError> {
    if bytes.as_ptr().addr().is_multiple_of(8) {
        return Ok(bytes.clone());
    }
    let mut copy = AlignedBuf::with_len(bytes.len()).map_err(|_| OpError::TooLarge {
        shape: vec![bytes.len()],
    })?;
    copy.as_bytes_mut().copy_from_slice(bytes);
    Ok(SharedBytes::new(Arc::new(copy)))
}

/// The elements of a dense constant, aligned; a splat is spelled out.
pub(super) fn dense(c: &ConstantData) -> Option<SharedBytes> {
    match &c.storage {
        Storage::Dense(bytes) => aligned(bytes).ok(),
        Storage::Splat(_) => aligned(crate::tensor::Tensor::from_constant(c).ok()?.bytes()).ok(),
        Storage::Blocks(..) => None,
    }
}

/// Whether every element of a constant is zero, told cheaply.
pub(super) fn is_zero(c: &ConstantData) -> bool {
    c.storage.bytes().iter().all(|&b| b == 0)
}

/// What one value is rounded to before it is used.
fn rounding(dtype: DType) -> Rounding {
    match dtype {
        DType::F16 => Rounding::F16,
        DType::BF16 => Rounding::Bf16,
        _ => Rounding::F32,
    }
}

impl Weights {
    /// Rows of blocks.
    pub(crate) fn blocks(c: &ConstantData) -> Result<Self, OpError> {
        let Storage::Blocks(format, bytes) = &c.storage else {
            return Err(OpError::Unknown("a block format"));
        };
        let (n, k) = matrix(c).ok_or(OpError::Unknown("the shape of a constant"))?;
        Ok(Self {
            n,
            k,
            dtype: c.ty.dtype,
            format: Format::Blocks(*format, bytes.clone()),
        })
    }

    /// A dense float matrix, or several, one under the other.
    pub(crate) fn dense(c: &ConstantData) -> Option<Self> {
        let (lead, k) = rows_of(c)?;
        let n = lead.iter().product();
        let float = matches!(c.ty.dtype, DType::F32 | DType::F16 | DType::BF16);
        let Storage::Dense(bytes) = &c.storage else {
            return None;
        };
        float.then(|| {
            Some(Self {
                n,
                k,
                dtype: c.ty.dtype,
                format: Format::Dense(c.ty.dtype, aligned(bytes).ok()?),
            })
        })?
    }

    /// `(data - zero) · scale + shift`: the operands of `blockwise_shift_scale`. Matrices of a stack lie one under the other. `None`
    /// where no kernel reads such blocks.
    pub(crate) fn codes(
        dtype: DType,
        data: &ConstantData,
        parameters: [&ConstantData; 3],
    ) -> Option<Self> {
        Self::blocks_of_rows(dtype, data, parameters)
            .or_else(|| Self::of_tables(dtype, Tables::codes(data)?.scaled(dtype, parameters)?))
    }

    /// The operands of `lut_to_dense`.
    pub(crate) fn palette(indices: &ConstantData, lut: &ConstantData, axis: i64) -> Option<Self> {
        Self::of_tables(lut.ty.dtype, Tables::palette(indices, lut, axis)?)
    }

    /// What `blockwise_shift_scale` makes of a palette.
    pub(crate) fn scaled(&self, dtype: DType, parameters: [&ConstantData; 3]) -> Option<Self> {
        match &self.format {
            Format::Tables(t) => Self::of_tables(dtype, t.scaled(dtype, parameters)?),
            _ => None,
        }
    }

    /// The matrix with rows and columns exchanged; its codes are laid out anew.
    pub(crate) fn turned(&self) -> Option<Self> {
        Self::of_tables(self.dtype, self.tables()?.turned()?)
    }

    /// The columns in `parts` equal parts, one matrix under the other; `None` where they are not known one by one.
    pub(crate) fn columns_apart(&self, parts: usize) -> Option<Self> {
        let of_tables =
            |this: &Self| Self::of_tables(self.dtype, this.tables()?.columns_apart(parts)?);
        let format = match &self.format {
            Format::Dense(dtype, data) => {
                let rows = Numbers::by_rows(*dtype, data.clone(), 1, self.k);
                let rows = rows.apart([self.n, self.k], parts, 1, usize::MAX)?;
                Format::Dense(*dtype, rows.into_rows().0)
            }
            Format::Codes { .. } => match self.codes_apart(parts) {
                Some(format) => format,
                None => return of_tables(self),
            },
            _ => return of_tables(self),
        };
        let this = Self {
            n: self.n.checked_mul(parts)?,
            k: self.k / parts,
            dtype: self.dtype,
            format,
        };
        if this.with(|_| ()).is_none() {
            return of_tables(self);
        }
        Some(this)
    }

    /// See [`Weights::columns_apart`].
    fn codes_apart(&self, parts: usize) -> Option<Format> {
        let Format::Codes {
            code,
            block,
            data,
            scales,
            zeros,
            shifts,
        } = &self.format
        else {
            return None;
        };
        let kind = KINDS.iter().find(|(_, c)| c == code)?.0;
        let apart = |dtype, data: &SharedBytes, block| {
            let rows = Numbers::by_rows(dtype, data.clone(), block, self.k);
            let apart = rows.apart([self.n, self.k], parts, 1, usize::MAX)?;
            Some(apart.into_rows())
        };
        let (scaled, of) = apart(scales.0, &scales.1, *block)?;
        let zeros = match zeros {
            Some(zeros) => Some(apart(kind, zeros, *block)?.0),
            None => None,
        };
        let shifts = match shifts {
            Some(shifts) => Some(Vector(shifts.0, apart(shifts.0, &shifts.1, *block)?.0)),
            None => None,
        };
        Some(Format::Codes {
            code: *code,
            block: of,
            data: apart(kind, data, 1)?.0,
            scales: Vector(scales.0, scaled),
            zeros,
            shifts,
        })
    }

    /// Codes as [`Tables`] have them.
    fn tables(&self) -> Option<Cow<'_, Tables>> {
        match &self.format {
            Format::Tables(t) => Some(Cow::Borrowed(&**t)),
            Format::Codes {
                code,
                block,
                data,
                scales,
                zeros,
                shifts,
            } => {
                let kind = KINDS.iter().find(|(_, c)| c == code)?.0;
                let numbers = |dtype, data: &SharedBytes| {
                    Numbers::by_rows(dtype, data.clone(), *block, self.k)
                };
                let scaling = Parameters {
                    scale: numbers(scales.0, &scales.1),
                    zero: zeros.as_ref().map(|z| numbers(kind, z)),
                    shift: shifts.as_ref().map(|s| numbers(s.0, &s.1)),
                    folded: kind.size().is_some(),
                };
                let shape = (vec![self.n], self.k);
                let t = Tables::new(kind, data.clone(), shape, Some(scaling));
                Some(Cow::Owned(t))
            }
            _ => None,
        }
    }

    fn of_tables(dtype: DType, tables: Tables) -> Option<Self> {
        let (n, k) = tables.shape()?;
        let this = Self {
            n,
            k,
            dtype,
            format: Format::Tables(Box::new(tables)),
        };
        this.with(|_| ()).map(|()| this)
    }

    /// Codes of four or eight bits with one scale, zero and shift per row and block of the last axis.
    fn blocks_of_rows(
        dtype: DType,
        data: &ConstantData,
        [scale, zero, shift]: [&ConstantData; 3],
    ) -> Option<Self> {
        let code = KINDS.iter().find(|(kind, _)| *kind == data.ty.dtype)?.1;
        let ((lead, k), (rows, blocks)) = (rows_of(data)?, rows_of(scale)?);
        let n = lead.iter().product();
        let Storage::Dense(bytes) = &data.storage else {
            return None;
        };
        if rows != lead || blocks == 0 || k % blocks != 0 {
            return None;
        }
        let format = Format::Codes {
            code,
            block: k / blocks,
            data: bytes.clone(),
            scales: Vector::new(scale)?,
            zeros: if is_zero(zero) {
                None
            } else {
                Some(dense(zero)?)
            },
            shifts: if is_zero(shift) {
                None
            } else {
                Some(Vector::new(shift)?)
            },
        };
        let this = Self {
            n,
            k,
            dtype,
            format,
        };
        this.with(|_| ()).map(|()| this)
    }

    /// Says that the stored bytes have been packed and will hardly be read again.
    pub(crate) fn unload(&self) {
        match &self.format {
            Format::Dense(_, data) | Format::Codes { data, .. } | Format::Blocks(_, data) => {
                data.unload();
            }
            Format::Tables(_) => {}
        }
    }

    /// The matrix as a source for packing; `None` where its format is read as it is.
    pub(crate) fn source(&self) -> Option<Box<dyn BlockSource + '_>> {
        if !self.k.is_multiple_of(packed::BLOCK) || self.k == 0 {
            return None;
        }
        match &self.format {
            Format::Dense(..) | Format::Tables(_) => None,
            Format::Blocks(format, bytes) => {
                let rows = GgufRows::new(*format, bytes, self.k, Rounding::F32)?;
                Some(Box::new(rows))
            }
            Format::Codes { .. } => {
                let rows = self.code_rows().filter(BlockRows::packable)?;
                Some(Box::new(rows))
            }
        }
    }

    /// The codes in the kernels' terms.
    fn code_rows(&self) -> Option<BlockRows<'_>> {
        let Format::Codes {
            code,
            block,
            data,
            scales,
            zeros,
            shifts,
        } = &self.format
        else {
            return None;
        };
        let rows = BlockRows {
            data,
            code: *code,
            rows: self.n,
            k: self.k,
            block: *block,
            scales: scales.floats(),
            zeros: zeros.as_deref(),
            shifts: shifts.as_ref().map(Vector::floats),
            rounding: rounding(self.dtype),
        };
        rows.checked()
    }

    /// Rows: outputs of a product.
    pub(crate) fn n(&self) -> usize {
        self.n
    }

    /// Columns: inputs of a product.
    pub(crate) fn k(&self) -> usize {
        self.k
    }

    /// Bytes in memory, scales and offsets included.
    pub(crate) fn size(&self) -> u64 {
        let bytes = match &self.format {
            Format::Dense(_, data) | Format::Blocks(_, data) => data.len(),
            Format::Codes {
                data,
                scales,
                zeros,
                shifts,
                ..
            } => {
                let zeros = zeros.as_ref().map_or(0, |z| z.len());
                let shifts = shifts.as_ref().map_or(0, |s| s.1.len());
                data.len() + scales.1.len() + zeros + shifts
            }
            Format::Tables(t) => t.size(),
        };
        bytes as u64
    }

    /// Kind of the stored elements, and shape.
    pub(crate) fn label(&self) -> String {
        let kind = match &self.format {
            Format::Dense(dtype, _) => dtype.to_string(),
            Format::Blocks(format, _) => format!("{format:?}"),
            Format::Codes { code, block, .. } => format!("{code:?}/{block}").to_lowercase(),
            Format::Tables(t) => t.label(),
        };
        format!("{kind} [{}, {}]", self.n, self.k)
    }

    pub(crate) fn shape(&self) -> [usize; 2] {
        [self.n, self.k]
    }

    /// The kind the elements decode to.
    pub(crate) fn dtype(&self) -> DType {
        self.dtype
    }

    /// Whether elements can be written out one by one: floats and whole bytes, not floats of 8 bits.
    pub(crate) fn has_plain_elements(&self) -> bool {
        let float = matches!(self.dtype, DType::F32 | DType::F16 | DType::BF16);
        float || !self.dtype.is_float() && self.dtype.size().is_some()
    }

    /// Calls `f` with the rows in the kernels' terms.
    pub(crate) fn with<T>(&self, f: impl FnOnce(&dyn RowFormat) -> T) -> Option<T> {
        let rounding = rounding(self.dtype);
        Some(match &self.format {
            Format::Dense(DType::F16, bytes) => {
                f(&DenseRows::new(typed::<f16>(bytes), self.k, rounding)?)
            }
            Format::Dense(DType::BF16, bytes) => {
                f(&DenseRows::new(typed::<bf16>(bytes), self.k, rounding)?)
            }
            Format::Dense(_, bytes) => f(&DenseRows::new(typed::<f32>(bytes), self.k, rounding)?),
            Format::Blocks(format, bytes) => f(&GgufRows::new(*format, bytes, self.k, rounding)?),
            Format::Codes { .. } => f(&self.code_rows()?),
            Format::Tables(t) => f(&t.rows(rounding)?),
        })
    }

    /// Calls `f` with `count` rows from `first` on.
    pub(crate) fn with_rows<T>(
        &self,
        first: usize,
        count: usize,
        f: impl FnOnce(&dyn RowFormat) -> T,
    ) -> Option<T> {
        if first.checked_add(count)? > self.n {
            return None;
        }
        self.with(|rows| f(&Part { rows, first, count }))
    }

    /// One row, decoded and rounded to its kind.
    pub(crate) fn row(&self, row: usize, out: &mut [f32]) {
        self.with(|rows| dequantize_row(rows, row, out));
    }
}

/// Some rows of a matrix.
struct Part<'a> {
    rows: &'a dyn RowFormat,
    first: usize,
    count: usize,
}

impl RowFormat for Part<'_> {
    fn rows(&self) -> usize {
        self.count
    }

    fn k(&self) -> usize {
        self.rows.k()
    }

    fn order(&self) -> Order {
        self.rows.order()
    }

    fn no_finer_than_half(&self) -> bool {
        self.rows.no_finer_than_half()
    }

    fn dequantize(&self, isa: Isa, row: usize, start: usize, out: &mut [f32]) {
        self.rows.dequantize(isa, self.first + row, start, out);
    }

    fn dot_rows(&self, isa: Isa, first: usize, x: &[f32], out: &mut [f32]) {
        self.rows.dot_rows(isa, self.first + first, x, out);
    }
}

/// All extents of a constant but the last, and the last.
pub(super) fn rows_of(c: &ConstantData) -> Option<(Vec<usize>, usize)> {
    let mut shape = c.ty.fixed_shape().filter(|s| s.len() >= 2)?;
    let k = shape.pop()?;
    Some((shape, k))
}

/// The constant as a matrix.
fn matrix(c: &ConstantData) -> Option<(usize, usize)> {
    match c.ty.fixed_shape()?[..] {
        [n, k] => Some((n, k)),
        _ => None,
    }
}

/// All elements of compressed weights.
#[derive(Debug)]
pub(crate) struct Dequantize(pub(crate) Arc<Weights>);

impl Kernel for Dequantize {
    fn run(&self, cx: &mut Cx<'_, '_, '_>) -> Result<(), OpError> {
        let k = self.0.k();
        cx.scratch_len(k);
        let out = &mut cx.outputs[0];
        let (dtype, size) = (out.dtype, out.dtype.size().unwrap_or(1));
        for (i, o) in out.bytes().chunks_exact_mut((k * size).max(1)).enumerate() {
            self.0.row(i, &mut cx.scratch[..k]);
            store(dtype, &cx.scratch[..k], o);
        }
        Ok(())
    }

    fn work(&self, inputs: &[Touched], outputs: &[Touched]) -> Work {
        Work::of_elements(inputs, outputs).with_weights(self.0.label(), self.0.size())
    }
}
