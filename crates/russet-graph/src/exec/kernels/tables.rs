//! Weights of codes that are looked up in tables: palettes, and integers and floats of 1 to 8 bits in blocks of any shape. They stay as
//! they are in the file; [`TableRows`] reads them.

use std::sync::Arc;

use russet_kernels::elem::Rounding;
use russet_kernels::mem::{AlignedBuf, SharedBytes};
use russet_kernels::quant::{
    Elements, Floats, Grid, Meaning, Palette, Scaling, TableRows, gcd, join_codes, turn_codes,
};

use super::weights::{aligned, dense, is_zero, rows_of};
use crate::exec::view::typed;
use crate::graph::{ConstantData, Storage};
use crate::ops::shape::axis;
use crate::types::{Class, DType};

use half::{bf16, f16};

/// A matrix of codes, with what they are looked up in and how that is scaled.
#[derive(Clone, Debug)]
pub(super) struct Tables {
    /// The kind of the codes.
    kind: DType,
    codes: SharedBytes,
    /// Extents of the matrix but the last: rows.
    lead: Vec<usize>,
    k: usize,
    /// The tables, and the elements of their vectors.
    palette: Option<(Numbers, usize)>,
    scaling: Option<Parameters>,
}

/// Scale, zero point and shift: see [`Scaling`].
#[derive(Clone, Debug)]
pub(super) struct Parameters {
    pub(super) scale: Numbers,
    pub(super) zero: Option<Numbers>,
    pub(super) shift: Option<Numbers>,
    pub(super) folded: bool,
}

impl Parameters {
    fn all(&self) -> impl Iterator<Item = &Numbers> {
        std::iter::once(&self.scale)
            .chain(&self.zero)
            .chain(&self.shift)
    }

    fn scaling(&self) -> Option<Scaling<'_>> {
        fn grid(n: &Option<Numbers>) -> Option<Option<Grid<'_>>> {
            match n {
                Some(n) => n.grid().map(Some),
                None => Some(None),
            }
        }
        Some(Scaling {
            scale: self.scale.grid()?,
            zero: grid(&self.zero)?,
            shift: grid(&self.shift)?,
            folded: self.folded,
        })
    }

    /// With other numbers in the place of all.
    fn each(&self, f: impl Fn(&Numbers) -> Option<Numbers>) -> Option<Self> {
        let other = |n: &Option<Numbers>| match n {
            Some(n) => f(n).map(Some),
            None => Some(None),
        };
        Some(Self {
            scale: f(&self.scale)?,
            zero: other(&self.zero)?,
            shift: other(&self.shift)?,
            folded: self.folded,
        })
    }
}

/// Numbers of blocks: see [`Grid`].
#[derive(Clone, Debug)]
pub(super) struct Numbers {
    dtype: DType,
    data: SharedBytes,
    block: [usize; 2],
    strides: [usize; 2],
}

impl Numbers {
    /// A constant that has an element (`trailing` extents more: a table) for every block of `data`, whose extents are `lead` and `k`.
    fn new(c: &ConstantData, (lead, k): (&[usize], usize), trailing: usize) -> Option<Self> {
        let shape = c.ty.fixed_shape()?;
        let grid = &shape[..shape.len().checked_sub(trailing)?];
        elements(c.ty.dtype, &[])?;
        let whole = [lead.iter().product(), k];
        let (data, block, strides) = match (&c.storage, grid.split_last()) {
            (Storage::Splat(bytes), _) if trailing == 0 => (aligned(bytes).ok()?, whole, [0; 2]),
            (_, None) if trailing == 0 => (dense(c)?, whole, [0; 2]),
            (_, Some((&across, down))) => {
                let block = [rows_of_block(lead, down)?, k.checked_div(across)?];
                (dense(c)?, block, [across, 1])
            }
            _ => return None,
        };
        Some(Self {
            dtype: c.ty.dtype,
            data,
            block,
            strides,
        })
    }

    /// An element for every row and `block` of `k` columns.
    pub(super) fn by_rows(dtype: DType, data: SharedBytes, block: usize, k: usize) -> Self {
        Self {
            dtype,
            data,
            block: [1, block],
            strides: [k / block.max(1), 1],
        }
    }

    fn grid(&self) -> Option<Grid<'_>> {
        Some(Grid {
            data: elements(self.dtype, &self.data)?,
            block: self.block,
            strides: self.strides,
        })
    }

    /// The same numbers, `each` a block, where the `k` columns of the matrix, in `parts` equal parts, lie one under the other. Numbers
    /// of whole rows are repeated for every part; `None` where they then take more than `most` bytes.
    pub(super) fn apart(
        &self,
        [rows, k]: [usize; 2],
        parts: usize,
        each: usize,
        most: usize,
    ) -> Option<Self> {
        let width = k.checked_div(parts).filter(|w| w * parts == k)?;
        let ([down, across], [below, beside]) = (self.block, self.strides);
        let block = gcd(across, width);
        let (rows, columns) = (rows.checked_div(down)?, width.checked_div(block)?);
        let bits = self.dtype.bits();
        let mut extents = [parts, rows, columns, each, bits].into_iter();
        let len = extents.try_fold(1_usize, usize::checked_mul)?.div_ceil(8);
        let (run, runs) = match block == across && beside == 1 {
            true => (columns, 1),
            false => (1, columns),
        };
        let starts = (0..parts).flat_map(|part| {
            let of_row = move |row| (0..runs).map(move |i| (part * width + i * block, row));
            (0..rows).flat_map(of_row)
        });
        let all = starts.map(|(column, row)| {
            let first = (row * below + column / across * beside) * each;
            first..first + run * each
        });
        let mut data = AlignedBuf::with_len(Some(len).filter(|len| *len <= most)?).ok()?;
        join_codes(&self.data, bits, all, data.as_bytes_mut());
        Some(Self {
            dtype: self.dtype,
            data: SharedBytes::new(Arc::new(data)),
            block: [down, block],
            strides: [columns, 1],
        })
    }

    /// Its bytes, and columns of a block.
    pub(super) fn into_rows(self) -> (SharedBytes, usize) {
        (self.data, self.block[1])
    }

    /// The same numbers for a matrix whose rows and columns are exchanged.
    fn turned(&self) -> Self {
        let ([a, b], [c, d]) = (self.block, self.strides);
        Self {
            block: [b, a],
            strides: [d, c],
            ..self.clone()
        }
    }
}

/// The rows of a block where rows of several axes lie one under the other: along axes before some one all blocks have one index,
/// along axes after it there is only one block.
fn rows_of_block(lead: &[usize], blocks: &[usize]) -> Option<usize> {
    if lead.len() != blocks.len() {
        return None;
    }
    let at = lead.iter().zip(blocks).position(|(l, b)| l != b);
    let Some(at) = at else { return Some(1) };
    let rest = lead[at..].iter().product::<usize>();
    let alone = blocks[at + 1..].iter().all(|&b| b == 1);
    (alone && lead[at].is_multiple_of(blocks[at])).then(|| rest / blocks[at])
}

/// What codes of a kind of at most eight bits stand for.
fn meaning(dtype: DType) -> Option<Meaning> {
    Some(match (dtype, dtype.class()) {
        (DType::F8E4M3, _) => Meaning::E4M3,
        (DType::F8E5M2, _) => Meaning::E5M2,
        (DType::F8E8M0, _) => Meaning::E8M0,
        (DType::F4E2M1, _) => Meaning::E2M1,
        (_, Class::Signed) if dtype.bits() <= 8 => Meaning::Signed,
        (_, Class::Unsigned) if dtype.bits() <= 8 => Meaning::Unsigned,
        _ => return None,
    })
}

fn elements(dtype: DType, data: &[u8]) -> Option<Elements<'_>> {
    Some(match dtype {
        DType::F32 => Elements::Floats(Floats::F32(typed::<f32>(data))),
        DType::F16 => Elements::Floats(Floats::F16(typed::<f16>(data))),
        DType::BF16 => Elements::Floats(Floats::Bf16(typed::<bf16>(data))),
        _ => Elements::Codes(meaning(dtype)?, dtype.bits(), data),
    })
}

impl Tables {
    /// Codes that stand for themselves.
    pub(super) fn codes(data: &ConstantData) -> Option<Self> {
        let ((lead, k), Storage::Dense(bytes)) = (rows_of(data)?, &data.storage) else {
            return None;
        };
        Some(Self::new(data.ty.dtype, bytes.clone(), (lead, k), None))
    }

    pub(super) fn new(
        kind: DType,
        codes: SharedBytes,
        (lead, k): (Vec<usize>, usize),
        scaling: Option<Parameters>,
    ) -> Self {
        Self {
            kind,
            codes,
            lead,
            k,
            palette: None,
            scaling,
        }
    }

    /// Codes that are looked up; vectors lie along the last axis but one.
    pub(super) fn palette(indices: &ConstantData, lut: &ConstantData, along: i64) -> Option<Self> {
        let mut this = Self::codes(indices)?;
        let &[.., entries, vector] = &lut.ty.fixed_shape()?[..] else {
            return None;
        };
        let (rank, all) = (
            this.lead.len() + 1,
            1_usize.checked_shl(this.kind.bits() as u32),
        );
        if all != Some(entries) || vector != 1 && axis(along, rank).ok()? != rank - 2 {
            return None;
        }
        this.palette = Some((Numbers::new(lut, (&this.lead, this.k), 2)?, vector));
        let rows = this.lead.last_mut()?;
        *rows = rows.checked_mul(vector)?;
        Some(this)
    }

    /// The same, scaled to numbers of a float kind.
    pub(super) fn scaled(
        &self,
        dtype: DType,
        [scale, zero, shift]: [&ConstantData; 3],
    ) -> Option<Self> {
        let float = matches!(dtype, DType::F32 | DType::F16 | DType::BF16);
        if self.scaling.is_some() || !float {
            return None;
        }
        let numbers = |c: &ConstantData| Numbers::new(c, (&self.lead, self.k), 0);
        let unless_zero = |c: &ConstantData| match is_zero(c) {
            true => Some(None),
            false => numbers(c).map(Some),
        };
        let kind = self.palette.as_ref().map_or(self.kind, |(t, _)| t.dtype);
        let scaling = Parameters {
            scale: numbers(scale)?,
            zero: unless_zero(zero)?,
            shift: unless_zero(shift)?,
            folded: kind.size().is_some(),
        };
        Some(Self {
            scaling: Some(scaling),
            ..self.clone()
        })
    }

    /// Rows and columns exchanged: the codes are laid out anew.
    pub(super) fn turned(&self) -> Option<Self> {
        let ((n, k), bits) = (self.shape()?, self.kind.bits());
        if self
            .palette
            .as_ref()
            .is_some_and(|(_, vector)| *vector != 1)
        {
            return None;
        }
        let scaling = match &self.scaling {
            Some(scaling) => Some(scaling.each(|n| Some(n.turned()))?),
            None => None,
        };
        let mut codes = AlignedBuf::with_len(self.codes.len()).ok()?;
        turn_codes(&self.codes, bits, (n, k), codes.as_bytes_mut());
        Some(Self {
            kind: self.kind,
            codes: SharedBytes::new(Arc::new(codes)),
            lead: vec![k],
            k: n,
            palette: self.palette.as_ref().map(|(t, v)| (t.turned(), *v)),
            scaling,
        })
    }

    /// The columns in `parts` equal parts, one under the other: the codes are laid out anew. `None` where palettes of rows, which
    /// are repeated for every part, would take more room than codes.
    pub(super) fn columns_apart(&self, parts: usize) -> Option<Self> {
        /// Bytes that palettes may have without being counted.
        const FEW: usize = 1 << 16;
        let (rows, k) = self.shape()?;
        let vector = self.palette.as_ref().map_or(1, |(_, vector)| *vector);
        let lines = rows.checked_div(vector)?;
        let most = self.codes.len() + FEW;
        let apart = |n: &Numbers| n.apart([rows, k], parts, 1, most);
        let codes = Numbers::by_rows(self.kind, self.codes.clone(), 1, k);
        let palette = match &self.palette {
            Some((tables, vector)) => {
                let each = vector << self.kind.bits();
                Some((tables.apart([lines, k], parts, each, most)?, *vector))
            }
            None => None,
        };
        let scaling = match &self.scaling {
            Some(scaling) => Some(scaling.each(apart)?),
            None => None,
        };
        Some(Self {
            kind: self.kind,
            codes: codes.apart([lines, k], parts, 1, most)?.data,
            lead: vec![rows.checked_mul(parts)?],
            k: k / parts,
            palette,
            scaling,
        })
    }

    /// Rows and columns.
    pub(super) fn shape(&self) -> Option<(usize, usize)> {
        let rows = self
            .lead
            .iter()
            .try_fold(1_usize, |n, &d| n.checked_mul(d))?;
        Some((rows, self.k))
    }

    /// The matrix in the kernels' terms.
    pub(super) fn rows(&self, rounding: Rounding) -> Option<TableRows<'_>> {
        let palette = match &self.palette {
            Some((tables, vector)) => Some(Palette {
                tables: tables.grid()?,
                vector: *vector,
            }),
            None => None,
        };
        let scaling = match &self.scaling {
            Some(scaling) => Some(scaling.scaling()?),
            None => None,
        };
        let rows = TableRows {
            codes: &self.codes,
            bits: self.kind.bits(),
            meaning: meaning(self.kind)?,
            rows: self.shape()?.0,
            k: self.k,
            palette,
            scaling,
            rounding,
        };
        rows.checked()
    }

    /// Bytes in memory.
    pub(super) fn size(&self) -> usize {
        let tables = self.palette.iter().map(|(t, _)| t);
        let numbers = tables.chain(self.scaling.iter().flat_map(Parameters::all));
        self.codes.len() + numbers.map(|n| n.data.len()).sum::<usize>()
    }

    /// The kind of the codes, and what a block of them shares.
    pub(super) fn label(&self) -> String {
        let block = self.scaling.as_ref().map(|s| s.scale.block);
        match (&self.palette, block) {
            (Some((tables, _)), _) => format!("lut{}/{}", self.kind.bits(), tables.block[0]),
            (None, Some([1, columns])) => format!("{}/{columns}", self.kind),
            (None, Some([rows, columns])) => format!("{}/{rows}x{columns}", self.kind),
            (None, None) => self.kind.to_string(),
        }
    }
}
