//! The storage types of tensors, and the rule they share: compute in f32, round to the storage type.

use half::{bf16, f16};

use crate::compiled::Products;
use crate::mem::Pod;
use crate::simd::{MAX_LANES, Simd};

/// A floating-point storage type: f32, f16 or bf16.
pub trait Elem: Pod + PartialEq + Products {
    /// The rounding to this type.
    const ROUNDING: Rounding;
    /// Zero.
    const ZERO: Self;

    /// To f32, exactly.
    fn to_f32(self) -> f32;
    /// From f32, to nearest even.
    fn from_f32(x: f32) -> Self;
    /// Loads a register.
    fn load<S: Simd>(s: S, x: &[Self]) -> S::V;
    /// Stores a register, rounded.
    fn store<S: Simd>(s: S, v: S::V, out: &mut [Self]);

    /// Rounds each lane to this type, kept as f32.
    #[inline(always)]
    fn round<S: Simd>(s: S, v: S::V) -> S::V {
        Self::ROUNDING.apply(s, v)
    }

    /// Loads `len` elements; lanes beyond are zero. `len` is at most the lanes of a register.
    #[inline(always)]
    fn load_part<S: Simd>(s: S, x: &[Self], len: usize) -> S::V {
        if len == S::LANES {
            return Self::load(s, x);
        }
        let mut lanes = [Self::ZERO; MAX_LANES];
        lanes[..len].copy_from_slice(&x[..len]);
        Self::load(s, &lanes)
    }

    /// Stores the first `len` lanes, rounded.
    #[inline(always)]
    fn store_part<S: Simd>(s: S, v: S::V, out: &mut [Self], len: usize) {
        if len == S::LANES {
            return Self::store(s, v, out);
        }
        let mut lanes = [Self::ZERO; MAX_LANES];
        Self::store(s, v, &mut lanes);
        out[..len].copy_from_slice(&lanes[..len]);
    }
}

/// The type a value is rounded to before it is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rounding {
    /// Left in f32.
    #[default]
    F32,
    /// To f16.
    F16,
    /// To bf16.
    Bf16,
}

impl Rounding {
    /// Rounds each lane.
    #[inline(always)]
    pub fn apply<S: Simd>(self, s: S, v: S::V) -> S::V {
        match self {
            Rounding::F32 => v,
            Rounding::F16 => s.round_f16(v),
            Rounding::Bf16 => s.round_bf16(v),
        }
    }

    /// Rounds one value.
    pub fn scalar(self, x: f32) -> f32 {
        match self {
            Rounding::F32 => x,
            Rounding::F16 => f16::from_f32(x).to_f32(),
            Rounding::Bf16 => bf16::from_f32(x).to_f32(),
        }
    }
}

impl Elem for f32 {
    const ROUNDING: Rounding = Rounding::F32;
    const ZERO: Self = 0.0;

    #[inline(always)]
    fn to_f32(self) -> f32 {
        self
    }
    #[inline(always)]
    fn from_f32(x: f32) -> Self {
        x
    }
    #[inline(always)]
    fn load<S: Simd>(s: S, x: &[Self]) -> S::V {
        s.load(x)
    }
    #[inline(always)]
    fn store<S: Simd>(s: S, v: S::V, out: &mut [Self]) {
        s.store(v, out);
    }
}

impl Elem for f16 {
    const ROUNDING: Rounding = Rounding::F16;
    const ZERO: Self = f16::ZERO;

    #[inline(always)]
    fn to_f32(self) -> f32 {
        f16::to_f32(self)
    }
    #[inline(always)]
    fn from_f32(x: f32) -> Self {
        f16::from_f32(x)
    }
    #[inline(always)]
    fn load<S: Simd>(s: S, x: &[Self]) -> S::V {
        s.load_f16(x)
    }
    #[inline(always)]
    fn store<S: Simd>(s: S, v: S::V, out: &mut [Self]) {
        s.store_f16(v, out);
    }
}

impl Elem for bf16 {
    const ROUNDING: Rounding = Rounding::Bf16;
    const ZERO: Self = bf16::ZERO;

    #[inline(always)]
    fn to_f32(self) -> f32 {
        bf16::to_f32(self)
    }
    #[inline(always)]
    fn from_f32(x: f32) -> Self {
        bf16::from_f32(x)
    }
    #[inline(always)]
    fn load<S: Simd>(s: S, x: &[Self]) -> S::V {
        s.load_bf16(x)
    }
    #[inline(always)]
    fn store<S: Simd>(s: S, v: S::V, out: &mut [Self]) {
        s.store_bf16(v, out);
    }
}
