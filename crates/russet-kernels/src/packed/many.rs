//! Products of many tokens: a strip of rows is taken apart once, into words of 16 bits, and stays in the cache while all tokens
//! pass by in tiles.
//!
//! Both sides are pairs of signed words in a 32-bit lane: weights `code - zero`, activations `x = scale * code` with the
//! largest magnitude of a block becoming [`Strips::TOP`]. Two registers of rows by [`Simd::TILE_TOKENS`] tokens leave room for the exact sums
//! of a block and the f32 sums of all blocks.

use super::few::{float, largest};
use super::{BLOCK, Bits, GROUP, Output, PackedRows, locate, record, share};
use crate::elem::Elem;
use crate::isa::Isa;
use crate::mem::{bytes_of, bytes_of_mut};
use crate::scratch;
use crate::simd::{Kernel, MAX_LANES, Simd};
use crate::threads::Pool;

use half::f16;

/// Weights whose strips can be taken apart into words.
pub(super) trait Strips: Sync {
    /// What the largest magnitude of a block of activations becomes: [`BLOCK`] products of words fit in an i32.
    const TOP: f32;
    /// Rows: n.
    fn n(&self) -> usize;
    /// Blocks of a row.
    fn blocks(&self) -> usize;
    /// Whether blocks have offsets.
    fn offsets(&self) -> bool;
    /// Takes the rows from `row` on apart: for each block the words of every pair of columns, then scales, then offsets. Rows
    /// beyond the last are zero.
    fn unpack<S: Simd>(&self, s: S, row: usize, strip: &mut [i32]);
}

/// Pairs of columns of a block.
pub(super) const PAIRS: usize = BLOCK / 2;
/// Words of a token in a block's record: codes, then scale and sum.
const WORDS: usize = PAIRS + 2;
/// Registers of rows.
pub(super) const REGISTERS: usize = 2;
/// Words of activations per pass: they stay in a core's second cache while every strip passes over them.
const PASS: usize = 1 << 18;

/// Rows of a strip.
#[inline(always)]
pub(super) const fn strip_rows<S: Simd>() -> usize {
    REGISTERS * S::LANES
}

/// Words of a block of a strip: the codes, then scales and offsets.
#[inline(always)]
pub(super) const fn strip_words<S: Simd>() -> usize {
    (PAIRS + 2) * strip_rows::<S>()
}

/// Asks for the rows of a strip and the tokens of a tile.
struct Sizes;

impl Kernel for Sizes {
    type Out = (usize, usize);
    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> (usize, usize) {
        (strip_rows::<S>(), S::TILE_TOKENS)
    }
}

/// `out = x W^T (+ add)` for every output.
pub(super) fn multiply<X: Elem, Y: Elem, W: Strips>(
    isa: Isa,
    pool: &Pool,
    x: &[X],
    k: usize,
    outputs: &[Option<Output<'_, Y, W>>],
) {
    let (strip, tile) = isa.run(Sizes);
    let units = |w: &W| w.n().div_ceil(strip);
    let total = outputs.iter().flatten().map(|o| units(o.weights)).sum();
    let per = share(total, strip * k, pool.threads());
    let per_tile = tile * (k / BLOCK) * WORDS;
    let pass = (PASS / per_tile).max(1) * tile;
    for (i, x) in x.chunks(pass * k).enumerate() {
        let (start, count) = (i * pass, x.len() / k);
        let words = &mut *scratch::words(count.div_ceil(tile) * per_tile);
        pool.for_chunks_mut(words, per_tile, &|i, words| {
            let x = &x[i * tile * k..x.len().min((i + 1) * tile * k)];
            isa.run(Quantize {
                x,
                k,
                top: W::TOP,
                words,
            });
        });
        let words = &*words;
        pool.run(usize::div_ceil(total, per), &|task| {
            for at in task * per..total.min((task + 1) * per) {
                let Some((output, unit)) = locate(outputs, at, units) else {
                    return;
                };
                isa.run(Strip {
                    output,
                    row: unit * strip,
                    words,
                    tokens: (start, count),
                });
            }
        });
    }
}

/// Quantises a tile of tokens into records: for each block every token's codes, then scales, then sums. Tokens beyond the last
/// are zero.
struct Quantize<'a, X> {
    x: &'a [X],
    k: usize,
    top: f32,
    words: &'a mut [i32],
}

impl<X: Elem> Kernel for Quantize<'_, X> {
    type Out = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let tile = S::TILE_TOKENS;
        let tokens = self.x.len() / self.k;
        if tokens < tile {
            self.words.fill(0);
        }
        let mut block = 0;
        while block < self.k / BLOCK {
            let record = &mut self.words[block * tile * WORDS..(block + 1) * tile * WORDS];
            let mut token = 0;
            while token < tokens {
                let from = token * self.k + block * BLOCK;
                quantize_block(s, (&self.x[from..from + BLOCK], self.top), record, token);
                token += 1;
            }
            block += 1;
        }
    }
}

#[inline(always)]
fn quantize_block<S: Simd, X: Elem>(s: S, (x, top): (&[X], f32), record: &mut [i32], token: usize) {
    let (codes, tail) = record.split_at_mut(S::TILE_TOKENS * PAIRS);
    let codes = bytes_of_mut(&mut codes[token * PAIRS..(token + 1) * PAIRS]);
    let (scale, sum) = words_of(s, x, top, codes);
    tail[token] = scale.to_bits().cast_signed();
    tail[S::TILE_TOKENS + token] = sum.to_bits().cast_signed();
}

/// Writes a block's numbers as words of which the largest is `top`, and gives their scale and their sum.
#[inline(always)]
pub(super) fn words_of<S: Simd, X: Elem>(s: S, x: &[X], top: f32, codes: &mut [u8]) -> (f32, f32) {
    let largest = largest(s, x);
    let inverse = s.splat(if largest > 0.0 { top / largest } else { 0.0 });
    let mut sum = s.splat(0.0);
    let mut at = 0;
    while at < BLOCK {
        let code = s.round_int(s.mul(X::load(s, &x[at..]), inverse));
        sum = s.add(sum, code);
        s.store_pairs(code, &mut codes[2 * at..]);
        at += S::LANES;
    }
    let scale = largest / top;
    (scale, scale * s.sum(sum))
}

/// The rows of one strip from `row` on, times tokens `start..start + count` of the result.
struct Strip<'a, Y, W> {
    output: &'a Output<'a, Y, W>,
    row: usize,
    words: &'a [i32],
    tokens: (usize, usize),
}

impl<Y: Elem, W: Strips> Kernel for Strip<'_, Y, W> {
    type Out = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let w = self.output.weights;
        let strip = &mut *scratch::words(w.blocks() * strip_words::<S>());
        w.unpack(s, self.row, strip);
        match (S::TILE_TOKENS, w.offsets()) {
            (6, false) => self.tiles::<S, 6, false>(s, strip),
            (6, true) => self.tiles::<S, 6, true>(s, strip),
            (_, false) => self.tiles::<S, 3, false>(s, strip),
            (_, true) => self.tiles::<S, 3, true>(s, strip),
        }
    }
}

impl Strips for PackedRows {
    const TOP: f32 = 32_767.0;

    fn n(&self) -> usize {
        self.n
    }
    #[inline(always)]
    fn blocks(&self) -> usize {
        self.k / BLOCK
    }
    #[inline(always)]
    fn offsets(&self) -> bool {
        self.offsets
    }
    #[inline(always)]
    fn unpack<S: Simd>(&self, s: S, row: usize, strip: &mut [i32]) {
        match (self.bits, self.half) {
            (Bits::Four, true) => unpack::<S, f16, false>(s, self, row, strip),
            (Bits::Four, false) => unpack::<S, f32, false>(s, self, row, strip),
            (Bits::Eight, true) => unpack::<S, f16, true>(s, self, row, strip),
            (Bits::Eight, false) => unpack::<S, f32, true>(s, self, row, strip),
        }
    }
}

impl<Y: Elem, W: Strips> Strip<'_, Y, W> {
    #[inline(always)]
    fn tiles<S: Simd, const T: usize, const OFFSETS: bool>(&self, s: S, strip: &[i32]) {
        let (start, count) = self.tokens;
        let mut first = 0;
        let words = self.output.weights.blocks() * T * WORDS;
        while first < count {
            let at = first / T * words;
            let sums = tile::<S, T, OFFSETS>(s, strip, &self.words[at..at + words]);
            let mut t = 0;
            while t < T && first + t < count {
                let mut r = 0;
                while r < REGISTERS {
                    let row = self.row + r * S::LANES;
                    self.output.write(s, sums[t][r], start + first + t, row);
                    r += 1;
                }
                t += 1;
            }
            first += T;
        }
    }
}

/// Takes the strip's codes apart: for each block the words of every pair of columns, then scales, then offsets. Rows beyond
/// the last are zero.
#[inline(always)]
fn unpack<S: Simd, P: Elem, const EIGHT: bool>(
    s: S,
    w: &PackedRows,
    row: usize,
    strip: &mut [i32],
) {
    let (chunk, record) = (w.bits.chunk(), record(w.offsets));
    let (codes, params) = (w.codes(), w.params::<P>());
    let mut block = 0;
    while block < w.blocks() {
        let out = &mut strip[block * strip_words::<S>()..(block + 1) * strip_words::<S>()];
        let mut r = 0;
        while r < REGISTERS {
            let (group, lane) = ((row + r * S::LANES) / GROUP, (row + r * S::LANES) % GROUP);
            if group < w.groups() {
                let cell = group * w.blocks() + block;
                let codes = &codes[cell * chunk..(cell + 1) * chunk];
                unpack_codes::<S, EIGHT>(s, codes, (lane, r), w.zero, bytes_of_mut(out));
                let params = &params[cell * record..(cell + 1) * record];
                unpack_params::<S, P>(s, params, (lane, r), out);
            } else {
                clear::<S>(out, r);
            }
            r += 1;
        }
        block += 1;
    }
}

/// Scales, and offsets where there are some, as f32.
#[inline(always)]
fn unpack_params<S: Simd, P: Elem>(s: S, params: &[P], (lane, r): (usize, usize), out: &mut [i32]) {
    let scales = PAIRS * strip_rows::<S>() + r * S::LANES;
    put_floats::<S, P>(s, &params[lane..], &mut out[scales..]);
    if params.len() > GROUP {
        let offsets = &mut out[scales + strip_rows::<S>()..];
        put_floats::<S, P>(s, &params[GROUP + lane..], offsets);
    }
}

#[inline(always)]
fn put_floats<S: Simd, P: Elem>(s: S, from: &[P], out: &mut [i32]) {
    let mut values = [0.0; MAX_LANES];
    s.store(P::load(s, from), &mut values);
    let mut lane = 0;
    while lane < S::LANES {
        out[lane] = values[lane].to_bits().cast_signed();
        lane += 1;
    }
}

/// A register of rows that do not exist.
#[inline(always)]
fn clear<S: Simd>(out: &mut [i32], r: usize) {
    let mut at = r * S::LANES;
    while at < out.len() {
        out[at..at + S::LANES].fill(0);
        at += strip_rows::<S>();
    }
}

/// A stored word has four columns; its even and its odd ones become a pair each.
#[inline(always)]
fn unpack_codes<S: Simd, const EIGHT: bool>(
    s: S,
    codes: &[u8],
    (lane, r): (usize, usize),
    zero: i32,
    out: &mut [u8],
) {
    let zeros = s.ints(zero << 16 | zero);
    let mut c = 0;
    while c < BLOCK / 4 {
        let bytes = if EIGHT {
            s.load_ints(&codes[4 * (GROUP * c + lane)..])
        } else {
            let v = s.load_ints(&codes[4 * (GROUP * (c % 4) + lane)..]);
            if c < 4 {
                s.low_nibbles(v)
            } else {
                s.high_nibbles(v)
            }
        };
        let at = 8 * c * strip_rows::<S>() + 4 * r * S::LANES;
        s.store_ints(s.sub_words(s.even_bytes(bytes), zeros), &mut out[at..]);
        let at = at + 4 * strip_rows::<S>();
        s.store_ints(s.sub_words(s.odd_bytes(bytes), zeros), &mut out[at..]);
        c += 1;
    }
}

/// The sums of a strip's rows for each token of a tile.
#[inline(always)]
fn tile<S: Simd, const T: usize, const OFFSETS: bool>(
    s: S,
    strip: &[i32],
    x: &[i32],
) -> [[S::V; REGISTERS]; T] {
    let mut sums = [[s.splat(0.0); REGISTERS]; T];
    let blocks = strip.len() / strip_words::<S>();
    let scales = 4 * PAIRS * strip_rows::<S>();
    let mut block = 0;
    while block < blocks {
        let w = &strip[block * strip_words::<S>()..(block + 1) * strip_words::<S>()];
        let w = bytes_of(w);
        let x = &x[block * T * WORDS..(block + 1) * T * WORDS];
        let dots = dots::<S, T>(s, &w[..scales], x);
        for r in 0..REGISTERS {
            let at = scales + 4 * r * S::LANES;
            let scale = s.floats(s.load_ints(&w[at..]));
            for t in 0..T {
                let factor = s.mul(scale, s.splat(float(x[T * PAIRS + t])));
                sums[t][r] = s.fma(s.to_float(dots[t][r]), factor, sums[t][r]);
            }
            if OFFSETS {
                let offset = s.floats(s.load_ints(&w[at + 4 * strip_rows::<S>()..]));
                for t in 0..T {
                    let sum = s.splat(float(x[T * PAIRS + T + t]));
                    sums[t][r] = s.fma(offset, sum, sums[t][r]);
                }
            }
        }
        block += 1;
    }
    sums
}

/// The integer products of a block. A loop that stays one: as many products are under way as there are sums.
#[inline(always)]
fn dots<S: Simd, const T: usize>(s: S, w: &[u8], x: &[i32]) -> [[S::I; REGISTERS]; T] {
    let mut dots = [[s.ints(0); REGISTERS]; T];
    let mut pair = 0;
    while pair < PAIRS {
        let mut rows = [s.ints(0); REGISTERS];
        for r in 0..REGISTERS {
            rows[r] = s.load_ints(&w[4 * (pair * strip_rows::<S>() + r * S::LANES)..]);
        }
        for t in 0..T {
            for r in 0..REGISTERS {
                dots[t][r] = s.dot2(dots[t][r], rows[r], x[t * PAIRS + pair]);
            }
        }
        pair += 1;
    }
    dots
}
