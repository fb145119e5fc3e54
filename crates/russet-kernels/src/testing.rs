//! What the tests of several kernels share: deterministic numbers and comparisons.

/// A small generator (Marsaglia's xorshift), so that every run tests the same numbers.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 32) as u32
    }

    /// Uniform in -1..1.
    pub(crate) fn float(&mut self) -> f32 {
        (self.next() >> 8) as f32 / 8_388_608.0 - 1.0
    }

    pub(crate) fn floats(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.float()).collect()
    }

    pub(crate) fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.next() as u8).collect()
    }
}

/// Whether an f32 sum of `terms` products of numbers below one is as near to `want` as its roundings allow.
pub(crate) fn close(got: f32, want: f64, terms: usize) -> bool {
    (f64::from(got) - want).abs() <= 1e-6 * (terms as f64).sqrt().max(1.0) + 1e-6 * want.abs()
}
