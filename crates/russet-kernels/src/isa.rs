//! Which instruction set a kernel runs on: detected once, proved by a token.
//!
//! An [`Isa`] value exists only for an instruction set the machine has, so running a [`Kernel`] on it is safe.
//! The portable variant is the definition; the others are the same body compiled for wider registers.

use std::sync::OnceLock;

#[cfg(target_arch = "aarch64")]
use crate::simd::neon::{Dot, Matrix, Neon, Plain};
#[cfg(target_arch = "x86_64")]
use crate::simd::x86::{Avx2, Avx512};
use crate::simd::{Kernel, Portable, Simd};

/// An instruction set present on this machine.
#[derive(Clone, Copy, Debug)]
pub enum Isa {
    /// AVX-512 F, BW, DQ, VL and VNNI: 16 lanes.
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
    /// AVX2 with FMA and F16C: 8 lanes.
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    /// NEON with matrix products of bytes: 4 lanes.
    #[cfg(target_arch = "aarch64")]
    NeonMatrix(Neon<Matrix>),
    /// NEON with dot products of bytes: 4 lanes.
    #[cfg(target_arch = "aarch64")]
    NeonDot(Neon<Dot>),
    /// NEON: 4 lanes.
    #[cfg(target_arch = "aarch64")]
    Neon(Neon<Plain>),
    /// Plain Rust on groups of four: what the others are tested against.
    Portable(Portable),
}

impl Isa {
    /// The instruction sets of this machine, best first, portable last.
    pub fn available() -> &'static [Isa] {
        static LIST: OnceLock<Vec<Isa>> = OnceLock::new();
        LIST.get_or_init(detect)
    }

    /// The best instruction set of this machine.
    pub fn best() -> Isa {
        static BEST: OnceLock<Isa> = OnceLock::new();
        *BEST.get_or_init(|| {
            Isa::available()
                .first()
                .copied()
                .unwrap_or(Isa::Portable(Portable))
        })
    }

    /// Its name: `avx512`, `avx2`, `neon-i8mm`, `neon-dotprod`, `neon` or `portable`.
    pub fn name(self) -> &'static str {
        match self {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512(_) => "avx512",
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2(_) => "avx2",
            #[cfg(target_arch = "aarch64")]
            Isa::NeonMatrix(_) => "neon-i8mm",
            #[cfg(target_arch = "aarch64")]
            Isa::NeonDot(_) => "neon-dotprod",
            #[cfg(target_arch = "aarch64")]
            Isa::Neon(_) => "neon",
            Isa::Portable(_) => "portable",
        }
    }

    /// Runs `kernel` compiled for this instruction set.
    #[inline]
    pub fn run<K: Kernel>(self, kernel: K) -> K::Out {
        match self {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512(s) => s.vectorize(kernel),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2(s) => s.vectorize(kernel),
            #[cfg(target_arch = "aarch64")]
            Isa::NeonMatrix(s) => s.vectorize(kernel),
            #[cfg(target_arch = "aarch64")]
            Isa::NeonDot(s) => s.vectorize(kernel),
            #[cfg(target_arch = "aarch64")]
            Isa::Neon(s) => s.vectorize(kernel),
            Isa::Portable(s) => s.vectorize(kernel),
        }
    }
}

fn detect() -> Vec<Isa> {
    let mut found = Vec::new();
    #[cfg(target_arch = "x86_64")]
    {
        found.extend(Avx512::detect().map(Isa::Avx512));
        found.extend(Avx2::detect().map(Isa::Avx2));
    }
    #[cfg(target_arch = "aarch64")]
    {
        found.extend(Neon::<Matrix>::detect().map(Isa::NeonMatrix));
        found.extend(Neon::<Dot>::detect().map(Isa::NeonDot));
        found.extend(Neon::<Plain>::detect().map(Isa::Neon));
    }
    found.push(Isa::Portable(Portable));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_the_best_first_and_portable_last() {
        let names: Vec<_> = Isa::available().iter().map(|isa| isa.name()).collect();
        assert_eq!(names.last(), Some(&"portable"));
        assert_eq!(names[0], Isa::best().name());
    }

    /// The loops over `Isa::available()` in every kernel's tests are worth something only if the wide variants are
    /// in it: on a machine that has AVX2 they must be.
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn wide_variants_are_exercised_where_the_machine_has_them() {
        let names: Vec<_> = Isa::available().iter().map(|isa| isa.name()).collect();
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            assert!(names.contains(&"avx2"), "{names:?}");
        }
        if is_x86_feature_detected!("avx512bw") && is_x86_feature_detected!("avx512vl") {
            assert!(names.contains(&"avx512"), "{names:?}");
        }
    }

    #[cfg(target_arch = "aarch64")]
    #[test]
    fn neon_variants_are_exercised_where_the_machine_has_them() {
        let names: Vec<_> = Isa::available().iter().map(|isa| isa.name()).collect();
        assert!(names.contains(&"neon"), "{names:?}");
        let dot = std::arch::is_aarch64_feature_detected!("dotprod");
        assert_eq!(names.contains(&"neon-dotprod"), dot, "{names:?}");
        let matrix = dot && std::arch::is_aarch64_feature_detected!("i8mm");
        assert_eq!(names.contains(&"neon-i8mm"), matrix, "{names:?}");
    }
}
