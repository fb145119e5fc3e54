//! A small vector layer: one kernel body, compiled once per instruction set.
//!
//! A [`Kernel`] is written against the [`Simd`] trait, whose values (tokens) exist only where the instruction set does.
//! [`Simd::vectorize`] runs the body inside a function compiled for that instruction set; everything a body calls
//! must be `#[inline(always)]`, or it falls out of that function and is compiled for the baseline.

pub(crate) mod codes;
mod math;
#[cfg(target_arch = "aarch64")]
pub(crate) mod neon;
mod portable;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod registers;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
pub(crate) mod x86;

use half::{bf16, f16};

pub use portable::Portable;

/// The widest register in lanes: the size of the stack buffers for tails.
pub const MAX_LANES: usize = 16;

/// A computation that can be compiled for any instruction set.
pub trait Kernel {
    /// What it returns.
    type Out;
    /// The body; implementations are `#[inline(always)]`.
    fn run<S: Simd>(self, s: S) -> Self::Out;
}

/// Vectors of f32 on one instruction set.
///
/// Loads and stores take the first [`Simd::LANES`] elements of a slice and panic if it is shorter.
pub trait Simd: Copy + Send + Sync + 'static {
    /// A register of `LANES` f32.
    type V: Copy;
    /// A lane mask.
    type M: Copy;
    /// Sixteen f32 for lookup by nibble.
    type Table: Copy;
    /// A register of `LANES` i32, or of four bytes in each lane.
    type I: Copy;
    /// Lanes of a register.
    const LANES: usize;
    /// Weight rows of the matrix micro-kernel's register tile.
    const TILE_ROWS: usize;
    /// Tokens of the integer micro-kernel's register tile: 6 or 3.
    const TILE_TOKENS: usize;
    /// Up to this many tokens products of packed weights are products of bytes; more are products of words of 16 bits.
    const FEW: usize;
    /// Whether [`Simd::dot2`] is at least as fast, per product, as [`Simd::fma`].
    const FAST_WORDS: bool;
    /// What [`Simd::load_wide`] takes from each byte: 128 where products are of signed bytes, else zero.
    const BIAS: i32;

    /// Runs `kernel` in a function compiled for this instruction set.
    fn vectorize<K: Kernel>(self, kernel: K) -> K::Out;

    /// All lanes `x`.
    fn splat(self, x: f32) -> Self::V;
    /// Loads f32.
    fn load(self, x: &[f32]) -> Self::V;
    /// Stores f32.
    fn store(self, v: Self::V, out: &mut [f32]);
    /// Loads f16, widened.
    fn load_f16(self, x: &[f16]) -> Self::V;
    /// Stores as f16, rounded to nearest even.
    fn store_f16(self, v: Self::V, out: &mut [f16]);
    /// Loads bf16, widened.
    fn load_bf16(self, x: &[bf16]) -> Self::V;
    /// Stores as bf16, rounded to nearest even.
    fn store_bf16(self, v: Self::V, out: &mut [bf16]);
    /// Loads signed bytes as f32.
    fn load_i8(self, x: &[u8]) -> Self::V;
    /// Loads unsigned bytes as f32.
    fn load_u8(self, x: &[u8]) -> Self::V;
    /// Rounds each lane to the nearest f16 (ties to even).
    fn round_f16(self, v: Self::V) -> Self::V;
    /// Rounds each lane to the nearest bf16 (ties to even).
    fn round_bf16(self, v: Self::V) -> Self::V;

    /// a + b.
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    /// a - b.
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    /// a * b.
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    /// a / b.
    fn div(self, a: Self::V, b: Self::V) -> Self::V;
    /// a * b + c, fused where the machine fuses.
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// The smaller; `b` where either is NaN.
    fn min(self, a: Self::V, b: Self::V) -> Self::V;
    /// The larger; `b` where either is NaN.
    fn max(self, a: Self::V, b: Self::V) -> Self::V;
    /// Square root.
    fn sqrt(self, a: Self::V) -> Self::V;
    /// Absolute value.
    fn abs(self, a: Self::V) -> Self::V;
    /// Sign flip.
    fn neg(self, a: Self::V) -> Self::V;
    /// Nearest integer, ties to even.
    fn round_int(self, a: Self::V) -> Self::V;
    /// p * 2^n for integral n, with overflow and gradual underflow.
    fn scale2(self, p: Self::V, n: Self::V) -> Self::V;
    /// a < b (false for NaN).
    fn lt(self, a: Self::V, b: Self::V) -> Self::M;
    /// Lanes that are NaN.
    fn is_nan(self, a: Self::V) -> Self::M;
    /// `a` where the mask is set, else `b`.
    fn select(self, m: Self::M, a: Self::V, b: Self::V) -> Self::V;
    /// Sum of the lanes.
    fn sum(self, v: Self::V) -> f32;
    /// The sums of the lanes of four registers.
    #[inline(always)]
    fn sum4(self, v: [Self::V; 4]) -> [f32; 4] {
        [
            self.sum(v[0]),
            self.sum(v[1]),
            self.sum(v[2]),
            self.sum(v[3]),
        ]
    }
    /// Largest lane.
    fn max_lane(self, v: Self::V) -> f32;

    /// Builds a table from `f(first index)`, called for 0, LANES, 2 LANES, ... below 16.
    fn table(self, f: impl FnMut(usize) -> Self::V) -> Self::Table;
    /// Looks up the low and the high nibbles of the first `LANES` bytes.
    fn lookup(self, table: Self::Table, bytes: &[u8]) -> (Self::V, Self::V);

    /// Codes `first..first + LANES` of the sixteen of `BITS` bits, from 1 to 8, that `bytes` begins with: one a lane. `first` is a
    /// multiple of `LANES`; sixteen bytes are read. Above a code of up to four bits there may be bits of the next ones.
    fn codes<const BITS: usize>(self, bytes: &[u8; 16], first: usize) -> Self::I;
    /// Looks up the low four bits of each lane.
    fn pick(self, table: Self::Table, index: Self::I) -> Self::V;
    /// Looks each lane up; it is a code of `BITS` bits.
    fn fetch<const BITS: usize>(self, table: &[f32; 256], index: Self::I) -> Self::V;

    /// All lanes `x`.
    fn ints(self, x: i32) -> Self::I;
    /// Loads `4 LANES` bytes.
    fn load_ints(self, x: &[u8]) -> Self::I;
    /// Loads `4 LANES` unsigned bytes for products, less [`Simd::BIAS`] each.
    fn load_wide(self, x: &[u8]) -> Self::I;
    /// The low nibble of every byte.
    fn low_nibbles(self, v: Self::I) -> Self::I;
    /// The high nibble of every byte.
    fn high_nibbles(self, v: Self::I) -> Self::I;
    /// `sum` plus, in each lane, the product of four bytes of `a` with the four signed bytes of `b`. The bytes of `a` are
    /// from 0 to 127, or if `WIDE` what [`Simd::load_wide`] has loaded; those of `b` are above -128. Exact everywhere.
    fn dot4<const WIDE: bool>(self, sum: Self::I, a: Self::I, b: i32) -> Self::I;
    /// Products of the eight registers of a block's codes with the activations of a run of `N` tokens, one or an even number, each
    /// from its start: [`Simd::dot4`] with each of a token's eight words in turn. `x` holds the words where [`Simd::place`] says.
    #[inline(always)]
    fn dot_tokens<const WIDE: bool, const N: usize>(
        self,
        starts: &[i32],
        codes: &[Self::I; 8],
        x: &[i32],
    ) -> [Self::I; N] {
        let mut dots = [self.ints(0); N];
        for i in 0..N {
            dots[i] = self.ints(starts[i]);
        }
        for c in 0..8 {
            for i in 0..N {
                dots[i] = self.dot4::<WIDE>(dots[i], codes[c], x[i * 8 + c]);
            }
        }
        dots
    }
    /// Where word `c` of a token lies among the words of a run of `run` tokens: token by token, unless the instruction set has
    /// other wishes. A store of `LANES` bytes fills words that are side by side.
    #[inline(always)]
    fn place(token: usize, _run: usize, c: usize) -> usize {
        token * 8 + c
    }
    /// To f32.
    fn to_float(self, v: Self::I) -> Self::V;
    /// The bits as f32.
    fn floats(self, v: Self::I) -> Self::V;
    /// Stores `4 LANES` bytes.
    fn store_ints(self, v: Self::I, out: &mut [u8]);
    /// Bytes 0 and 2 of each lane as words of 16 bits.
    fn even_bytes(self, v: Self::I) -> Self::I;
    /// Bytes 1 and 3 of each lane as words of 16 bits.
    fn odd_bytes(self, v: Self::I) -> Self::I;
    /// a - b in words of 16 bits.
    fn sub_words(self, a: Self::I, b: Self::I) -> Self::I;
    /// Integral values from 0 to 32,767 as words: `low` in the low, `high` in the high word of each lane.
    fn join_words(self, low: Self::V, high: Self::V) -> Self::I;
    /// `sum` plus, in each lane, the product of two signed words of `a` with those of `b`. No word is -32,768.
    fn dot2(self, sum: Self::I, a: Self::I, b: i32) -> Self::I;
    /// Stores integral values of 16 bits as words, the second and the third of every four exchanged: the order of
    /// [`Simd::even_bytes`] and [`Simd::odd_bytes`].
    fn store_pairs(self, v: Self::V, out: &mut [u8]);
    /// Stores integral values from -128 to 127 as signed bytes.
    fn store_i8(self, v: Self::V, out: &mut [u8]);

    /// e^x.
    #[inline(always)]
    fn exp(self, x: Self::V) -> Self::V {
        math::exp(self, x)
    }
    /// e^x, but zero where that is not a normal number: for softmax, whose masked entries would otherwise each cost
    /// an underflow, which processors handle slowly.
    #[inline(always)]
    fn exp_or_zero(self, x: Self::V) -> Self::V {
        math::exp_or_zero(self, x)
    }
    /// 1 / (1 + e^-x).
    #[inline(always)]
    fn sigmoid(self, x: Self::V) -> Self::V {
        math::sigmoid(self, x)
    }
    /// Hyperbolic tangent.
    #[inline(always)]
    fn tanh(self, x: Self::V) -> Self::V {
        math::tanh(self, x)
    }
}

/// Consecutive pieces `(start, len)` of `0..n`, each of `lanes` but perhaps the last.
#[inline(always)]
pub(crate) fn pieces(n: usize, lanes: usize) -> Pieces {
    Pieces { at: 0, n, lanes }
}

/// See [`pieces`]. An iterator and not a function taking a closure: a closure is compiled on its own, for the baseline,
/// unless the optimiser happens to inline it.
pub(crate) struct Pieces {
    at: usize,
    n: usize,
    lanes: usize,
}

impl Iterator for Pieces {
    type Item = (usize, usize);

    #[inline(always)]
    fn next(&mut self) -> Option<(usize, usize)> {
        let start = self.at;
        if start >= self.n {
            return None;
        }
        self.at += self.lanes;
        Some((start, self.lanes.min(self.n - start)))
    }
}
