//! The tensor types of ggml: one table of names and block sizes, with how a type is decoded where it is.

use std::fmt;

use russet_graph::types::DType;
use russet_kernels::quant::BlockFormat;

/// How the bytes of a tensor stand for numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Decoding {
    /// Plain elements.
    Dense(DType),
    /// Blocks with scales.
    Blocks(BlockFormat),
}

/// A type of ggml with its name.
struct Row {
    code: u32,
    name: &'static str,
    block_len: u64,
    block_bytes: u64,
    decoding: Option<Decoding>,
}

const fn dense(code: u32, name: &'static str, dtype: DType) -> Row {
    Row {
        code,
        name,
        block_len: 1,
        block_bytes: (dtype.bits() / 8) as u64,
        decoding: Some(Decoding::Dense(dtype)),
    }
}

const fn blocks(code: u32, name: &'static str, format: BlockFormat) -> Row {
    let (block_len, block_bytes) = (format.block_len() as u64, format.block_bytes() as u64);
    Row {
        code,
        name,
        block_len,
        block_bytes,
        decoding: Some(Decoding::Blocks(format)),
    }
}

const fn closed(code: u32, name: &'static str, block_len: u64, block_bytes: u64) -> Row {
    Row {
        code,
        name,
        block_len,
        block_bytes,
        decoding: None,
    }
}

/// `enum ggml_type`. Codes 4, 5, 31 to 33 and 36 to 38 were given up.
const TABLE: &[Row] = &[
    dense(0, "F32", DType::F32),
    dense(1, "F16", DType::F16),
    blocks(2, "Q4_0", BlockFormat::Q4_0),
    blocks(3, "Q4_1", BlockFormat::Q4_1),
    blocks(6, "Q5_0", BlockFormat::Q5_0),
    blocks(7, "Q5_1", BlockFormat::Q5_1),
    blocks(8, "Q8_0", BlockFormat::Q8_0),
    closed(9, "Q8_1", 32, 36),
    closed(10, "Q2_K", 256, 84),
    closed(11, "Q3_K", 256, 110),
    blocks(12, "Q4_K", BlockFormat::Q4K),
    blocks(13, "Q5_K", BlockFormat::Q5K),
    blocks(14, "Q6_K", BlockFormat::Q6K),
    closed(15, "Q8_K", 256, 292),
    closed(16, "IQ2_XXS", 256, 66),
    closed(17, "IQ2_XS", 256, 74),
    closed(18, "IQ3_XXS", 256, 98),
    closed(19, "IQ1_S", 256, 50),
    closed(20, "IQ4_NL", 32, 18),
    closed(21, "IQ3_S", 256, 110),
    closed(22, "IQ2_S", 256, 82),
    closed(23, "IQ4_XS", 256, 136),
    dense(24, "I8", DType::I8),
    dense(25, "I16", DType::I16),
    dense(26, "I32", DType::I32),
    dense(27, "I64", DType::I64),
    dense(28, "F64", DType::F64),
    closed(29, "IQ1_M", 256, 56),
    dense(30, "BF16", DType::BF16),
    closed(34, "TQ1_0", 256, 54),
    closed(35, "TQ2_0", 256, 66),
    closed(39, "MXFP4", 32, 17),
];

/// The type of a tensor as the file names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorKind(pub u32);

impl TensorKind {
    fn row(self) -> Option<&'static Row> {
        TABLE.iter().find(|r| r.code == self.0)
    }

    /// How the type is decoded; `None` where it is not.
    pub fn decoding(self) -> Option<Decoding> {
        self.row()?.decoding
    }

    /// Elements of a block; `None` for a type that is not known.
    pub fn block_len(self) -> Option<u64> {
        self.row().map(|r| r.block_len)
    }

    /// Bytes that `elements` in whole blocks take; `None` if they are not, cannot be counted, or the type is not known.
    pub fn bytes(self, elements: u64) -> Option<u64> {
        let row = self.row()?;
        let whole = elements.is_multiple_of(row.block_len);
        if whole {
            (elements / row.block_len).checked_mul(row.block_bytes)
        } else {
            None
        }
    }
}

impl fmt::Display for TensorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.row() {
            Some(row) => f.write_str(row.name),
            None => write!(f, "type {}", self.0),
        }
    }
}
