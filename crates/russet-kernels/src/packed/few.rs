//! Products of few tokens: weights are taken apart where they lie, once for up to four tokens.
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

/// `out = x W^T (+ add)` for every output.
pub(super) fn multiply<X: Elem, Y: Elem>(
    isa: Isa,
    pool: &Pool,
    x: &[X],
    zero: i32,
    outputs: &[Option<Output<'_, Y>>],
) {
    let Some(k) = outputs.iter().flatten().map(|o| o.weights.k).next() else {
        return;
    };
    let words = &mut *scratch::words(x.len() / BLOCK * WORDS);
    isa.run(Quantize { x, k, zero, words });
    let words = &*words;
    let groups = outputs.iter().flatten().map(|o| o.weights.groups()).sum();
    let per = share(groups, GROUP * k, pool.threads());
    pool.run(usize::div_ceil(groups, per), &|task| {
        let mut at = task * per;
        let end = groups.min(at + per);
        while at < end {
            let Some((output, first)) = locate(outputs, at, PackedRows::groups) else {
                return;
            };
            let last = output.weights.groups().min(first + end - at);
            isa.run(Groups {
                output,
                groups: (first, last),
                words,
            });
            at += last - first;
        }
    });
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
        let (blocks, tokens) = (self.k / BLOCK, self.x.len() / self.k);
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
            let first = (term * run + token) * CODES;
            let codes = bytes_of_mut(&mut words[first..first + CODES]);
            s.store_i8(code, &mut codes[at..]);
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

/// Groups of rows of one output times all tokens.
struct Groups<'a, Y> {
    output: &'a Output<'a, Y>,
    groups: (usize, usize),
    words: &'a [i32],
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
    #[inline(always)]
    fn groups<S: Simd, P: Elem, const EIGHT: bool, const OFFSETS: bool>(&self, s: S) {
        let words = self.output.weights.blocks() * WORDS;
        let tokens = self.words.len() / words;
        let mut first = 0;
        while first < tokens {
            let run = run_of(tokens - first);
            let x = &self.words[first * words..(first + run) * words];
            if run == RUN {
                self.run_of::<S, P, RUN, EIGHT, OFFSETS>(s, x, first);
            } else {
                self.run_of::<S, P, 1, EIGHT, OFFSETS>(s, x, first);
            }
            first += run;
        }
    }

    /// Every group times `T` tokens from `first` on, whose records are `x`.
    #[inline(always)]
    fn run_of<S: Simd, P: Elem, const T: usize, const EIGHT: bool, const OFFSETS: bool>(
        &self,
        s: S,
        x: &[i32],
        first: usize,
    ) {
        let (w, blocks) = (self.output.weights, self.output.weights.blocks());
        let bits = if EIGHT { Bits::Eight } else { Bits::Four };
        let (chunk, record) = (bits.chunk(), record(OFFSETS));
        let (codes, params) = (w.codes(), w.params::<P>());
        let mut group = self.groups.0;
        while group < self.groups.1 {
            let codes = &codes[group * blocks * chunk..(group + 1) * blocks * chunk];
            let params = &params[group * blocks * record..(group + 1) * blocks * record];
            let mut lane = 0;
            while lane < GROUP {
                let sums = lanes::<S, P, T, EIGHT, OFFSETS>(s, (codes, params), x, lane);
                let mut t = 0;
                while t < T {
                    let row = group * GROUP + lane;
                    self.output.write(s, sums[t], first + t, row);
                    t += 1;
                }
                lane += S::LANES;
            }
            group += 1;
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
        let coarse = dots::<S, T, EIGHT>(s, &weights, &x[..T * CODES], &x[2 * T * CODES + T..]);
        let fine = &x[T * CODES..2 * T * CODES];
        let fine = dots::<S, T, EIGHT>(s, &weights, fine, &x[2 * T * CODES + 2 * T..]);
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

/// The integer products of a block's codes with one number of `T` tokens.
#[inline(always)]
fn dots<S: Simd, const T: usize, const EIGHT: bool>(
    s: S,
    weights: &[S::I; CODES],
    x: &[i32],
    starts: &[i32],
) -> [S::I; T] {
    let mut dots = [s.ints(0); T];
    for t in 0..T {
        dots[t] = s.ints(starts[t]);
    }
    for c in 0..CODES {
        for t in 0..T {
            dots[t] = s.dot4::<EIGHT>(dots[t], weights[c], x[t * CODES + c]);
        }
    }
    dots
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
        let v = s.load_ints(&codes[4 * (GROUP * c + lane)..]);
        if EIGHT {
            w[c] = v;
            w[c + 4] = s.load_ints(&codes[4 * (GROUP * (c + 4) + lane)..]);
        } else {
            w[c] = s.low_nibbles(v);
            w[c + 4] = s.high_nibbles(v);
        }
        c += 1;
    }
    w
}
