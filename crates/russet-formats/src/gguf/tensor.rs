//! The description of a tensor: name, extents, type and place.

use std::ops::Range;
use std::sync::Arc;

use super::cursor::Cursor;
use super::error::{GgufError, Place, Problem, Result};
use super::kind::TensorKind;

/// The most extents a tensor has (`GGML_MAX_DIMS`).
const MAX_RANK: u32 = 4;
/// The longest name that is accepted; the specification says 64.
const MAX_NAME: usize = 1024;
/// The least bytes of a description: name of one byte, rank, type, offset.
const LEAST: usize = 8 + 1 + 4 + 4 + 8;

/// A tensor of the file.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorInfo {
    name: Arc<str>,
    /// Innermost first, as in the file.
    extents: Vec<u64>,
    kind: TensorKind,
    /// From the start of the data section.
    offset: u64,
    /// Where the description stands in the file.
    described_at: usize,
}

impl TensorInfo {
    pub(super) fn read_all(cursor: &mut Cursor<'_>, count: u64) -> Result<Vec<Self>> {
        let count = cursor.checked("the tensor count", count, LEAST)?;
        (0..count as u64)
            .map(|number| Self::read(cursor, number))
            .collect()
    }

    fn read(cursor: &mut Cursor<'_>, number: u64) -> Result<Self> {
        let described_at = cursor.offset();
        let place = || Place::TensorNumber(number);
        let name = cursor
            .name("the name of a tensor", MAX_NAME)
            .map_err(|e| e.within(place))?;
        let rest = |cursor: &mut Cursor<'_>| {
            let extents = extents(cursor)?;
            Ok((
                extents,
                TensorKind(cursor.u32("the type of a tensor")?),
                cursor.u64("the offset of a tensor")?,
            ))
        };
        let (extents, kind, offset) =
            rest(cursor).map_err(|e: GgufError| e.within(|| Place::Tensor(name.to_owned())))?;
        Ok(Self {
            name: name.into(),
            extents,
            kind,
            offset,
            described_at,
        })
    }

    /// The name.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The extents, outermost first: a weight matrix is [outputs, inputs]. (The file lists them innermost first.)
    pub fn shape(&self) -> impl DoubleEndedIterator<Item = u64> + ExactSizeIterator + '_ {
        self.extents.iter().rev().copied()
    }

    /// The type.
    pub fn kind(&self) -> TensorKind {
        self.kind
    }

    /// Number of elements.
    pub fn elements(&self) -> Result<u64> {
        let product = self.extents.iter().try_fold(1u64, |n, &d| n.checked_mul(d));
        product.ok_or_else(|| self.error(Problem::Extents(self.extents.clone())))
    }

    /// Bytes of the data; an error for a type that is not known.
    pub fn byte_len(&self) -> Result<u64> {
        let block = self
            .kind
            .block_len()
            .ok_or_else(|| self.error(Problem::UnknownType(self.kind.to_string())))?;
        let row = self.extents.first().copied().unwrap_or(1);
        if !row.is_multiple_of(block) {
            return Err(self.error(Problem::Row {
                row,
                kind: self.kind.to_string(),
            }));
        }
        let too_large = || self.error(Problem::Extents(self.extents.clone()));
        self.kind.bytes(self.elements()?).ok_or_else(too_large)
    }

    /// An error about this tensor, placed at its description.
    pub fn error(&self, problem: Problem) -> GgufError {
        GgufError::new(
            self.described_at,
            Place::Tensor(self.name.to_string()),
            problem,
        )
    }

    /// The place of the data in the file.
    pub(super) fn range(&self, data_start: usize) -> Result<Range<usize>> {
        let outside = || self.error(Problem::OutsideFile { file: usize::MAX });
        let start = usize::try_from(self.offset)
            .ok()
            .and_then(|o| o.checked_add(data_start))
            .ok_or_else(outside)?;
        let len = usize::try_from(self.byte_len()?).map_err(|_| outside())?;
        Ok(start..start.checked_add(len).ok_or_else(outside)?)
    }

    /// Checks extents, alignment and that the data lies in the file. A type that is not known is not an error here: the
    /// file may be looked at, only that tensor cannot be used.
    pub(super) fn check(&self, alignment: usize, data_start: usize, file: usize) -> Result<()> {
        self.elements()?;
        if !self.offset.is_multiple_of(alignment as u64) {
            return Err(self.error(Problem::Misaligned {
                offset: self.offset,
                alignment,
            }));
        }
        match self.range(data_start) {
            Ok(range) if range.end > file => Err(self.error(Problem::OutsideFile { file })),
            Err(GgufError {
                problem: Problem::UnknownType(_),
                ..
            }) => Ok(()),
            other => other.map(|_| ()),
        }
    }
}

fn extents(cursor: &mut Cursor<'_>) -> Result<Vec<u64>> {
    let at = cursor.offset();
    let rank = cursor.u32("the rank of a tensor")?;
    if rank > MAX_RANK {
        let problem = Problem::Limit {
            what: "the rank of a tensor",
            value: rank.into(),
            limit: MAX_RANK.into(),
        };
        return Err(GgufError::new(at, Place::Header, problem));
    }
    (0..rank)
        .map(|_| cursor.u64("the extents of a tensor"))
        .collect()
}
