//! Products of bytes, which is where the generations of 64-bit Arm processors differ: [`Plain`] widens, [`Dot`] has the
//! dot product instruction of Armv8.2, [`Matrix`] the product of two rows with two columns of Armv8.6 besides.
//!
//! All multiply signed bytes with signed bytes; codes of eight bits are unsigned, so they are loaded less 128
//! ([`Simd::BIAS`](crate::simd::Simd::BIAS)). The pinned compiler does not offer the intrinsics of the newer instructions yet: they are spelled out.

use std::arch::aarch64::*;
use std::arch::{asm, is_aarch64_feature_detected};

use super::Neon;
use crate::simd::Kernel;
use crate::simd::registers::on_registers;

/// Byte products of the first 64-bit processors.
#[derive(Clone, Copy, Debug)]
pub struct Plain(());

/// Byte products of the dot product extension (`dotprod`).
#[derive(Clone, Copy, Debug)]
pub struct Dot(());

/// Byte products of the matrix multiplication extension (`i8mm`).
#[derive(Clone, Copy, Debug)]
pub struct Matrix(Dot);

impl Neon<Plain> {
    /// The token: the target has NEON.
    pub fn detect() -> Option<Self> {
        Some(Self(Plain(())))
    }
}

impl Neon<Dot> {
    /// The token, if this machine has the instructions.
    pub fn detect() -> Option<Self> {
        is_aarch64_feature_detected!("dotprod").then_some(Self(Dot(())))
    }
}

impl Neon<Matrix> {
    /// The token, if this machine has the instructions.
    pub fn detect() -> Option<Self> {
        let Neon(dot) = Neon::<Dot>::detect()?;
        is_aarch64_feature_detected!("i8mm").then_some(Self(Matrix(dot)))
    }
}

/// How bytes are multiplied: signed bytes, exactly.
pub trait Products: Copy + Send + Sync + 'static {
    /// See [`Simd::FEW`](crate::simd::Simd::FEW).
    const FEW: usize;
    /// Runs `kernel` in a function compiled with the instructions.
    fn vectorize<K: Kernel>(s: Neon<Self>, kernel: K) -> K::Out;
    /// `sum` plus, in each lane, the product of four bytes of `a` and of `b`.
    fn dot4(self, sum: int32x4_t, a: int32x4_t, b: int32x4_t) -> int32x4_t;
    /// See [`Simd::dot_tokens`](crate::simd::Simd::dot_tokens).
    fn dot_tokens<const N: usize>(
        self,
        starts: &[i32],
        codes: &[int32x4_t; 8],
        x: &[i32],
    ) -> [int32x4_t; N];
    /// See [`Simd::place`](crate::simd::Simd::place).
    fn place(token: usize, run: usize, c: usize) -> usize;
}

/// Four words.
#[inline(always)]
fn load_words(x: &[i32]) -> int32x4_t {
    let p = x[..4].as_ptr();
    // SAFETY: every target with this file has NEON; four words are readable at `p`.
    unsafe { vld1q_s32(p) }
}

impl Products for Plain {
    const FEW: usize = 8;
    #[inline]
    fn vectorize<K: Kernel>(s: Neon<Self>, kernel: K) -> K::Out {
        kernel.run(s)
    }
    on_registers! {
        dot4(sum: int32x4_t, a: int32x4_t, b: int32x4_t) -> int32x4_t = widened_dot(sum, a, b);
    }
    #[inline(always)]
    fn dot_tokens<const N: usize>(
        self,
        starts: &[i32],
        codes: &[int32x4_t; 8],
        x: &[i32],
    ) -> [int32x4_t; N] {
        let mut dots = splat_starts(starts);
        for c in 0..8 {
            for i in 0..N {
                let word = load_word(&x[i * 8 + c..]);
                dots[i] = self.dot4(dots[i], codes[c], word);
            }
        }
        dots
    }
    #[inline(always)]
    fn place(token: usize, _run: usize, c: usize) -> usize {
        token * 8 + c
    }
}

impl Products for Dot {
    // Sixteen bits as two numbers of eight cost half of what words do.
    const FEW: usize = usize::MAX;
    #[inline]
    fn vectorize<K: Kernel>(s: Neon<Self>, kernel: K) -> K::Out {
        #[target_feature(enable = "dotprod")]
        fn inner<K: Kernel>(kernel: K, s: Neon<Dot>) -> K::Out {
            kernel.run(s)
        }
        // SAFETY: the token exists only where `detect` found the instructions.
        unsafe { inner(kernel, s) }
    }
    on_registers! {
        dot4(sum: int32x4_t, a: int32x4_t, b: int32x4_t) -> int32x4_t = sdot(sum, a, b);
    }
    /// Words of activations are taken from registers of four: a broadcast each would cost as much as the product.
    #[inline(always)]
    fn dot_tokens<const N: usize>(
        self,
        starts: &[i32],
        codes: &[int32x4_t; 8],
        x: &[i32],
    ) -> [int32x4_t; N] {
        let mut dots = splat_starts(starts);
        let [w0, w1, w2, w3, w4, w5, w6, w7] = *codes;
        for i in 0..N {
            let (low, high) = (load_words(&x[i * 8..]), load_words(&x[i * 8 + 4..]));
            // SAFETY: the token exists only where `detect` found the instructions.
            dots[i] = unsafe {
                let sum = sdot_lanes(dots[i], [w0, w1, w2, w3], low);
                sdot_lanes(sum, [w4, w5, w6, w7], high)
            };
        }
        dots
    }
    #[inline(always)]
    fn place(token: usize, _run: usize, c: usize) -> usize {
        token * 8 + c
    }
}

impl Products for Matrix {
    // Sixteen bits as two numbers of eight cost half of what words do.
    const FEW: usize = usize::MAX;
    #[inline]
    fn vectorize<K: Kernel>(s: Neon<Self>, kernel: K) -> K::Out {
        #[target_feature(enable = "dotprod,i8mm")]
        fn inner<K: Kernel>(kernel: K, s: Neon<Matrix>) -> K::Out {
            kernel.run(s)
        }
        // SAFETY: the token exists only where `detect` found the instructions.
        unsafe { inner(kernel, s) }
    }
    #[inline(always)]
    fn dot4(self, sum: int32x4_t, a: int32x4_t, b: int32x4_t) -> int32x4_t {
        self.0.dot4(sum, a, b)
    }
    /// Two rows of eight bytes times two tokens, a quarter of their block, at a time.
    #[inline(always)]
    fn dot_tokens<const N: usize>(
        self,
        starts: &[i32],
        codes: &[int32x4_t; 8],
        x: &[i32],
    ) -> [int32x4_t; N] {
        if N == 1 {
            return self.0.dot_tokens(starts, codes, x);
        }
        const { assert!(N == 1 || N.is_multiple_of(2), "tokens come in pairs") };
        let mut dots = splat_starts(starts);
        let mut i = 0;
        while i < N {
            let mut words = [load_words(&x[i * 8..]); 4];
            for j in 1..4 {
                words[j] = load_words(&x[i * 8 + 4 * j..]);
            }
            // SAFETY: the token exists only where `detect` found the instructions.
            let [a, b] = unsafe { smmla_pair([dots[i], dots[i + 1]], codes, words) };
            (dots[i], dots[i + 1]) = (a, b);
            i += 2;
        }
        dots
    }
    /// Pairs of tokens, two words of each in turn.
    #[inline(always)]
    fn place(token: usize, run: usize, c: usize) -> usize {
        if run == 1 {
            return c;
        }
        token / 2 * 16 + c / 2 * 4 + token % 2 * 2 + c % 2
    }
}

/// A product of two signed bytes fits in 16 bits, a sum of two in 32.
#[inline]
#[target_feature(enable = "neon")]
fn widened_dot(sum: int32x4_t, a: int32x4_t, b: int32x4_t) -> int32x4_t {
    let (a, b) = (vreinterpretq_s8_s32(a), vreinterpretq_s8_s32(b));
    let low = vpaddlq_s16(vmull_s8(vget_low_s8(a), vget_low_s8(b)));
    let high = vpaddlq_s16(vmull_high_s8(a, b));
    vaddq_s32(sum, vpaddq_s32(low, high))
}

/// One register for each of `N` starts.
#[inline(always)]
fn splat_starts<const N: usize>(starts: &[i32]) -> [int32x4_t; N] {
    let mut dots = [load_word(starts); N];
    for i in 0..N {
        dots[i] = load_word(&starts[i..]);
    }
    dots
}

/// The first word, in all lanes.
#[inline(always)]
fn load_word(x: &[i32]) -> int32x4_t {
    // SAFETY: every target with this file has NEON; no memory is touched.
    unsafe { vdupq_n_s32(x[0]) }
}

/// Four registers times a word of `b` each.
#[inline]
#[target_feature(enable = "dotprod")]
fn sdot_lanes(sum: int32x4_t, a: [int32x4_t; 4], b: int32x4_t) -> int32x4_t {
    let sum = sdot_lane::<0>(sum, a[0], b);
    let sum = sdot_lane::<1>(sum, a[1], b);
    let sum = sdot_lane::<2>(sum, a[2], b);
    sdot_lane::<3>(sum, a[3], b)
}

/// A block's codes times two tokens: `x` holds pairs of words of one token and the other.
#[inline]
#[target_feature(enable = "dotprod,i8mm")]
fn smmla_pair(starts: [int32x4_t; 2], codes: &[int32x4_t; 8], x: [int32x4_t; 4]) -> [int32x4_t; 2] {
    // Each product has rows one after the other, in them the tokens.
    let start = vzip1q_s32(starts[0], starts[1]);
    let (mut low, mut high) = (start, start);
    let mut j = 0;
    while j < 4 {
        let (a, b) = (codes[2 * j], codes[2 * j + 1]);
        low = smmla(low, vzip1q_s32(a, b), x[j]);
        high = smmla(high, vzip2q_s32(a, b), x[j]);
        j += 1;
    }
    [vuzp1q_s32(low, high), vuzp2q_s32(low, high)]
}

/// `vmmlaq_s32`.
#[inline]
#[target_feature(enable = "i8mm")]
fn smmla(mut sum: int32x4_t, a: int32x4_t, b: int32x4_t) -> int32x4_t {
    // SAFETY: an instruction of the enabled feature, on registers.
    unsafe {
        asm!(
            "smmla {sum:v}.4s, {a:v}.16b, {b:v}.16b",
            sum = inlateout(vreg) sum,
            a = in(vreg) a,
            b = in(vreg) b,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    sum
}

/// `vdotq_s32`.
#[inline]
#[target_feature(enable = "dotprod")]
fn sdot(mut sum: int32x4_t, a: int32x4_t, b: int32x4_t) -> int32x4_t {
    // SAFETY: an instruction of the enabled feature, on registers.
    unsafe {
        asm!(
            "sdot {sum:v}.4s, {a:v}.16b, {b:v}.16b",
            sum = inlateout(vreg) sum,
            a = in(vreg) a,
            b = in(vreg) b,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    sum
}

/// `vdotq_laneq_s32`: with word `LANE` of `b` for all lanes.
#[inline]
#[target_feature(enable = "dotprod")]
fn sdot_lane<const LANE: usize>(mut sum: int32x4_t, a: int32x4_t, b: int32x4_t) -> int32x4_t {
    // SAFETY: an instruction of the enabled feature, on registers.
    unsafe {
        asm!(
            "sdot {sum:v}.4s, {a:v}.16b, {b:v}.4b[{lane}]",
            sum = inlateout(vreg) sum,
            a = in(vreg) a,
            b = in(vreg) b,
            lane = const LANE,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    sum
}
