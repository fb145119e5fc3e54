//! What the machine can do at best.

use std::fmt;
use std::hint::black_box;

use russet_kernels::isa::Isa;
use russet_kernels::simd::{Kernel, Simd};
use russet_kernels::threads::Pool;

use crate::best;

/// What a kernel's multiply-adds are made of.
#[derive(Clone, Copy)]
pub(crate) enum Unit {
    F32,
    Words,
    Bytes,
}

/// Billions a second, all threads together.
pub(crate) struct Limits {
    products: [f64; 3],
    read: f64,
}

impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [f32s, words, bytes] = self.products;
        let read = self.read;
        write!(
            f,
            "at most {f32s:.0} GMAC/s of f32, {words:.0} of words, {bytes:.0} of bytes; {read:.1} GB/s from memory"
        )
    }
}

/// Bytes that no cache holds.
pub(crate) const LARGE: usize = 512 << 20;

impl Limits {
    pub(crate) fn measure(threads: usize) -> Self {
        let pool = Pool::new(threads);
        let products = [Unit::F32, Unit::Words, Unit::Bytes].map(|unit| {
            let per_call = Isa::best().run(Products(unit));
            let run = |_| {
                black_box(Isa::best().run(Products(unit)));
            };
            (threads * per_call) as f64 / best(&mut || pool.run(threads, &run)) / 1e9
        });
        let memory = vec![1_u8; LARGE];
        let part = LARGE / (8 * threads);
        let read = best(&mut || {
            pool.run(8 * threads, &|i| {
                black_box(Isa::best().run(Read(&memory[i * part..(i + 1) * part])));
            });
        });
        Self {
            products,
            read: LARGE as f64 / read / 1e9,
        }
    }

    /// The larger share of a limit, in percent.
    pub(crate) fn share(&self, bytes: f64, products: f64, unit: Unit) -> f64 {
        100.0 * (bytes / self.read).max(products / self.products[unit as usize])
    }
}

/// Many multiply-adds on registers; how many.
struct Products(Unit);

/// Sums that are under way at once.
const SUMS: usize = 12;
const STEPS: usize = 100_000;

impl Kernel for Products {
    type Out = usize;
    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> usize {
        let (mut v, mut i) = ([s.splat(0.0); SUMS], [s.ints(0); SUMS]);
        let (a, b) = (s.splat(black_box(0.5)), s.splat(black_box(0.25)));
        let (codes, x) = (s.ints(black_box(0x0101_0101)), black_box(0x0201_0201));
        for _ in 0..STEPS {
            for n in 0..SUMS {
                match self.0 {
                    Unit::F32 => v[n] = s.fma(a, b, v[n]),
                    Unit::Words => i[n] = s.dot2(i[n], codes, x),
                    Unit::Bytes => i[n] = s.dot4::<false>(i[n], codes, x),
                }
            }
        }
        for n in 0..SUMS {
            black_box(s.sum(v[n]) + s.sum(s.to_float(i[n])));
        }
        let each = match self.0 {
            Unit::F32 => 1,
            Unit::Words => 2,
            Unit::Bytes => 4,
        };
        STEPS * SUMS * S::LANES * each
    }
}

/// Reads bytes, with as little else as can be.
struct Read<'a>(&'a [u8]);

impl Kernel for Read<'_> {
    type Out = f32;
    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> f32 {
        let mut sums = [s.ints(0); 8];
        for bytes in self.0.chunks_exact(8 * 4 * S::LANES) {
            for n in 0..8 {
                sums[n] = s.sub_words(s.load_ints(&bytes[4 * S::LANES * n..]), sums[n]);
            }
        }
        sums.into_iter().map(|v| s.sum(s.to_float(v))).sum()
    }
}
