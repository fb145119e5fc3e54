//! AVX2 and AVX-512. The tokens are made only by `detect`, which is what every SAFETY comment here rests on.

use std::arch::x86_64::*;

use half::{bf16, f16};

use super::registers::{loads, on_registers, stores};
use super::{Kernel, Simd, codes};

/// AVX2 with FMA and F16C.
#[derive(Clone, Copy, Debug)]
pub struct Avx2(());

/// AVX-512 F, BW, DQ, VL and VNNI (which bring AVX2, FMA and F16C).
#[derive(Clone, Copy, Debug)]
pub struct Avx512(());

impl Avx2 {
    /// The token, if this machine has the instructions.
    pub fn detect() -> Option<Self> {
        let has = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c");
        has.then_some(Self(()))
    }
}

impl Avx512 {
    /// The token, if this machine has the instructions.
    pub fn detect() -> Option<Self> {
        let has = Avx2::detect().is_some()
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512vnni");
        has.then_some(Self(()))
    }
}

const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;

/// Rounds f32 to bf16 precision in place: to nearest even, NaN kept quiet.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn round_bf16_256(v: __m256) -> __m256 {
    let bits = _mm256_castps_si256(v);
    let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
    let rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    let quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x40_0000));
    let nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(v, v));
    let kept = _mm256_blendv_epi8(rounded, quiet, nan);
    _mm256_castsi256_ps(_mm256_and_si256(
        kept,
        _mm256_set1_epi32(0xffff_0000_u32 as i32),
    ))
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn round_bf16_512(v: __m512) -> __m512 {
    let bits = _mm512_castps_si512(v);
    let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
    let rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    let quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x40_0000));
    let kept = _mm512_mask_mov_epi32(rounded, _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(v, v), quiet);
    _mm512_castsi512_ps(_mm512_and_si512(
        kept,
        _mm512_set1_epi32(0xffff_0000_u32 as i32),
    ))
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn power2_256(n: __m256i) -> __m256 {
    _mm256_castsi256_ps(_mm256_slli_epi32::<23>(_mm256_add_epi32(
        n,
        _mm256_set1_epi32(127),
    )))
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn scale2_256(p: __m256, n: __m256) -> __m256 {
    let n = _mm256_cvtps_epi32(n);
    let n = _mm256_min_epi32(
        _mm256_max_epi32(n, _mm256_set1_epi32(-250)),
        _mm256_set1_epi32(250),
    );
    let half = _mm256_srai_epi32::<1>(n);
    _mm256_mul_ps(
        _mm256_mul_ps(p, power2_256(half)),
        power2_256(_mm256_sub_epi32(n, half)),
    )
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn halves_256(v: __m256) -> (__m128, __m128) {
    (_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v))
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn sum_256(v: __m256) -> f32 {
    let (low, high) = halves_256(v);
    let s = _mm_add_ps(low, high);
    let s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)))
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn max_256(v: __m256) -> f32 {
    let (low, high) = halves_256(v);
    let s = _mm_max_ps(low, high);
    let s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)))
}

/// Eight of sixteen table entries by the low four bits of each index.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn lookup_256(table: [__m256; 2], index: __m256i) -> __m256 {
    let low = _mm256_permutevar8x32_ps(table[0], index);
    let high = _mm256_permutevar8x32_ps(table[1], index);
    _mm256_blendv_ps(
        low,
        high,
        _mm256_castsi256_ps(_mm256_slli_epi32::<28>(index)),
    )
}

/// Codes from bytes that are the same in every 128 bits: those that each code is in, shifted.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn codes_256(bytes: __m256i, places: __m256i, shifts: __m256i, mask: i32) -> __m256i {
    let lanes = _mm256_srlv_epi32(_mm256_shuffle_epi8(bytes, places), shifts);
    if mask < 16 {
        lanes
    } else {
        _mm256_and_si256(lanes, _mm256_set1_epi32(mask))
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn codes_512(bytes: __m512i, places: __m512i, shifts: __m512i, mask: i32) -> __m512i {
    let lanes = _mm512_srlv_epi32(_mm512_shuffle_epi8(bytes, places), shifts);
    if mask < 16 {
        lanes
    } else {
        _mm512_and_si512(lanes, _mm512_set1_epi32(mask))
    }
}

/// Entries of a table of 64 in four registers.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn pick64_512(table: [__m512; 4], index: __m512i) -> __m512 {
    let low = _mm512_permutex2var_ps(table[0], index, table[1]);
    let high = _mm512_permutex2var_ps(table[2], index, table[3]);
    _mm512_mask_mov_ps(
        low,
        _mm512_test_epi32_mask(index, _mm512_set1_epi32(32)),
        high,
    )
}

/// The sums of pairs of products fit in 16 bits as long as one side is below 128; other bytes are taken apart first.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn dot4_256<const WIDE: bool>(sum: __m256i, a: __m256i, b: i32) -> __m256i {
    let (b, ones) = (_mm256_set1_epi32(b), _mm256_set1_epi16(1));
    if !WIDE {
        let pairs = _mm256_maddubs_epi16(a, b);
        return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, ones));
    }
    let top = _mm256_and_si256(a, _mm256_set1_epi8(-128));
    let low = _mm256_maddubs_epi16(_mm256_andnot_si256(_mm256_set1_epi8(-128), a), b);
    let top = _mm256_maddubs_epi16(top, b);
    let sum = _mm256_add_epi32(sum, _mm256_madd_epi16(low, ones));
    _mm256_add_epi32(sum, _mm256_madd_epi16(top, ones))
}

/// The sums of the lanes of four registers, as neighbours.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn sum4_256(v: [__m256; 4]) -> [f32; 4] {
    let pairs = [_mm256_hadd_ps(v[0], v[1]), _mm256_hadd_ps(v[2], v[3])];
    let (low, high) = halves_256(_mm256_hadd_ps(pairs[0], pairs[1]));
    lanes_128(_mm_add_ps(low, high))
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn sum4_512(v: [__m512; 4]) -> [f32; 4] {
    let half = |v| _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps::<1>(v));
    sum4_256([half(v[0]), half(v[1]), half(v[2]), half(v[3])])
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn lanes_128(v: __m128) -> [f32; 4] {
    let mut lanes = [0.0; 4];
    // SAFETY: four lanes are writable.
    unsafe { _mm_storeu_ps(lanes.as_mut_ptr(), v) };
    lanes
}

impl Simd for Avx2 {
    type V = __m256;
    type M = __m256;
    type Table = [__m256; 2];
    type I = __m256i;
    const LANES: usize = 8;
    const TILE_ROWS: usize = 6;
    const TILE_TOKENS: usize = 3;
    const FEW: usize = 8;
    const FAST_WORDS: bool = true;
    const BIAS: i32 = 0;

    #[inline]
    fn vectorize<K: Kernel>(self, kernel: K) -> K::Out {
        #[target_feature(enable = "avx2,fma,f16c")]
        fn inner<K: Kernel>(kernel: K, s: Avx2) -> K::Out {
            kernel.run(s)
        }
        // SAFETY: `self` exists only where `detect` found the instructions.
        unsafe { inner(kernel, self) }
    }

    loads! { 32;
        load_ints(u8, p) -> __m256i = _mm256_loadu_si256(p.cast());
        load_wide(u8, p) -> __m256i = _mm256_loadu_si256(p.cast());
    }
    loads! { 8;
        load(f32, p) -> __m256 = _mm256_loadu_ps(p);
        load_f16(f16, p) -> __m256 = _mm256_cvtph_ps(_mm_loadu_si128(p.cast()));
        load_bf16(bf16, p) -> __m256 =
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(_mm_loadu_si128(p.cast()))));
        load_i8(u8, p) -> __m256 = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(p.cast())));
        load_u8(u8, p) -> __m256 = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(p.cast())));
    }
    stores! { 32, __m256i;
        store_ints(u8, v, p) = _mm256_storeu_si256(p.cast(), v);
    }
    stores! { 16, __m256;
        store_pairs(u8, v, p) = {
            let ints = _mm256_cvtps_epi32(v);
            let words = _mm_packs_epi32(_mm256_castsi256_si128(ints), _mm256_extracti128_si256::<1>(ints));
            _mm_storeu_si128(p.cast(), _mm_shufflehi_epi16::<0xd8>(_mm_shufflelo_epi16::<0xd8>(words)));
        };
    }
    stores! { 8, __m256;
        store(f32, v, p) = _mm256_storeu_ps(p, v);
        store_f16(f16, v, p) = _mm_storeu_si128(p.cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v));
        store_bf16(bf16, v, p) = {
            let bits = _mm256_srli_epi32::<16>(_mm256_castps_si256(round_bf16_256(v)));
            let packed = _mm_packus_epi32(_mm256_castsi256_si128(bits), _mm256_extracti128_si256::<1>(bits));
            _mm_storeu_si128(p.cast(), packed);
        };
        store_i8(u8, v, p) = {
            let ints = _mm256_cvtps_epi32(v);
            let words = _mm_packs_epi32(_mm256_castsi256_si128(ints), _mm256_extracti128_si256::<1>(ints));
            _mm_storel_epi64(p.cast(), _mm_packs_epi16(words, words));
        };
    }
    on_registers! {
        splat(x: f32) -> __m256 = _mm256_set1_ps(x);
        round_f16(v: __m256) -> __m256 = _mm256_cvtph_ps(_mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v));
        round_bf16(v: __m256) -> __m256 = round_bf16_256(v);
        add(a: __m256, b: __m256) -> __m256 = _mm256_add_ps(a, b);
        sub(a: __m256, b: __m256) -> __m256 = _mm256_sub_ps(a, b);
        mul(a: __m256, b: __m256) -> __m256 = _mm256_mul_ps(a, b);
        div(a: __m256, b: __m256) -> __m256 = _mm256_div_ps(a, b);
        fma(a: __m256, b: __m256, c: __m256) -> __m256 = _mm256_fmadd_ps(a, b, c);
        min(a: __m256, b: __m256) -> __m256 = _mm256_min_ps(a, b);
        max(a: __m256, b: __m256) -> __m256 = _mm256_max_ps(a, b);
        sqrt(a: __m256) -> __m256 = _mm256_sqrt_ps(a);
        abs(a: __m256) -> __m256 = _mm256_andnot_ps(_mm256_set1_ps(-0.0), a);
        neg(a: __m256) -> __m256 = _mm256_xor_ps(_mm256_set1_ps(-0.0), a);
        round_int(a: __m256) -> __m256 = _mm256_round_ps::<NEAREST>(a);
        scale2(p: __m256, n: __m256) -> __m256 = scale2_256(p, n);
        lt(a: __m256, b: __m256) -> __m256 = _mm256_cmp_ps::<_CMP_LT_OQ>(a, b);
        is_nan(a: __m256) -> __m256 = _mm256_cmp_ps::<_CMP_UNORD_Q>(a, a);
        select(m: __m256, a: __m256, b: __m256) -> __m256 = _mm256_blendv_ps(b, a, m);
        sum(v: __m256) -> f32 = sum_256(v);
        sum4(v: [__m256; 4]) -> [f32; 4] = sum4_256(v);
        max_lane(v: __m256) -> f32 = max_256(v);
        ints(x: i32) -> __m256i = _mm256_set1_epi32(x);
        low_nibbles(v: __m256i) -> __m256i = _mm256_and_si256(v, _mm256_set1_epi8(15));
        high_nibbles(v: __m256i) -> __m256i =
            _mm256_and_si256(_mm256_srli_epi16::<4>(v), _mm256_set1_epi8(15));
        to_float(v: __m256i) -> __m256 = _mm256_cvtepi32_ps(v);
        floats(v: __m256i) -> __m256 = _mm256_castsi256_ps(v);
        even_bytes(v: __m256i) -> __m256i = _mm256_and_si256(v, _mm256_set1_epi16(255));
        odd_bytes(v: __m256i) -> __m256i = _mm256_srli_epi16::<8>(v);
        sub_words(a: __m256i, b: __m256i) -> __m256i = _mm256_sub_epi16(a, b);
        join_words(low: __m256, high: __m256) -> __m256i = _mm256_or_si256(
            _mm256_cvtps_epi32(low), _mm256_slli_epi32::<16>(_mm256_cvtps_epi32(high)));
        dot2(sum: __m256i, a: __m256i, b: i32) -> __m256i =
            _mm256_add_epi32(sum, _mm256_madd_epi16(a, _mm256_set1_epi32(b)));
    }
    #[inline(always)]
    fn dot4<const WIDE: bool>(self, sum: __m256i, a: __m256i, b: i32) -> __m256i {
        // SAFETY: `self` exists only where `detect` found the instructions; no memory is touched.
        unsafe { dot4_256::<WIDE>(sum, a, b) }
    }
    #[inline(always)]
    fn table(self, mut f: impl FnMut(usize) -> __m256) -> [__m256; 2] {
        [f(0), f(8)]
    }
    #[inline(always)]
    fn lookup(self, table: [__m256; 2], bytes: &[u8]) -> (__m256, __m256) {
        let p = bytes[..8].as_ptr();
        // SAFETY: `self` exists only where `detect` found the instructions; eight bytes are readable at `p`.
        unsafe {
            let index = _mm256_cvtepu8_epi32(_mm_loadl_epi64(p.cast()));
            (
                lookup_256(table, index),
                lookup_256(table, _mm256_srli_epi32::<4>(index)),
            )
        }
    }
    #[inline(always)]
    fn codes<const BITS: usize>(self, bytes: &[u8; 16], first: usize) -> __m256i {
        let (places, shifts) = const { (codes::places(BITS), codes::shifts(BITS)) };
        let (places, shifts) = (
            &places[4 * first..4 * first + 32],
            &shifts[first..first + 8],
        );
        // SAFETY: `self` exists only where `detect` found the instructions; the slices are as long as the registers.
        unsafe {
            let bytes = _mm256_broadcastsi128_si256(_mm_loadu_si128(bytes.as_ptr().cast()));
            let places = _mm256_loadu_si256(places.as_ptr().cast());
            let shifts = _mm256_loadu_si256(shifts.as_ptr().cast());
            codes_256(bytes, places, shifts, (1 << BITS) - 1)
        }
    }
    #[inline(always)]
    fn pick(self, table: [__m256; 2], index: __m256i) -> __m256 {
        // SAFETY: `self` exists only where `detect` found the instructions; no memory is touched.
        unsafe { lookup_256(table, index) }
    }
    #[inline(always)]
    fn fetch<const BITS: usize>(self, table: &[f32; 256], index: __m256i) -> __m256 {
        // SAFETY: `self` exists only where `detect` found the instructions; masked, every index is in the table.
        unsafe {
            let index = _mm256_and_si256(index, _mm256_set1_epi32(255));
            _mm256_i32gather_ps::<4>(table.as_ptr(), index)
        }
    }
}

impl Simd for Avx512 {
    type V = __m512;
    type M = __mmask16;
    type Table = __m512;
    type I = __m512i;
    const LANES: usize = 16;
    const TILE_ROWS: usize = 12;
    const TILE_TOKENS: usize = 6;
    const FEW: usize = 8;
    const FAST_WORDS: bool = true;
    const BIAS: i32 = 0;

    #[inline]
    fn vectorize<K: Kernel>(self, kernel: K) -> K::Out {
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
        fn inner<K: Kernel>(kernel: K, s: Avx512) -> K::Out {
            kernel.run(s)
        }
        // SAFETY: `self` exists only where `detect` found the instructions.
        unsafe { inner(kernel, self) }
    }

    loads! { 64;
        load_ints(u8, p) -> __m512i = _mm512_loadu_si512(p.cast());
        load_wide(u8, p) -> __m512i = _mm512_loadu_si512(p.cast());
    }
    loads! { 16;
        load(f32, p) -> __m512 = _mm512_loadu_ps(p);
        load_f16(f16, p) -> __m512 = _mm512_cvtph_ps(_mm256_loadu_si256(p.cast()));
        load_bf16(bf16, p) -> __m512 =
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(_mm256_loadu_si256(p.cast()))));
        load_i8(u8, p) -> __m512 = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(p.cast())));
        load_u8(u8, p) -> __m512 = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(p.cast())));
    }
    stores! { 64, __m512i;
        store_ints(u8, v, p) = _mm512_storeu_si512(p.cast(), v);
    }
    stores! { 32, __m512;
        store_pairs(u8, v, p) = {
            let words = _mm512_cvtsepi32_epi16(_mm512_cvtps_epi32(v));
            _mm256_storeu_si256(p.cast(), _mm256_shufflehi_epi16::<0xd8>(_mm256_shufflelo_epi16::<0xd8>(words)));
        };
    }
    stores! { 16, __m512;
        store(f32, v, p) = _mm512_storeu_ps(p, v);
        store_f16(f16, v, p) = _mm256_storeu_si256(p.cast(), _mm512_cvtps_ph::<NEAREST>(v));
        store_bf16(bf16, v, p) = {
            let bits = _mm512_srli_epi32::<16>(_mm512_castps_si512(round_bf16_512(v)));
            _mm256_storeu_si256(p.cast(), _mm512_cvtepi32_epi16(bits));
        };
        store_i8(u8, v, p) = _mm_storeu_si128(p.cast(), _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(v)));
    }
    on_registers! {
        splat(x: f32) -> __m512 = _mm512_set1_ps(x);
        round_f16(v: __m512) -> __m512 = _mm512_cvtph_ps(_mm512_cvtps_ph::<NEAREST>(v));
        round_bf16(v: __m512) -> __m512 = round_bf16_512(v);
        add(a: __m512, b: __m512) -> __m512 = _mm512_add_ps(a, b);
        sub(a: __m512, b: __m512) -> __m512 = _mm512_sub_ps(a, b);
        mul(a: __m512, b: __m512) -> __m512 = _mm512_mul_ps(a, b);
        div(a: __m512, b: __m512) -> __m512 = _mm512_div_ps(a, b);
        fma(a: __m512, b: __m512, c: __m512) -> __m512 = _mm512_fmadd_ps(a, b, c);
        min(a: __m512, b: __m512) -> __m512 = _mm512_min_ps(a, b);
        max(a: __m512, b: __m512) -> __m512 = _mm512_max_ps(a, b);
        sqrt(a: __m512) -> __m512 = _mm512_sqrt_ps(a);
        abs(a: __m512) -> __m512 = _mm512_abs_ps(a);
        neg(a: __m512) -> __m512 = _mm512_xor_ps(_mm512_set1_ps(-0.0), a);
        round_int(a: __m512) -> __m512 = _mm512_roundscale_ps::<NEAREST>(a);
        scale2(p: __m512, n: __m512) -> __m512 = _mm512_scalef_ps(p, n);
        lt(a: __m512, b: __m512) -> __mmask16 = _mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b);
        is_nan(a: __m512) -> __mmask16 = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(a, a);
        select(m: __mmask16, a: __m512, b: __m512) -> __m512 = _mm512_mask_blend_ps(m, b, a);
        sum(v: __m512) -> f32 = _mm512_reduce_add_ps(v);
        sum4(v: [__m512; 4]) -> [f32; 4] = sum4_512(v);
        max_lane(v: __m512) -> f32 = _mm512_reduce_max_ps(v);
        ints(x: i32) -> __m512i = _mm512_set1_epi32(x);
        low_nibbles(v: __m512i) -> __m512i = _mm512_and_si512(v, _mm512_set1_epi8(15));
        high_nibbles(v: __m512i) -> __m512i =
            _mm512_and_si512(_mm512_srli_epi16::<4>(v), _mm512_set1_epi8(15));
        to_float(v: __m512i) -> __m512 = _mm512_cvtepi32_ps(v);
        floats(v: __m512i) -> __m512 = _mm512_castsi512_ps(v);
        even_bytes(v: __m512i) -> __m512i = _mm512_and_si512(v, _mm512_set1_epi16(255));
        odd_bytes(v: __m512i) -> __m512i = _mm512_srli_epi16::<8>(v);
        sub_words(a: __m512i, b: __m512i) -> __m512i = _mm512_sub_epi16(a, b);
        join_words(low: __m512, high: __m512) -> __m512i = _mm512_or_si512(
            _mm512_cvtps_epi32(low), _mm512_slli_epi32::<16>(_mm512_cvtps_epi32(high)));
        // The saturating form, though no sum is that large: the optimiser takes the other apart where it sees a chain.
        dot2(sum: __m512i, a: __m512i, b: i32) -> __m512i = _mm512_dpwssds_epi32(sum, a, _mm512_set1_epi32(b));
    }
    #[inline(always)]
    fn dot4<const WIDE: bool>(self, sum: __m512i, a: __m512i, b: i32) -> __m512i {
        // SAFETY: `self` exists only where `detect` found the instructions; no memory is touched.
        unsafe { _mm512_dpbusd_epi32(sum, a, _mm512_set1_epi32(b)) }
    }
    #[inline(always)]
    fn table(self, mut f: impl FnMut(usize) -> __m512) -> __m512 {
        f(0)
    }
    #[inline(always)]
    fn lookup(self, table: __m512, bytes: &[u8]) -> (__m512, __m512) {
        let p = bytes[..16].as_ptr();
        // SAFETY: `self` exists only where `detect` found the instructions; sixteen bytes are readable at `p`.
        unsafe {
            // The permutation reads four bits of each index, so the low nibbles need no mask.
            let index = _mm512_cvtepu8_epi32(_mm_loadu_si128(p.cast()));
            (
                _mm512_permutexvar_ps(index, table),
                _mm512_permutexvar_ps(_mm512_srli_epi32::<4>(index), table),
            )
        }
    }
    #[inline(always)]
    fn codes<const BITS: usize>(self, bytes: &[u8; 16], _: usize) -> __m512i {
        let (places, shifts) = const { (codes::places(BITS), codes::shifts(BITS)) };
        // SAFETY: `self` exists only where `detect` found the instructions; the arrays are as long as the registers.
        unsafe {
            let bytes = _mm512_broadcast_i32x4(_mm_loadu_si128(bytes.as_ptr().cast()));
            let places = _mm512_loadu_si512(places.as_ptr().cast());
            let shifts = _mm512_loadu_si512(shifts.as_ptr().cast());
            codes_512(bytes, places, shifts, (1 << BITS) - 1)
        }
    }
    #[inline(always)]
    fn pick(self, table: __m512, index: __m512i) -> __m512 {
        // SAFETY: `self` exists only where `detect` found the instructions; no memory is touched.
        unsafe { _mm512_permutexvar_ps(index, table) }
    }
    #[inline(always)]
    fn fetch<const BITS: usize>(self, table: &[f32; 256], index: __m512i) -> __m512 {
        if BITS == 6 {
            let (a, b) = (self.load(table), self.load(&table[16..]));
            let parts = [a, b, self.load(&table[32..]), self.load(&table[48..])];
            // SAFETY: `self` exists only where `detect` found the instructions; no memory is touched.
            return unsafe { pick64_512(parts, index) };
        }
        // SAFETY: `self` exists only where `detect` found the instructions; masked, every index is in the table.
        unsafe {
            let index = _mm512_and_si512(index, _mm512_set1_epi32(255));
            _mm512_i32gather_ps::<4>(index, table.as_ptr())
        }
    }
}
