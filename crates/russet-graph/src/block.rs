//! Block formats: rows of fixed-size blocks that hold their own scales, as quantised checkpoints store them.

/// How a row of a [`Storage::Blocks`](crate::graph::Storage::Blocks) constant is encoded. Layouts are those of the ggml
/// project; what the bytes mean is defined by the kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BlockFormat {
    /// 32 elements: an f16 scale and 4-bit codes around 8.
    Q4_0,
    /// 32 elements: an f16 scale and minimum, 4-bit codes.
    Q4_1,
    /// 32 elements: an f16 scale and 5-bit codes around 16.
    Q5_0,
    /// 32 elements: an f16 scale and minimum, 5-bit codes.
    Q5_1,
    /// 32 elements: an f16 scale and 8-bit codes.
    Q8_0,
    /// 256 elements in 8 groups with 6-bit scales and minima, 4-bit codes.
    Q4K,
    /// 256 elements in 8 groups with 6-bit scales and minima, 5-bit codes.
    Q5K,
    /// 256 elements in 16 groups with 8-bit scales, 6-bit codes.
    Q6K,
}

/// Format, name in the text form, elements and bytes of a block.
const TABLE: [(BlockFormat, &str, usize, usize); 8] = [
    (BlockFormat::Q4_0, "q4_0", 32, 18),
    (BlockFormat::Q4_1, "q4_1", 32, 20),
    (BlockFormat::Q5_0, "q5_0", 32, 22),
    (BlockFormat::Q5_1, "q5_1", 32, 24),
    (BlockFormat::Q8_0, "q8_0", 32, 34),
    (BlockFormat::Q4K, "q4_k", 256, 144),
    (BlockFormat::Q5K, "q5_k", 256, 176),
    (BlockFormat::Q6K, "q6_k", 256, 210),
];

impl BlockFormat {
    /// Every format.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|row| row.0)
    }

    fn row(self) -> (&'static str, usize, usize) {
        TABLE
            .iter()
            .find(|row| row.0 == self)
            .map_or(("", 1, 1), |row| (row.1, row.2, row.3))
    }

    /// The name in the text form.
    pub fn name(self) -> &'static str {
        self.row().0
    }

    /// The format of this name.
    pub fn parse(name: &str) -> Option<Self> {
        TABLE.iter().find(|row| row.1 == name).map(|row| row.0)
    }

    /// Elements of one block.
    pub fn block_len(self) -> usize {
        self.row().1
    }

    /// Bytes of one block.
    pub fn block_bytes(self) -> usize {
        self.row().2
    }

    /// Bytes of a row of `elements`, where that is whole blocks.
    pub fn row_bytes(self, elements: usize) -> Option<usize> {
        if elements % self.block_len() != 0 {
            return None;
        }
        (elements / self.block_len()).checked_mul(self.block_bytes())
    }
}
