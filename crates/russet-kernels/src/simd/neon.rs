//! NEON, four lanes: part of every 64-bit Arm processor. What was added later is how bytes are multiplied, see [`Products`].

use std::arch::aarch64::*;

use half::{bf16, f16};

use super::registers::{loads, on_registers, stores};
use super::{Kernel, Simd, codes};

mod products;

pub(crate) use products::{Dot, Matrix, Plain, Products};

/// NEON with the byte products of `P`.
#[derive(Clone, Copy, Debug)]
pub struct Neon<P>(P);

/// The top half of each lane after rounding to bf16: to nearest even, NaN kept quiet.
#[inline]
#[target_feature(enable = "neon")]
fn rounded_bf16(v: float32x4_t) -> uint32x4_t {
    let bits = vreinterpretq_u32_f32(v);
    let odd = vandq_u32(vshrq_n_u32::<16>(bits), vdupq_n_u32(1));
    let rounded = vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
    let quiet = vorrq_u32(bits, vdupq_n_u32(0x40_0000));
    vbslq_u32(vceqq_f32(v, v), rounded, quiet)
}

/// 2^n for n in -126..=127.
#[inline]
#[target_feature(enable = "neon")]
fn power2(n: int32x4_t) -> float32x4_t {
    vreinterpretq_f32_s32(vshlq_n_s32::<23>(vaddq_s32(n, vdupq_n_s32(127))))
}

#[inline]
#[target_feature(enable = "neon")]
fn scale2(p: float32x4_t, n: float32x4_t) -> float32x4_t {
    let n = vcvtq_s32_f32(n);
    let n = vminq_s32(vmaxq_s32(n, vdupq_n_s32(-250)), vdupq_n_s32(250));
    let half = vshrq_n_s32::<1>(n);
    vmulq_f32(vmulq_f32(p, power2(half)), power2(vsubq_s32(n, half)))
}

/// The sums of the lanes of four registers.
#[inline]
#[target_feature(enable = "neon")]
fn sums_of(v: [float32x4_t; 4]) -> float32x4_t {
    vpaddq_f32(vpaddq_f32(v[0], v[1]), vpaddq_f32(v[2], v[3]))
}

/// Four bytes, each in the low byte of a lane.
#[inline]
#[target_feature(enable = "neon")]
fn widen_u8(bytes: u32) -> uint32x4_t {
    let bytes = vcreate_u8(u64::from(bytes));
    vmovl_u16(vget_low_u16(vmovl_u8(bytes)))
}

#[inline]
#[target_feature(enable = "neon")]
fn widen_i8(bytes: u32) -> int32x4_t {
    let bytes = vcreate_s8(u64::from(bytes));
    vmovl_s16(vget_low_s16(vmovl_s8(bytes)))
}

/// Integral lanes as the four bytes of a word.
#[inline]
#[target_feature(enable = "neon")]
fn narrow_i8(v: float32x4_t) -> u32 {
    let words = vqmovn_s32(vcvtnq_s32_f32(v));
    let bytes = vqmovn_s16(vcombine_s16(words, words));
    vget_lane_u32::<0>(vreinterpret_u32_s8(bytes))
}

#[inline]
#[target_feature(enable = "neon")]
fn table_of(v: [float32x4_t; 4]) -> uint8x16x4_t {
    uint8x16x4_t(
        vreinterpretq_u8_f32(v[0]),
        vreinterpretq_u8_f32(v[1]),
        vreinterpretq_u8_f32(v[2]),
        vreinterpretq_u8_f32(v[3]),
    )
}

/// Integral lanes as words of 16 bits, the second and the third exchanged.
#[inline]
#[target_feature(enable = "neon")]
fn narrow_pairs(v: float32x4_t) -> int16x4_t {
    let words = vqmovn_s32(vcvtnq_s32_f32(v));
    vzip1_s16(words, vext_s16::<2>(words, words))
}

/// `sum` plus, in each lane, the product of two words of `a` with those of `b`.
#[inline]
#[target_feature(enable = "neon")]
fn dot2(sum: int32x4_t, a: int32x4_t, b: int32x4_t) -> int32x4_t {
    let (a, b) = (vreinterpretq_s16_s32(a), vreinterpretq_s16_s32(b));
    let low = vmull_s16(vget_low_s16(a), vget_low_s16(b));
    vaddq_s32(sum, vpaddq_s32(low, vmull_high_s16(a, b)))
}

/// Table entries by the number, below sixteen, in each lane: the four bytes of an entry are looked up one by one.
#[inline]
#[target_feature(enable = "neon")]
fn entries(table: uint8x16x4_t, index: uint32x4_t) -> float32x4_t {
    let first = vmulq_n_u32(index, 0x0404_0404);
    let bytes = vaddq_u32(first, vdupq_n_u32(0x0302_0100));
    vreinterpretq_f32_u8(vqtbl4q_u8(table, vreinterpretq_u8_u32(bytes)))
}

/// Four codes: the bytes that each is in, shifted.
#[inline]
#[target_feature(enable = "neon")]
fn codes_of(bytes: uint8x16_t, places: uint8x16_t, shifts: int32x4_t, mask: i32) -> int32x4_t {
    let lanes = vreinterpretq_u32_u8(vqtbl1q_u8(bytes, places));
    let codes = vreinterpretq_s32_u32(vshlq_u32(lanes, vnegq_s32(shifts)));
    vandq_s32(codes, vdupq_n_s32(mask))
}

impl<P: Products> Simd for Neon<P> {
    type V = float32x4_t;
    type M = uint32x4_t;
    type Table = uint8x16x4_t;
    type I = int32x4_t;
    const LANES: usize = 4;
    const TILE_ROWS: usize = 12;
    const TILE_TOKENS: usize = 6;
    const FEW: usize = P::FEW;
    const FAST_WORDS: bool = false;
    const BIAS: i32 = 128;

    #[inline]
    fn vectorize<K: Kernel>(self, kernel: K) -> K::Out {
        P::vectorize(self, kernel)
    }

    loads! { 16;
        load_ints(u8, p) -> int32x4_t = vreinterpretq_s32_u8(vld1q_u8(p));
        load_wide(u8, p) -> int32x4_t = vreinterpretq_s32_u8(veorq_u8(vld1q_u8(p), vdupq_n_u8(0x80)));
    }
    stores! { 16, int32x4_t;
        store_ints(u8, v, p) = vst1q_u8(p, vreinterpretq_u8_s32(v));
    }
    stores! { 8, float32x4_t;
        store_pairs(u8, v, p) = vst1_u8(p, vreinterpret_u8_s16(narrow_pairs(v)));
    }
    loads! { 4;
        load(f32, p) -> float32x4_t = vld1q_f32(p);
        load_f16(f16, p) -> float32x4_t = vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p.cast())));
        load_bf16(bf16, p) -> float32x4_t = vreinterpretq_f32_u32(vshll_n_u16::<16>(vld1_u16(p.cast())));
        load_i8(u8, p) -> float32x4_t = vcvtq_f32_s32(widen_i8(p.cast::<u32>().read_unaligned()));
        load_u8(u8, p) -> float32x4_t = vcvtq_f32_u32(widen_u8(p.cast::<u32>().read_unaligned()));
    }
    stores! { 4, float32x4_t;
        store(f32, v, p) = vst1q_f32(p, v);
        store_f16(f16, v, p) = vst1_u16(p.cast(), vreinterpret_u16_f16(vcvt_f16_f32(v)));
        store_bf16(bf16, v, p) = vst1_u16(p.cast(), vshrn_n_u32::<16>(rounded_bf16(v)));
        store_i8(u8, v, p) = p.cast::<u32>().write_unaligned(narrow_i8(v));
    }
    on_registers! {
        splat(x: f32) -> float32x4_t = vdupq_n_f32(x);
        round_f16(v: float32x4_t) -> float32x4_t = vcvt_f32_f16(vcvt_f16_f32(v));
        round_bf16(v: float32x4_t) -> float32x4_t =
            vreinterpretq_f32_u32(vandq_u32(rounded_bf16(v), vdupq_n_u32(0xffff_0000)));
        add(a: float32x4_t, b: float32x4_t) -> float32x4_t = vaddq_f32(a, b);
        sub(a: float32x4_t, b: float32x4_t) -> float32x4_t = vsubq_f32(a, b);
        mul(a: float32x4_t, b: float32x4_t) -> float32x4_t = vmulq_f32(a, b);
        div(a: float32x4_t, b: float32x4_t) -> float32x4_t = vdivq_f32(a, b);
        fma(a: float32x4_t, b: float32x4_t, c: float32x4_t) -> float32x4_t = vfmaq_f32(c, a, b);
        // `vminq_f32` and `vmaxq_f32` have another opinion of NaN.
        min(a: float32x4_t, b: float32x4_t) -> float32x4_t = vbslq_f32(vcltq_f32(a, b), a, b);
        max(a: float32x4_t, b: float32x4_t) -> float32x4_t = vbslq_f32(vcgtq_f32(a, b), a, b);
        sqrt(a: float32x4_t) -> float32x4_t = vsqrtq_f32(a);
        abs(a: float32x4_t) -> float32x4_t = vabsq_f32(a);
        neg(a: float32x4_t) -> float32x4_t = vnegq_f32(a);
        round_int(a: float32x4_t) -> float32x4_t = vrndnq_f32(a);
        scale2(p: float32x4_t, n: float32x4_t) -> float32x4_t = scale2(p, n);
        lt(a: float32x4_t, b: float32x4_t) -> uint32x4_t = vcltq_f32(a, b);
        is_nan(a: float32x4_t) -> uint32x4_t = vmvnq_u32(vceqq_f32(a, a));
        select(m: uint32x4_t, a: float32x4_t, b: float32x4_t) -> float32x4_t = vbslq_f32(m, a, b);
        sum(v: float32x4_t) -> f32 = vaddvq_f32(v);
        max_lane(v: float32x4_t) -> f32 = vmaxnmvq_f32(v);
        ints(x: i32) -> int32x4_t = vdupq_n_s32(x);
        low_nibbles(v: int32x4_t) -> int32x4_t = vandq_s32(v, vdupq_n_s32(0x0f0f_0f0f));
        high_nibbles(v: int32x4_t) -> int32x4_t =
            vreinterpretq_s32_u8(vshrq_n_u8::<4>(vreinterpretq_u8_s32(v)));
        to_float(v: int32x4_t) -> float32x4_t = vcvtq_f32_s32(v);
        floats(v: int32x4_t) -> float32x4_t = vreinterpretq_f32_s32(v);
        even_bytes(v: int32x4_t) -> int32x4_t = vandq_s32(v, vdupq_n_s32(0x00ff_00ff));
        odd_bytes(v: int32x4_t) -> int32x4_t =
            vreinterpretq_s32_u16(vshrq_n_u16::<8>(vreinterpretq_u16_s32(v)));
        sub_words(a: int32x4_t, b: int32x4_t) -> int32x4_t =
            vreinterpretq_s32_s16(vsubq_s16(vreinterpretq_s16_s32(a), vreinterpretq_s16_s32(b)));
        join_words(low: float32x4_t, high: float32x4_t) -> int32x4_t =
            vorrq_s32(vcvtnq_s32_f32(low), vshlq_n_s32::<16>(vcvtnq_s32_f32(high)));
        dot2(sum: int32x4_t, a: int32x4_t, b: i32) -> int32x4_t = dot2(sum, a, vdupq_n_s32(b));
    }
    #[inline(always)]
    fn sum4(self, v: [float32x4_t; 4]) -> [f32; 4] {
        let mut sums = [0.0; 4];
        // SAFETY: every target with this file has NEON; no memory is touched.
        self.store(unsafe { sums_of(v) }, &mut sums);
        sums
    }
    #[inline(always)]
    fn dot4<const WIDE: bool>(self, sum: int32x4_t, a: int32x4_t, b: i32) -> int32x4_t {
        self.0.dot4(sum, a, self.ints(b))
    }
    #[inline(always)]
    fn dot_tokens<const WIDE: bool, const N: usize>(
        self,
        starts: &[i32],
        codes: &[int32x4_t; 8],
        x: &[i32],
    ) -> [int32x4_t; N] {
        self.0.dot_tokens(starts, codes, x)
    }
    #[inline(always)]
    fn place(token: usize, run: usize, c: usize) -> usize {
        P::place(token, run, c)
    }
    #[inline(always)]
    fn table(self, mut f: impl FnMut(usize) -> float32x4_t) -> uint8x16x4_t {
        let [a, b, c, d] = [f(0), f(4), f(8), f(12)];
        // SAFETY: every target with this file has NEON; no memory is touched.
        unsafe { table_of([a, b, c, d]) }
    }
    #[inline(always)]
    fn lookup(self, table: uint8x16x4_t, bytes: &[u8]) -> (float32x4_t, float32x4_t) {
        let bytes = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        // SAFETY: every target with this file has NEON; no memory is touched.
        unsafe {
            let index = widen_u8(bytes);
            (
                entries(table, vandq_u32(index, vdupq_n_u32(15))),
                entries(table, vshrq_n_u32::<4>(index)),
            )
        }
    }
    #[inline(always)]
    fn codes<const BITS: usize>(self, bytes: &[u8; 16], first: usize) -> int32x4_t {
        let (places, shifts) = const { (codes::places(BITS), codes::shifts(BITS)) };
        let (places, shifts) = (
            &places[4 * first..4 * first + 16],
            &shifts[first..first + 4],
        );
        // SAFETY: every target with this file has NEON; the slices are as long as the registers.
        unsafe {
            let shifts = vld1q_s32(shifts.as_ptr());
            codes_of(
                vld1q_u8(bytes.as_ptr()),
                vld1q_u8(places.as_ptr()),
                shifts,
                (1 << BITS) - 1,
            )
        }
    }
    #[inline(always)]
    fn pick(self, table: uint8x16x4_t, index: int32x4_t) -> float32x4_t {
        // SAFETY: every target with this file has NEON; no memory is touched.
        unsafe {
            entries(
                table,
                vandq_u32(vreinterpretq_u32_s32(index), vdupq_n_u32(15)),
            )
        }
    }
    #[inline(always)]
    fn fetch<const BITS: usize>(self, table: &[f32; 256], index: int32x4_t) -> float32x4_t {
        let mut lanes = [0; 16];
        self.store_ints(index, &mut lanes);
        self.load(&[0, 4, 8, 12].map(|i| table[usize::from(lanes[i])]))
    }
}
