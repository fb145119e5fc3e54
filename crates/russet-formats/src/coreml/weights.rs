//! Weight files (`weights/weight.bin`): a header, then for every value 64 bytes that say what it is, and its elements.
//!
//! Offsets in a program are those of the 64 bytes. Elements below a byte are one stream of bits, lowest first, as
//! [`russet_graph::types::DType`] packs them.

use std::collections::BTreeMap;
use std::sync::Arc;

use russet_graph::types::DType;
use russet_kernels::mem::SharedBytes;

use super::error::{CoremlError, Place, Problem, Result};

/// What the 64 bytes begin with.
const SENTINEL: u32 = 0xDEAD_BEEF;
/// Length of what stands before the elements.
const RECORD: u64 = 64;

/// Element kinds by their number in weight files.
const KINDS: &[(u32, DType)] = &[
    (1, DType::F16),
    (2, DType::F32),
    (3, DType::U8),
    (4, DType::I8),
    (5, DType::BF16),
    (6, DType::I16),
    (7, DType::U16),
    (8, DType::I4),
    (9, DType::U1),
    (10, DType::U2),
    (11, DType::U4),
    (12, DType::U3),
    (13, DType::U6),
    (14, DType::I32),
    (15, DType::U32),
    (16, DType::F8E4M3),
    (17, DType::F8E5M2),
];

/// The weight files of a model, by the names that its program uses.
#[derive(Clone, Debug, Default)]
pub struct Weights {
    files: BTreeMap<Arc<str>, SharedBytes>,
}

impl Weights {
    /// Adds a file.
    pub fn add(&mut self, name: &str, bytes: SharedBytes) {
        self.files.insert(name.into(), bytes);
    }

    /// Bytes of all files.
    pub fn size(&self) -> usize {
        self.files.values().map(|b| b.len()).sum()
    }

    /// The elements of the value at an offset: `len` of them, of kind `dtype`.
    ///
    /// # Errors
    /// Where there is no such file, nothing at the offset, or a value of another kind or size.
    pub fn value(
        &self,
        name: &Arc<str>,
        offset: u64,
        dtype: DType,
        len: usize,
    ) -> Result<SharedBytes> {
        let file = self.files.get(name);
        let wrong = |problem| at(name, offset, problem);
        let file = file.ok_or_else(|| wrong(Problem::Missing("the weight file".into())))?;
        let record = Record::read(file, offset)
            .ok_or_else(|| wrong(Problem::Value("there is no value at this offset".into())))?;
        if record.kind != Some(dtype) {
            let found = record.kind.map_or("of an unknown kind", DType::name);
            let reason = format!("the value is {found}, the program wants {dtype}");
            return Err(wrong(Problem::Value(reason)));
        }
        let need = dtype.packed_len(len);
        if need != usize::try_from(record.size).ok() {
            let size = record.size;
            let reason =
                format!("the value has {size} bytes, {len} elements of {dtype} take others");
            return Err(wrong(Problem::Value(reason)));
        }
        let range = record.range().filter(|r| r.end <= file.len());
        let bytes = range.and_then(|r| file.slice(r));
        bytes.ok_or_else(|| {
            wrong(Problem::Value(
                "the elements lie beyond the file's end".into(),
            ))
        })
    }
}

fn at(name: &Arc<str>, offset: u64, problem: Problem) -> CoremlError {
    let name = name.clone();
    problem.at(Place::File { name, offset })
}

/// What stands before the elements of a value.
struct Record {
    kind: Option<DType>,
    size: u64,
    start: u64,
}

impl Record {
    fn read(file: &[u8], offset: u64) -> Option<Self> {
        let from = usize::try_from(offset).ok()?;
        let to = usize::try_from(offset.checked_add(RECORD)?).ok()?;
        let bytes = file.get(from..to)?;
        let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let long = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        if word(0)? != SENTINEL {
            return None;
        }
        let kind = word(4)?;
        Some(Self {
            kind: KINDS.iter().find(|(k, _)| *k == kind).map(|(_, d)| *d),
            size: long(8)?,
            start: long(16)?,
        })
    }

    fn range(&self) -> Option<std::ops::Range<usize>> {
        let start = usize::try_from(self.start).ok()?;
        let size = usize::try_from(self.size).ok()?;
        Some(start..start.checked_add(size)?)
    }
}
