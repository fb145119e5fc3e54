//! Many queries with integers: half precision in words of 16 bits, two of which are multiplied and added at once.
//!
//! Keys and values are turned into words once a call, in chunks. A key has one scale; a chunk's values have one a column, and pairs of keys
//! lie together. Queries lie along the lanes as in the parent and go along the chunks with a running maximum. Weights are relative
//! to the largest of their own chunk, so that a chunk that counts little is not rounded away. What is left of the operands is 12
//! bits and a sign, as sums of a row of products have to fit in 32 bits: half precision has one bit less.

use super::online::Running;
use super::{Attention, Cached, Lanes, Limits, MAX_WIDTH, Output, Step, for_blocks};
use crate::elem::{Elem, Rounding};
use crate::gemm;
use crate::isa::Isa;
use crate::mem::{bytes_of, bytes_of_mut};
use crate::scratch;
use crate::simd::{Kernel, MAX_LANES, Simd};
use crate::threads::Pool;

/// Keys of a chunk.
const CHUNK: usize = 64;
/// The largest code of a weight, and of a value: `CHUNK` times their product fits.
const WEIGHT: f32 = 8191.0;
const VALUE: f32 = 4095.0;

/// Whether [`attention`] computes `a`.
pub(super) fn applies<T: Elem, C: Cached>(isa: Isa, a: &Attention<'_, T, C>) -> bool {
    !a.exact && T::ROUNDING != Rounding::F32 && isa.run(FastWords)
}

/// Asks whether words are worth it.
struct FastWords;

impl Kernel for FastWords {
    type Out = bool;
    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> bool {
        S::FAST_WORDS
    }
}

/// Computes `a`.
pub(super) fn attention<T: Elem, C: Cached>(
    isa: Isa,
    pool: &Pool,
    a: &Attention<'_, T, C>,
    out: &Output<'_, T>,
) {
    let (low, high) = (a.visible(0).0, a.visible(a.m - 1).1);
    let shape = Shape {
        low,
        high: high.max(low),
        pairs: a.d.next_multiple_of(MAX_LANES) / 2,
        columns: a.dv.next_multiple_of(MAX_LANES),
    };
    let chunks = (shape.high - low).div_ceil(CHUNK);
    let words = &mut *scratch::words(a.kv_heads * chunks * shape.chunk());
    pool.for_chunks_mut(words, shape.chunk(), &|i, words| {
        isa.run(Quantize {
            a,
            shape,
            kv_head: i / chunks,
            first: low + i % chunks * CHUNK,
            words,
        });
    });
    let words = &*words;
    for_blocks(isa, pool, a, &|lanes| {
        let head = chunks * shape.chunk();
        isa.run(Block {
            lanes,
            shape,
            words: &words[lanes.kv_head * head..(lanes.kv_head + 1) * head],
            out,
        });
    });
}

/// What is quantised, and how large a chunk's record is: the keys' words, their scales, the values' words (pair of keys by column, the
/// second and third of every four columns exchanged), and the columns' scales.
#[derive(Clone, Copy)]
struct Shape {
    low: usize,
    high: usize,
    /// Words of a key: with zeros beyond its width.
    pairs: usize,
    /// Columns of values, likewise.
    columns: usize,
}

impl Shape {
    #[inline(always)]
    fn key_scales(&self) -> usize {
        CHUNK * self.pairs
    }
    #[inline(always)]
    fn values(&self) -> usize {
        self.key_scales() + CHUNK
    }
    #[inline(always)]
    fn value_scales(&self) -> usize {
        self.values() + CHUNK / 2 * self.columns
    }
    #[inline(always)]
    fn chunk(&self) -> usize {
        self.value_scales() + self.columns
    }
    /// The largest code of a query or key: a row of products fits.
    #[inline(always)]
    fn largest_code(&self) -> f32 {
        (2_147_483_000.0 / (2 * self.pairs) as f32)
            .sqrt()
            .min(32_767.0)
            .floor()
    }
}

/// Turns one chunk of a head's keys and values into words.
struct Quantize<'a, T, C> {
    a: &'a Attention<'a, T, C>,
    shape: Shape,
    kv_head: usize,
    first: usize,
    words: &'a mut [i32],
}

impl<T: Elem, C: Cached> Kernel for Quantize<'_, T, C> {
    type Out = ();
    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let count = CHUNK.min(self.shape.high - self.first);
        if count < CHUNK {
            self.words.fill(0);
        }
        self.keys(s, count);
        self.values(s, count);
    }
}

impl<T: Elem, C: Cached> Quantize<'_, T, C> {
    #[inline(always)]
    fn keys<S: Simd>(&mut self, s: S, count: usize) {
        let (keys, rest) = self.words.split_at_mut(self.shape.key_scales());
        let mut i = 0;
        while i < count {
            let (key, scale) = self.a.key(self.kv_head, self.first + i);
            let words = &mut keys[i * self.shape.pairs..(i + 1) * self.shape.pairs];
            rest[i] = quantize_row(s, key, scale, self.shape.largest_code(), words)
                .to_bits()
                .cast_signed();
            i += 1;
        }
    }

    #[inline(always)]
    fn values<S: Simd>(&mut self, s: S, count: usize) {
        let (a, columns) = (self.a, self.shape.columns);
        let (kv_head, first) = (self.kv_head, self.first);
        let at = |i: usize| (kv_head, first + i);
        let (values, scales) = self.words[self.shape.values()..].split_at_mut(CHUNK / 2 * columns);
        let mut c = 0;
        while c < columns {
            let len = S::LANES.min(a.dv.saturating_sub(c));
            let mut largest = s.splat(0.0);
            let mut i = 0;
            while i < count && len > 0 {
                let v = value(s, a, at(i), c, len);
                largest = s.max(s.abs(v), largest);
                i += 1;
            }
            let safe = s.max(largest, s.splat(f32::MIN_POSITIVE));
            let inverse = s.div(s.splat(VALUE), safe);
            put_scales(s, s.mul(largest, s.splat(1.0 / VALUE)), &mut scales[c..]);
            let mut pair = 0;
            while 2 * pair < count && len > 0 {
                let words = &mut values[pair * columns + c..][..S::LANES];
                let mut codes = [[0; MAX_LANES]; 2];
                let mut j = 0;
                while j < 2 && 2 * pair + j < count {
                    let v = s.mul(value(s, a, at(2 * pair + j), c, len), inverse);
                    s.store_pairs(s.round_int(v), bytes_of_mut(&mut codes[j]));
                    j += 1;
                }
                join(&codes, words);
                pair += 1;
            }
            c += S::LANES;
        }
    }
}

/// `len` columns of a value, from column `c` on.
#[inline(always)]
fn value<S: Simd, T: Elem, C: Cached>(
    s: S,
    a: &Attention<'_, T, C>,
    (kv_head, row): (usize, usize),
    c: usize,
    len: usize,
) -> S::V {
    let (value, scale) = a.value(kv_head, row);
    let v = C::load_codes(s, &value[c..], len);
    if C::TAIL > 0 {
        s.mul(v, s.splat(scale))
    } else {
        v
    }
}

/// Words whose low half is of the first row and whose high half is of the second.
#[inline(always)]
fn join(codes: &[[i16; MAX_LANES]; 2], words: &mut [i32]) {
    let mut l = 0;
    while l < words.len() {
        words[l] = i32::from(codes[0][l]) & 0xffff | i32::from(codes[1][l]) << 16;
        l += 1;
    }
}

/// Column scales, in the order of the values' words.
#[inline(always)]
fn put_scales<S: Simd>(s: S, scale: S::V, out: &mut [i32]) {
    let mut lanes = [0.0; MAX_LANES];
    s.store(scale, &mut lanes);
    let mut l = 0;
    while l < S::LANES {
        out[l] = lanes[place(l)].to_bits().cast_signed();
        l += 1;
    }
}

/// Where column `c` lies among the words, and the other way round.
#[inline(always)]
fn place(c: usize) -> usize {
    c & !3 | (c & 1) << 1 | (c & 2) >> 1
}

/// A row times `factor` as words of codes up to `limit`; returns the scale.
#[inline(always)]
fn quantize_row<S: Simd, C: Cached>(
    s: S,
    row: &[C],
    factor: f32,
    limit: f32,
    words: &mut [i32],
) -> f32 {
    let mut largest = s.splat(0.0);
    let mut c = 0;
    while c < row.len() {
        let len = S::LANES.min(row.len() - c);
        largest = s.max(s.abs(C::load_codes(s, &row[c..], len)), largest);
        c += S::LANES;
    }
    let largest = s.max_lane(largest);
    let inverse = s.splat(if largest > 0.0 { limit / largest } else { 0.0 });
    let out = bytes_of_mut(words);
    let mut c = 0;
    while 2 * c < out.len() {
        let len = S::LANES.min(row.len().saturating_sub(c));
        let v = if len > 0 {
            C::load_codes(s, &row[c..], len)
        } else {
            s.splat(0.0)
        };
        s.store_pairs(s.round_int(s.mul(v, inverse)), &mut out[2 * c..]);
        c += S::LANES;
    }
    factor * largest / limit
}

/// A block of queries of one head.
struct Block<'a, T, C> {
    lanes: Lanes<'a, T, C>,
    shape: Shape,
    words: &'a [i32],
    out: &'a Output<'a, T>,
}

impl<T: Elem, C: Cached> Kernel for Block<'_, T, C> {
    type Out = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let count = self.lanes.count(gemm::panel_width::<S>());
        let pass = Pass {
            step: Step {
                lanes: self.lanes,
                limits: Limits::new(&self.lanes, count),
                count,
                rounding: Rounding::F32,
            },
            shape: self.shape,
            words: self.words,
        };
        // Eight rows where there are registers for them.
        match (S::TILE_ROWS >= 8, count <= S::LANES) {
            (true, true) => pass.run::<S, 8, 1>(s, self.out),
            (true, false) => pass.run::<S, 8, 2>(s, self.out),
            (false, true) => pass.run::<S, 4, 1>(s, self.out),
            (false, false) => pass.run::<S, 4, 2>(s, self.out),
        }
    }
}

struct Pass<'a, T, C> {
    step: Step<'a, T, C>,
    shape: Shape,
    words: &'a [i32],
}

/// What a chunk leaves behind: weights as words of two keys, and the factors of the sums before and of its own.
struct Weights {
    words: [i32; CHUNK / 2 * MAX_WIDTH],
    before: [f32; MAX_WIDTH],
    own: [f32; MAX_WIDTH],
}

impl<T: Elem, C: Cached> Pass<'_, T, C> {
    #[inline(always)]
    fn run<S: Simd, const R: usize, const N: usize>(&self, s: S, out: &Output<'_, T>) {
        let (shape, keys) = (self.shape, self.step.limits.keys);
        let width = gemm::panel_width::<S>();
        let queries = &mut *scratch::words(shape.pairs * width);
        let mut scales = [0.0; MAX_WIDTH];
        self.queries(s, queries, &mut scales);
        let sums = &mut *scratch::floats(shape.columns * width);
        sums.fill(0.0);
        let mut running = self.step.start(s);
        let mut scores = [0.0; CHUNK * MAX_WIDTH];
        let mut weights = Weights {
            words: [0; CHUNK / 2 * MAX_WIDTH],
            before: [0.0; MAX_WIDTH],
            own: [0.0; MAX_WIDTH],
        };
        let mut first = keys.0 - (keys.0.max(shape.low) - shape.low) % CHUNK;
        while first < keys.1 {
            let at = (first - shape.low) / CHUNK * shape.chunk();
            let chunk = &self.words[at..at + shape.chunk()];
            self.scores::<S, R, N>(s, chunk, (queries, &scales), &mut scores);
            let mut register = 0;
            while register < N {
                self.weights(
                    s,
                    first,
                    register,
                    &mut running,
                    (&mut scores, &mut weights),
                );
                register += 1;
            }
            self.values::<S, R, N>(s, chunk, &weights, sums);
            first += CHUNK;
        }
        self.write(s, sums, &running, out);
    }

    /// The scaled queries as words, panel[pair][lane], with a scale a lane.
    #[inline(always)]
    fn queries<S: Simd>(&self, s: S, panel: &mut [i32], scales: &mut [f32; MAX_WIDTH]) {
        let (a, width) = (self.step.lanes.a, gemm::panel_width::<S>());
        let row = &mut *scratch::words(self.shape.pairs);
        panel.fill(0);
        let mut l = 0;
        while l < self.step.count {
            let (head, i) = self.step.lanes.query(l);
            let q = a.q.row(head, i, a.d);
            scales[l] = quantize_row(s, q, a.scale, self.shape.largest_code(), row);
            let mut pair = 0;
            while pair < row.len() {
                panel[pair * width + l] = row[pair];
                pair += 1;
            }
            l += 1;
        }
    }

    /// scores[key][lane] of a chunk.
    #[inline(always)]
    fn scores<S: Simd, const R: usize, const N: usize>(
        &self,
        s: S,
        chunk: &[i32],
        (queries, scales): (&[i32], &[f32; MAX_WIDTH]),
        scores: &mut [f32; CHUNK * MAX_WIDTH],
    ) {
        let (shape, width) = (self.shape, gemm::panel_width::<S>());
        let key_scales = &chunk[shape.key_scales()..shape.values()];
        let mut key = 0;
        while key < CHUNK {
            let rows = &chunk[key * shape.pairs..(key + R) * shape.pairs];
            let dots = dots::<S, R, N>(s, rows, (shape.pairs, 1), queries, shape.pairs);
            let mut r = 0;
            while r < R {
                let scale = s.splat(f32::from_bits(key_scales[key + r].cast_unsigned()));
                for n in 0..N {
                    let factor = s.mul(s.load(&scales[n * S::LANES..]), scale);
                    let score = s.mul(s.to_float(dots[r][n]), factor);
                    s.store(score, &mut scores[(key + r) * width + n * S::LANES..]);
                }
                r += 1;
            }
            key += R;
        }
    }

    /// A chunk's weights, relative to its own largest score.
    #[inline(always)]
    fn weights<S: Simd>(
        &self,
        s: S,
        first: usize,
        register: usize,
        running: &mut Running,
        (scores, weights): (&mut [f32; CHUNK * MAX_WIDTH], &mut Weights),
    ) {
        let (at, width) = (register * S::LANES, gemm::panel_width::<S>());
        let lowest = s.splat(f32::MIN);
        let own = self
            .step
            .mask_chunk(s, (first, CHUNK), register, lowest, scores);
        let mut total = s.splat(0.0);
        let mut i = 0;
        while i < CHUNK {
            let a = s.exp_or_zero(s.sub(s.load(&scores[i * width + at..]), own));
            let b = s.exp_or_zero(s.sub(s.load(&scores[(i + 1) * width + at..]), own));
            total = s.add(total, s.add(a, b));
            let code = s.splat(WEIGHT);
            let words = s.join_words(s.round_int(s.mul(a, code)), s.round_int(s.mul(b, code)));
            let place = i / 2 * width + at;
            s.store_ints(
                words,
                bytes_of_mut(&mut weights.words[place..place + S::LANES]),
            );
            i += 2;
        }
        let before = s.load(&running.largest[at..]);
        let largest = s.max(own, before);
        let fade = s.exp_or_zero(s.sub(before, largest));
        let factor = s.exp_or_zero(s.sub(own, largest));
        let total = s.fma(total, factor, s.mul(s.load(&running.total[at..]), fade));
        s.store(largest, &mut running.largest[at..]);
        s.store(total, &mut running.total[at..]);
        s.store(fade, &mut weights.before[at..]);
        s.store(s.mul(factor, s.splat(1.0 / WEIGHT)), &mut weights.own[at..]);
    }

    /// sums[column][lane] = what was there, faded, plus the chunk's values by their weights.
    #[inline(always)]
    fn values<S: Simd, const R: usize, const N: usize>(
        &self,
        s: S,
        chunk: &[i32],
        weights: &Weights,
        sums: &mut [f32],
    ) {
        let (shape, width) = (self.shape, gemm::panel_width::<S>());
        let (values, scales) = chunk[shape.values()..].split_at(CHUNK / 2 * shape.columns);
        let panel = &weights.words[..CHUNK / 2 * width];
        let mut c = 0;
        while c < shape.columns {
            let rows = &values[c..];
            let dots = dots::<S, R, N>(s, rows, (1, shape.columns), panel, CHUNK / 2);
            let mut r = 0;
            while r < R {
                let scale = s.splat(f32::from_bits(scales[c + r].cast_unsigned()));
                for n in 0..N {
                    let factor = s.mul(s.load(&weights.own[n * S::LANES..]), scale);
                    let sum = &mut sums[(c + r) * width + n * S::LANES..];
                    let before = s.mul(s.load(sum), s.load(&weights.before[n * S::LANES..]));
                    s.store(s.fma(s.to_float(dots[r][n]), factor, before), sum);
                }
                r += 1;
            }
            c += R;
        }
    }

    /// Divides by the totals and puts every query's row in its place.
    #[inline(always)]
    fn write<S: Simd>(&self, s: S, sums: &[f32], running: &Running, out: &Output<'_, T>) {
        let (a, width) = (self.step.lanes.a, gemm::panel_width::<S>());
        let row = &mut *scratch::floats(self.shape.columns);
        let mut l = 0;
        while l < self.step.count {
            // A query that sees nothing has total 0: it gets zeros.
            let inverse = 1.0 / running.total[l].max(f32::MIN_POSITIVE);
            let mut c = 0;
            while c < row.len() {
                let (row, sums) = (&mut row[c..c + 4], &sums[c * width..(c + 4) * width]);
                row[0] = sums[l] * inverse;
                row[1] = sums[2 * width + l] * inverse;
                row[2] = sums[width + l] * inverse;
                row[3] = sums[3 * width + l] * inverse;
                c += 4;
            }
            let (head, i) = self.step.lanes.query(l);
            // SAFETY: each (head, row) belongs to one lane of one task, and `check` saw that rows do not overlap.
            let out = unsafe {
                out.rows
                    .part(head * out.head_stride + i * out.row_stride, a.dv)
            };
            let mut c = 0;
            while c < a.dv {
                let len = S::LANES.min(a.dv - c);
                T::store_part(s, f32::load_part(s, &row[c..], len), &mut out[c..], len);
                c += S::LANES;
            }
            l += 1;
        }
    }
}

/// Sums over `columns` of words (row, column) times panel[column][lane], for `R` rows and `N` registers.
#[inline(always)]
fn dots<S: Simd, const R: usize, const N: usize>(
    s: S,
    words: &[i32],
    (row_stride, column_stride): (usize, usize),
    panel: &[i32],
    columns: usize,
) -> [[S::I; N]; R] {
    let width = gemm::panel_width::<S>();
    let end = (R - 1) * row_stride + columns.saturating_sub(1) * column_stride;
    assert!(
        end < words.len() && columns * width <= panel.len(),
        "dots: lengths"
    );
    let mut dots = [[s.ints(0); N]; R];
    let mut column = 0;
    while column < columns {
        let lanes = bytes_of(&panel[column * width..(column + 1) * width]);
        let mut x = [s.ints(0); N];
        for n in 0..N {
            x[n] = s.load_ints(&lanes[4 * n * S::LANES..]);
        }
        let mut r = 0;
        while r < R {
            // SAFETY: `r` < R and `column` < `columns`, so the index is at most `end`, which was checked.
            let word = unsafe { *words.get_unchecked(r * row_stride + column * column_stride) };
            for n in 0..N {
                dots[r][n] = s.dot2(dots[r][n], x[n], word);
            }
            r += 1;
        }
        column += 1;
    }
    dots
}
