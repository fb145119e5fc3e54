//! Products of many tokens with rows of any format: a strip is decoded once, quantised to words as its activations are, and then
//! multiplied like a strip of packed weights.
//!
//! Both sides are numbers of 14 bits, with a scale per row and [`BLOCK`] columns: the largest is off by 1 in 16,000, which half precision
//! is by 1 in 4,000. So nothing is lost of weights that are no finer than that, and a word's products are faster than those of f32.

use super::many::{self, PAIRS, REGISTERS, Strips, strip_rows, strip_words, words_of};
use super::{BLOCK, Output};
use crate::elem::Elem;
use crate::isa::Isa;
use crate::mem::bytes_of_mut;
use crate::quant::{COLUMN_STEP, RowFormat};
use crate::scratch;
use crate::simd::{Kernel, MAX_LANES, Simd};
use crate::threads::{Pool, Rows};

/// `out = x W^T` for rows `x` in the weights' order of columns.
pub(crate) fn words_linear<Y: Elem>(
    isa: Isa,
    pool: &Pool,
    x: &[f32],
    weights: &dyn RowFormat,
    out: &mut [Y],
) {
    let (n, k) = (weights.rows(), weights.k());
    let output = Output {
        weights: &Decoded { isa, rows: weights },
        n,
        out: Rows::new(out, n),
        add: None,
    };
    many::multiply(isa, pool, x, k, &[Some(output)]);
}

/// Whether products of many tokens with these weights are better done in words.
pub(crate) fn suits(isa: Isa, weights: &dyn RowFormat) -> bool {
    struct Fast;
    impl Kernel for Fast {
        type Out = bool;
        #[inline(always)]
        fn run<S: Simd>(self, _: S) -> bool {
            S::FAST_WORDS
        }
    }
    weights.no_finer_than_half() && weights.k().is_multiple_of(BLOCK) && isa.run(Fast)
}

/// Rows in their own format.
struct Decoded<'a> {
    isa: Isa,
    rows: &'a dyn RowFormat,
}

impl Strips for Decoded<'_> {
    /// 32 products of two such numbers are just below 2^31.
    const TOP: f32 = 8_191.0;

    fn n(&self) -> usize {
        self.rows.rows()
    }
    fn blocks(&self) -> usize {
        self.rows.k() / BLOCK
    }
    fn offsets(&self) -> bool {
        false
    }
    /// Registers of rows, by pieces of columns that stay in the first cache.
    #[inline(always)]
    fn unpack<S: Simd>(&self, s: S, row: usize, strip: &mut [i32]) {
        let (n, k) = (self.rows.rows(), self.rows.k());
        let band = &mut *scratch::floats(S::LANES * COLUMN_STEP);
        let mut r = 0;
        while r < REGISTERS {
            let first = row + r * S::LANES;
            let rows = n.saturating_sub(first).min(S::LANES);
            let mut start = 0;
            while start < k {
                let len = COLUMN_STEP.min(k - start);
                let band = &mut band[..S::LANES * len];
                self.decode((first, rows), start, band, len);
                let strip = &mut strip[start / BLOCK * strip_words::<S>()..];
                pack(s, band, len, r, strip);
                start += len;
            }
            r += 1;
        }
    }
}

impl Decoded<'_> {
    /// Decodes columns from `start` on of some rows; a band has zeros where there are no more.
    #[inline(always)]
    fn decode(&self, (first, rows): (usize, usize), start: usize, band: &mut [f32], len: usize) {
        let mut i = 0;
        while i < rows {
            let out = &mut band[i * len..(i + 1) * len];
            self.rows.dequantize(self.isa, first + i, start, out);
            i += 1;
        }
        band[rows * len..].fill(0.0);
    }
}

/// Quantises a register of rows and lays their words side by side.
#[inline(always)]
fn pack<S: Simd>(s: S, band: &[f32], len: usize, r: usize, strip: &mut [i32]) {
    let mut block = 0;
    while block < len / BLOCK {
        let out = &mut strip[block * strip_words::<S>() + r * S::LANES..];
        let mut tile = [0_i32; PAIRS * MAX_LANES];
        let mut lane = 0;
        while lane < S::LANES {
            let x = &band[lane * len + block * BLOCK..][..BLOCK];
            let words = bytes_of_mut(&mut tile[lane * PAIRS..(lane + 1) * PAIRS]);
            let (scale, _) = words_of(s, x, Decoded::TOP, words);
            out[PAIRS * strip_rows::<S>() + lane] = scale.to_bits().cast_signed();
            lane += 1;
        }
        let mut pair = 0;
        while pair < PAIRS {
            let out = &mut out[pair * strip_rows::<S>()..][..S::LANES];
            let mut lane = 0;
            while lane < S::LANES {
                out[lane] = tile[lane * PAIRS + pair];
                lane += 1;
            }
            pair += 1;
        }
        block += 1;
    }
}
