//! Products of few tokens: weights are taken apart where they lie, once for up to four tokens. More tokens come in passes of
//! which the cache holds the activations.
//!
//! Four signed bytes of activations are multiplied with four unsigned ones of weights at a time, so an activation is two numbers
//! of 8 bits: `x = scale * (code + fine / 254)`. A start takes off what the weights' zero adds.

use super::{BLOCK, Bits, GROUP, Output, PackedRows, locate, record, share};
use crate::elem::Elem;
use crate::isa::Isa;
use crate::mem::bytes_of_mut;
use crate::scratch;
use crate::simd::{Kernel, Simd};
use crate::threads::Pool;

use half::f16;

/// Words of codes of a token and block, for each of the two numbers.
const CODES: usize = BLOCK / 4;
/// Words of a token in a block's record: the codes of both numbers, its scale, their starts, and its sum.
const WORDS: usize = 2 * CODES + 4;
/// How much finer the second number of an activation is.
const FINER: f32 = 254.0;
/// The tokens of a run, where there are as many.
const RUN: usize = 4;

/// Tokens of a pass.
const PASS: usize = 128;

/// `out = x W^T (+ add)` for every output.
pub(super) fn multiply<X: Elem, Y: Elem>(
    isa: Isa,
    pool: &Pool,
    x: &[X],
    k: usize,
    outputs: &[Option<Output<'_, Y>>],
) {
    let Some(first) = outputs.iter().flatten().next() else {
        return;
    };
    let zero = isa.run(LoadedZero(first.weights));
    let groups = outputs.iter().flatten().map(|o| o.weights.groups()).sum();
    let per = share(groups, GROUP * k, pool.threads());
    let per_run = RUN * (k / BLOCK) * WORDS;
    for (pass, x) in x.chunks(PASS * k).enumerate() {
        let words = &mut *scratch::words(x.len() / BLOCK * WORDS);
        pool.for_chunks_mut(words, per_run, &|i, words| {
            let x = &x[i * RUN * k..];
            isa.run(Quantize { x, k, zero, words });
        });
        let words = &*words;
        pool.run(usize::div_ceil(groups, per), &|task| {
            let tasks = (task * per, groups.min((task + 1) * per));
            multiply_groups(isa, outputs, tasks, (words, pass * PASS));
        });
    }
}

/// Some of the groups of all outputs, times the tokens from `start` on.
fn multiply_groups<Y: Elem>(
    isa: Isa,
    outputs: &[Option<Output<'_, Y>>],
    (mut at, end): (usize, usize),
    (words, start): (&[i32], usize),
) {
    while at < end {
        let Some((output, first)) = locate(outputs, at, PackedRows::groups) else {
            return;
        };
        let last = output.weights.groups().min(first + end - at);
        isa.run(Groups {
            output,
            groups: (first, last),
            words,
            start,
        });
        at += last - first;
    }
}

/// Asks for what stands for zero once codes are loaded.
struct LoadedZero<'a>(&'a PackedRows);

impl Kernel for LoadedZero<'_> {
    type Out = i32;
    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> i32 {
        match self.0.bits {
            Bits::Four => self.0.zero,
            Bits::Eight => self.0.zero - S::BIAS,
        }
    }
}

/// Quantises tokens into records. Tokens go in runs of four or one; a run's record of a block holds every token's codes, then
/// every token's fine codes, then scales, starts, fine starts, and sums.
struct Quantize<'a, X> {
    x: &'a [X],
    k: usize,
    zero: i32,
    words: &'a mut [i32],
}

#[inline(always)]
fn run_of(left: usize) -> usize {
    if left >= RUN { RUN } else { 1 }
}

impl<X: Elem> Kernel for Quantize<'_, X> {
    type Out = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let blocks = self.k / BLOCK;
        let tokens = self.words.len() / (blocks * WORDS);
        let mut first = 0;
        while first < tokens {
            let run = run_of(tokens - first);
            let mut block = 0;
            while block < blocks {
                let at = (first * blocks + block * run) * WORDS;
                let record = &mut self.words[at..at + run * WORDS];
                let mut token = 0;
                while token < run {
                    let from = (first + token) * self.k + block * BLOCK;
                    let x = &self.x[from..from + BLOCK];
                    quantize_block(s, x, self.zero, record, (token, run));
                    token += 1;
                }
                block += 1;
            }
            first += run;
        }
    }
}

/// Both codes of one token's block: the largest magnitude becomes 127, the second code takes up what the first leaves.
#[inline(always)]
fn quantize_block<S: Simd, X: Elem>(
    s: S,
    x: &[X],
    zero: i32,
    record: &mut [i32],
    (token, run): (usize, usize),
) {
    let largest = largest(s, x);
    let inverse = s.splat(if largest > 0.0 { 127.0 / largest } else { 0.0 });
    let (words, tail) = record.split_at_mut(2 * run * CODES);
    let mut sums = [s.splat(0.0); 2];
    let mut at = 0;
    while at < BLOCK {
        let mut rest = s.mul(X::load(s, &x[at..]), inverse);
        let mut term = 0;
        while term < 2 {
            let code = s.round_int(rest);
            rest = s.mul(s.sub(rest, code), s.splat(FINER));
            sums[term] = s.add(sums[term], code);
            let place = term * run * CODES + S::place(token, run, at / 4);
            s.store_i8(code, bytes_of_mut(&mut words[place..]));
            term += 1;
        }
        at += S::LANES;
    }
    let scale = largest / 127.0;
    let [coarse, fine] = [s.sum(sums[0]), s.sum(sums[1])];
    let sum = scale * (coarse + fine / FINER);
    tail[token] = scale.to_bits().cast_signed();
    tail[run + token] = -zero * coarse as i32;
    tail[2 * run + token] = -zero * fine as i32;
    tail[3 * run + token] = sum.to_bits().cast_signed();
}

/// The largest magnitude of a block.
#[inline(always)]
pub(super) fn largest<S: Simd, X: Elem>(s: S, x: &[X]) -> f32 {
    let mut largest = s.splat(0.0);
    let mut at = 0;
    while at < BLOCK {
        largest = s.max(s.abs(X::load(s, &x[at..])), largest);
        at += S::LANES;
    }
    s.max_lane(largest)
}

/// Groups of rows of one output times the tokens of a pass, which are `start..` of the result.
struct Groups<'a, Y> {
    output: &'a Output<'a, Y>,
    groups: (usize, usize),
    words: &'a [i32],
    start: usize,
}

impl<Y: Elem> Kernel for Groups<'_, Y> {
    type Out = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let w = self.output.weights;
        match (w.bits, w.offsets, w.half) {
            (Bits::Four, false, true) => self.groups::<S, f16, false, false>(s),
            (Bits::Four, true, true) => self.groups::<S, f16, false, true>(s),
            (Bits::Eight, false, true) => self.groups::<S, f16, true, false>(s),
            (Bits::Eight, true, true) => self.groups::<S, f16, true, true>(s),
            (Bits::Four, false, false) => self.groups::<S, f32, false, false>(s),
            (Bits::Four, true, false) => self.groups::<S, f32, false, true>(s),
            (Bits::Eight, false, false) => self.groups::<S, f32, true, false>(s),
            (Bits::Eight, true, false) => self.groups::<S, f32, true, true>(s),
        }
    }
}

impl<Y: Elem> Groups<'_, Y> {
    /// Every group in turn: its codes stay near while the tokens pass by.
    #[inline(always)]
    fn groups<S: Simd, P: Elem, const EIGHT: bool, const OFFSETS: bool>(&self, s: S) {
        let words = self.output.weights.blocks() * WORDS;
        let tokens = self.words.len() / words;
        let mut group = self.groups.0;
        while group < self.groups.1 {
            let mut first = 0;
            while first < tokens {
                let run = run_of(tokens - first);
                let x = &self.words[first * words..(first + run) * words];
                if run == RUN {
                    self.run_of::<S, P, RUN, EIGHT, OFFSETS>(s, x, first, group);
                } else {
                    self.run_of::<S, P, 1, EIGHT, OFFSETS>(s, x, first, group);
                }
                first += run;
            }
            group += 1;
        }
    }

    /// A group times `T` tokens from `first` of the pass on, whose records are `x`.
    #[inline(always)]
    fn run_of<S: Simd, P: Elem, const T: usize, const EIGHT: bool, const OFFSETS: bool>(
        &self,
        s: S,
        x: &[i32],
        first: usize,
        group: usize,
    ) {
        let (w, blocks) = (self.output.weights, self.output.weights.blocks());
        let bits = if EIGHT { Bits::Eight } else { Bits::Four };
        let (chunk, record) = (bits.chunk(), record(OFFSETS));
        let codes = &w.codes()[group * blocks * chunk..(group + 1) * blocks * chunk];
        let params = &w.params::<P>()[group * blocks * record..(group + 1) * blocks * record];
        let mut lane = 0;
        while lane < GROUP {
            let sums = lanes::<S, P, T, EIGHT, OFFSETS>(s, (codes, params), x, lane);
            let mut t = 0;
            while t < T {
                let row = group * GROUP + lane;
                self.output.write(s, sums[t], self.start + first + t, row);
                t += 1;
            }
            lane += S::LANES;
        }
    }
}

/// The sums of the rows from `lane` of a group on, for each token.
#[inline(always)]
fn lanes<S: Simd, P: Elem, const T: usize, const EIGHT: bool, const OFFSETS: bool>(
    s: S,
    (codes, params): (&[u8], &[P]),
    x: &[i32],
    lane: usize,
) -> [S::V; T] {
    let bits = if EIGHT { Bits::Eight } else { Bits::Four };
    let mut sums = [s.splat(0.0); T];
    let (chunk, record) = (bits.chunk(), record(OFFSETS));
    let mut block = 0;
    while block * chunk < codes.len() {
        let codes = &codes[block * chunk..(block + 1) * chunk];
        let params = &params[block * record..(block + 1) * record];
        let x = &x[block * T * WORDS..(block + 1) * T * WORDS];
        let weights = load_codes::<S, EIGHT>(s, codes, lane);
        let starts = &x[2 * T * CODES + T..];
        let coarse: [S::I; T] = s.dot_tokens::<EIGHT, T>(starts, &weights, &x[..T * CODES]);
        let fine = &x[T * CODES..2 * T * CODES];
        let fine: [S::I; T] = s.dot_tokens::<EIGHT, T>(&starts[T..], &weights, fine);
        let scale = P::load(s, &params[lane..]);
        let mut t = 0;
        while t < T {
            let dot = s.fma(
                s.to_float(fine[t]),
                s.splat(1.0 / FINER),
                s.to_float(coarse[t]),
            );
            let factor = s.mul(scale, s.splat(float(x[2 * T * CODES + t])));
            sums[t] = s.fma(dot, factor, sums[t]);
            if OFFSETS {
                let sum = s.splat(float(x[2 * T * CODES + 3 * T + t]));
                sums[t] = s.fma(P::load(s, &params[GROUP + lane..]), sum, sums[t]);
            }
            t += 1;
        }
        block += 1;
    }
    sums
}

#[inline(always)]
pub(super) fn float(word: i32) -> f32 {
    f32::from_bits(word.cast_unsigned())
}

/// The eight registers of a block's codes, four columns in each.
#[inline(always)]
fn load_codes<S: Simd, const EIGHT: bool>(s: S, codes: &[u8], lane: usize) -> [S::I; CODES] {
    let mut w = [s.ints(0); CODES];
    let mut c = 0;
    while c < CODES / 2 {
        if EIGHT {
            w[c] = s.load_wide(&codes[4 * (GROUP * c + lane)..]);
            w[c + 4] = s.load_wide(&codes[4 * (GROUP * (c + 4) + lane)..]);
        } else {
            let v = s.load_ints(&codes[4 * (GROUP * c + lane)..]);
            w[c] = s.low_nibbles(v);
            w[c + 4] = s.high_nibbles(v);
        }
        c += 1;
    }
    w
}
