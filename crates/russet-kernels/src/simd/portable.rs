//! The definition of every vector operation, in plain Rust on groups of four.

use half::{bf16, f16};

use super::{Kernel, Simd, codes};

const N: usize = 4;

/// Plain Rust: present everywhere.
#[derive(Clone, Copy, Debug)]
pub struct Portable;

#[inline(always)]
fn map(a: [f32; N], f: impl Fn(f32) -> f32) -> [f32; N] {
    [f(a[0]), f(a[1]), f(a[2]), f(a[3])]
}

#[inline(always)]
fn zip(a: [f32; N], b: [f32; N], f: impl Fn(f32, f32) -> f32) -> [f32; N] {
    [f(a[0], b[0]), f(a[1], b[1]), f(a[2], b[2]), f(a[3], b[3])]
}

#[inline(always)]
fn first<T: Copy>(x: &[T]) -> [T; N] {
    [x[0], x[1], x[2], x[3]]
}

/// a * b + c: fused where one instruction does it (NEON), else two roundings.
#[inline(always)]
fn multiply_add(a: f32, b: f32, c: f32) -> f32 {
    if cfg!(any(target_arch = "aarch64", target_feature = "fma")) {
        a.mul_add(b, c)
    } else {
        a * b + c
    }
}

/// 2^n for n in -126..=127.
#[inline(always)]
fn power2(n: i32) -> f32 {
    f32::from_bits(((n + 127) as u32) << 23)
}

#[inline(always)]
fn scale(p: f32, n: f32) -> f32 {
    let n = (n as i32).clamp(-250, 250);
    let half = n >> 1;
    p * power2(half) * power2(n - half)
}

/// The two words of a lane.
#[inline(always)]
fn words(x: i32) -> [i16; 2] {
    [x as i16, (x >> 16) as i16]
}

impl Simd for Portable {
    type V = [f32; N];
    type M = [bool; N];
    type Table = [f32; 16];
    type I = [i32; N];
    const LANES: usize = N;
    const TILE_ROWS: usize = 4;
    const TILE_TOKENS: usize = 3;
    const FEW: usize = 8;
    const FAST_WORDS: bool = true;
    const BIAS: i32 = 0;

    #[inline]
    fn vectorize<K: Kernel>(self, kernel: K) -> K::Out {
        kernel.run(self)
    }
    #[inline(always)]
    fn splat(self, x: f32) -> Self::V {
        [x; N]
    }
    #[inline(always)]
    fn load(self, x: &[f32]) -> Self::V {
        first(x)
    }
    #[inline(always)]
    fn store(self, v: Self::V, out: &mut [f32]) {
        out[..N].copy_from_slice(&v);
    }
    #[inline(always)]
    fn load_f16(self, x: &[f16]) -> Self::V {
        first(x).map(f16::to_f32_const)
    }
    #[inline(always)]
    fn store_f16(self, v: Self::V, out: &mut [f16]) {
        out[..N].copy_from_slice(&v.map(f16::from_f32_const));
    }
    #[inline(always)]
    fn load_bf16(self, x: &[bf16]) -> Self::V {
        first(x).map(bf16::to_f32_const)
    }
    #[inline(always)]
    fn store_bf16(self, v: Self::V, out: &mut [bf16]) {
        out[..N].copy_from_slice(&v.map(bf16::from_f32_const));
    }
    #[inline(always)]
    fn load_i8(self, x: &[u8]) -> Self::V {
        first(x).map(|b| f32::from(b as i8))
    }
    #[inline(always)]
    fn load_u8(self, x: &[u8]) -> Self::V {
        first(x).map(f32::from)
    }
    #[inline(always)]
    fn round_f16(self, v: Self::V) -> Self::V {
        map(v, |x| f16::from_f32_const(x).to_f32_const())
    }
    #[inline(always)]
    fn round_bf16(self, v: Self::V) -> Self::V {
        map(v, |x| bf16::from_f32_const(x).to_f32_const())
    }
    #[inline(always)]
    fn add(self, a: Self::V, b: Self::V) -> Self::V {
        zip(a, b, |a, b| a + b)
    }
    #[inline(always)]
    fn sub(self, a: Self::V, b: Self::V) -> Self::V {
        zip(a, b, |a, b| a - b)
    }
    #[inline(always)]
    fn mul(self, a: Self::V, b: Self::V) -> Self::V {
        zip(a, b, |a, b| a * b)
    }
    #[inline(always)]
    fn div(self, a: Self::V, b: Self::V) -> Self::V {
        zip(a, b, |a, b| a / b)
    }
    #[inline(always)]
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        std::array::from_fn(|i| multiply_add(a[i], b[i], c[i]))
    }
    #[inline(always)]
    fn min(self, a: Self::V, b: Self::V) -> Self::V {
        zip(a, b, |a, b| if a < b { a } else { b })
    }
    #[inline(always)]
    fn max(self, a: Self::V, b: Self::V) -> Self::V {
        zip(a, b, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    fn sqrt(self, a: Self::V) -> Self::V {
        map(a, f32::sqrt)
    }
    #[inline(always)]
    fn abs(self, a: Self::V) -> Self::V {
        map(a, f32::abs)
    }
    #[inline(always)]
    fn neg(self, a: Self::V) -> Self::V {
        map(a, |x| -x)
    }
    #[inline(always)]
    fn round_int(self, a: Self::V) -> Self::V {
        map(a, f32::round_ties_even)
    }
    #[inline(always)]
    fn scale2(self, p: Self::V, n: Self::V) -> Self::V {
        zip(p, n, scale)
    }
    #[inline(always)]
    fn lt(self, a: Self::V, b: Self::V) -> Self::M {
        std::array::from_fn(|i| a[i] < b[i])
    }
    #[inline(always)]
    fn is_nan(self, a: Self::V) -> Self::M {
        std::array::from_fn(|i| a[i].is_nan())
    }
    #[inline(always)]
    fn select(self, m: Self::M, a: Self::V, b: Self::V) -> Self::V {
        std::array::from_fn(|i| if m[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    fn sum(self, v: Self::V) -> f32 {
        (v[0] + v[2]) + (v[1] + v[3])
    }
    #[inline(always)]
    fn max_lane(self, v: Self::V) -> f32 {
        v[0].max(v[1]).max(v[2].max(v[3]))
    }
    #[inline(always)]
    fn ints(self, x: i32) -> Self::I {
        [x; N]
    }
    #[inline(always)]
    fn load_ints(self, x: &[u8]) -> Self::I {
        let lane = |i: usize| i32::from_le_bytes(first(&x[4 * i..]));
        [lane(0), lane(1), lane(2), lane(3)]
    }
    #[inline(always)]
    fn load_wide(self, x: &[u8]) -> Self::I {
        self.load_ints(x)
    }
    #[inline(always)]
    fn low_nibbles(self, v: Self::I) -> Self::I {
        v.map(|x| x & 0x0f0f_0f0f)
    }
    #[inline(always)]
    fn high_nibbles(self, v: Self::I) -> Self::I {
        v.map(|x| x >> 4 & 0x0f0f_0f0f)
    }
    #[inline(always)]
    fn dot4<const WIDE: bool>(self, sum: Self::I, a: Self::I, b: i32) -> Self::I {
        let [b0, b1, b2, b3] = b.to_le_bytes().map(|b| i32::from(b.cast_signed()));
        let product = |a: i32| {
            let [a0, a1, a2, a3] = a.to_le_bytes().map(i32::from);
            a0 * b0 + a1 * b1 + a2 * b2 + a3 * b3
        };
        let [s0, s1, s2, s3] = sum;
        let [a0, a1, a2, a3] = a;
        [
            s0 + product(a0),
            s1 + product(a1),
            s2 + product(a2),
            s3 + product(a3),
        ]
    }
    #[inline(always)]
    fn to_float(self, v: Self::I) -> Self::V {
        v.map(|x| x as f32)
    }
    #[inline(always)]
    fn store_i8(self, v: Self::V, out: &mut [u8]) {
        out[..N].copy_from_slice(&v.map(|x| (x as i8).cast_unsigned()));
    }
    #[inline(always)]
    fn floats(self, v: Self::I) -> Self::V {
        v.map(|x| f32::from_bits(x.cast_unsigned()))
    }
    #[inline(always)]
    fn store_ints(self, v: Self::I, out: &mut [u8]) {
        for (lane, out) in v.into_iter().zip(out[..4 * N].chunks_exact_mut(4)) {
            out.copy_from_slice(&lane.to_le_bytes());
        }
    }
    #[inline(always)]
    fn even_bytes(self, v: Self::I) -> Self::I {
        v.map(|x| x & 0x00ff_00ff)
    }
    #[inline(always)]
    fn odd_bytes(self, v: Self::I) -> Self::I {
        v.map(|x| x >> 8 & 0x00ff_00ff)
    }
    #[inline(always)]
    fn sub_words(self, a: Self::I, b: Self::I) -> Self::I {
        let sub = |a: i32, b: i32| {
            let ([a0, a1], [b0, b1]) = (words(a), words(b));
            i32::from(a0.wrapping_sub(b0)) & 0xffff | i32::from(a1.wrapping_sub(b1)) << 16
        };
        [
            sub(a[0], b[0]),
            sub(a[1], b[1]),
            sub(a[2], b[2]),
            sub(a[3], b[3]),
        ]
    }
    #[inline(always)]
    fn join_words(self, low: Self::V, high: Self::V) -> Self::I {
        let join = |low: f32, high: f32| low as i32 | (high as i32) << 16;
        [
            join(low[0], high[0]),
            join(low[1], high[1]),
            join(low[2], high[2]),
            join(low[3], high[3]),
        ]
    }
    #[inline(always)]
    fn dot2(self, sum: Self::I, a: Self::I, b: i32) -> Self::I {
        let [b0, b1] = words(b).map(i32::from);
        let product = |a: i32| {
            let [a0, a1] = words(a).map(i32::from);
            a0 * b0 + a1 * b1
        };
        [
            sum[0] + product(a[0]),
            sum[1] + product(a[1]),
            sum[2] + product(a[2]),
            sum[3] + product(a[3]),
        ]
    }
    #[inline(always)]
    fn store_pairs(self, v: Self::V, out: &mut [u8]) {
        for (x, out) in [v[0], v[2], v[1], v[3]]
            .into_iter()
            .zip(out[..2 * N].chunks_exact_mut(2))
        {
            out.copy_from_slice(&(x as i16).to_le_bytes());
        }
    }
    #[inline(always)]
    fn table(self, mut f: impl FnMut(usize) -> Self::V) -> Self::Table {
        let mut table = [0.0; 16];
        for (i, part) in table.chunks_exact_mut(N).enumerate() {
            part.copy_from_slice(&f(i * N));
        }
        table
    }
    #[inline(always)]
    fn lookup(self, table: Self::Table, bytes: &[u8]) -> (Self::V, Self::V) {
        let b = first(bytes);
        (
            b.map(|b| table[usize::from(b & 15)]),
            b.map(|b| table[usize::from(b >> 4)]),
        )
    }
    #[inline(always)]
    fn codes<const BITS: usize>(self, bytes: &[u8; 16], first: usize) -> Self::I {
        std::array::from_fn(|i| codes::code(bytes, BITS, first + i).into())
    }
    #[inline(always)]
    fn pick(self, table: Self::Table, index: Self::I) -> Self::V {
        index.map(|i| table[(i & 15) as usize])
    }
    #[inline(always)]
    fn fetch<const BITS: usize>(self, table: &[f32; 256], index: Self::I) -> Self::V {
        index.map(|i| table[(i & 255) as usize])
    }
}
