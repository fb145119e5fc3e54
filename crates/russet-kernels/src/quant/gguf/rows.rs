//! GGUF's blocks in registers: the same weights as the definition, decoded on the way to the multiplier.
//!
//! Four-bit codes choose among sixteen values, so their scale and minimum make a table once a group and each weight is a
//! lookup; the others are converted from bytes and scaled. Values go to a [`Sink`], which stores them or multiplies them.

use super::{
    BlockFormat, Layout, Q4_0, Q4_1, Q4K, Q5_0, Q5_1, Q5K, Q6K, Q8_0, fifth, nibble, paired,
    scale_min, widen,
};
use crate::elem::Rounding;
use crate::isa::Isa;
use crate::quant::RowFormat;
use crate::simd::{Kernel, Simd};

/// A matrix of GGUF blocks.
#[derive(Clone, Copy, Debug)]
pub struct GgufRows<'a> {
    pub(super) format: BlockFormat,
    pub(super) data: &'a [u8],
    rows: usize,
    k: usize,
    pub(super) stride: usize,
    rounding: Rounding,
}

impl<'a> GgufRows<'a> {
    /// Rows of `k` weights each, rounded to `rounding` before use. `None` if `k` is not whole blocks or `data` not whole rows.
    pub fn new(format: BlockFormat, data: &'a [u8], k: usize, rounding: Rounding) -> Option<Self> {
        let stride = format.row_bytes(k).filter(|&s| s > 0)?;
        let whole = data.len().is_multiple_of(stride);
        whole.then_some(Self {
            format,
            data,
            rows: data.len() / stride,
            k,
            stride,
            rounding,
        })
    }

    /// The bytes of columns `start..start + len` of a row.
    fn bytes(&self, row: usize, start: usize, len: usize) -> &'a [u8] {
        let blocks = |columns: usize| columns / self.format.block_len() * self.format.block_bytes();
        let first = row * self.stride + blocks(start);
        &self.data[first..first + blocks(len)]
    }
}

/// Runs `$body` with `$B` as the layout of `$format`.
macro_rules! with_layout {
    ($format:expr, $B:ident, $body:expr, [$($name:ident)*]) => {
        match $format { $(BlockFormat::$name => { type $B = $name; $body })* }
    };
    ($format:expr, $B:ident, $body:expr) => {
        with_layout!($format, $B, $body, [Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q4K Q5K Q6K])
    };
}

impl RowFormat for GgufRows<'_> {
    fn rows(&self) -> usize {
        self.rows
    }
    fn k(&self) -> usize {
        self.k
    }
    fn no_finer_than_half(&self) -> bool {
        true
    }
    fn dequantize(&self, isa: Isa, row: usize, start: usize, out: &mut [f32]) {
        let bytes = self.bytes(row, start, out.len());
        with_layout!(
            self.format,
            B,
            isa.run(Write {
                blocks: B::blocks(bytes),
                out,
                rounding: self.rounding
            })
        );
    }
    fn dot_rows(&self, isa: Isa, first: usize, x: &[f32], out: &mut [f32]) {
        assert_eq!(x.len(), self.k, "dot_rows: k");
        let data = &self.data[first * self.stride..(first + out.len()) * self.stride];
        with_layout!(
            self.format,
            B,
            isa.run(DotRows {
                blocks: B::blocks(data),
                x,
                out,
                rounding: self.rounding
            })
        );
    }
}

/// Takes the weights of a block, a register at a time; `at` counts from the start of the block. `STREAM` names one of two
/// independent streams, so that sums do not wait for each other.
trait Sink<S: Simd> {
    fn put<const STREAM: usize>(&mut self, s: S, at: usize, v: S::V);
}

/// A layout that can be decoded in registers.
trait Decode: Layout + Sync {
    fn decode<S: Simd, K: Sink<S>>(&self, s: S, rounding: Rounding, sink: &mut K);
}

/// The numbers a nibble stands for.
const NIBBLES: [f32; 16] = [
    0., 1., 2., 3., 4., 5., 6., 7., 8., 9., 10., 11., 12., 13., 14., 15.,
];

/// The sixteen values scale · q + shift, rounded.
#[inline(always)]
fn table<S: Simd>(s: S, rounding: Rounding, scale: f32, shift: f32) -> S::Table {
    let (scale, shift) = (s.splat(scale), s.splat(shift));
    s.table(|i| rounding.apply(s, s.fma(scale, s.load(&NIBBLES[i..]), shift)))
}

/// A block of 32 whose nibbles index one table.
#[inline(always)]
fn by_table<S: Simd, K: Sink<S>>(s: S, table: S::Table, qs: &[u8; 16], sink: &mut K) {
    for j in (0..16).step_by(S::LANES) {
        let (low, high) = s.lookup(table, &qs[j..]);
        sink.put::<0>(s, j, low);
        sink.put::<1>(s, 16 + j, high);
    }
}

/// Sixteen weights from `at`: scale · code + shift, rounded.
#[inline(always)]
fn affine<const SIGNED: bool, const STREAM: usize, S: Simd, K: Sink<S>>(
    s: S,
    rounding: Rounding,
    (at, codes): (usize, &[u8]),
    (scale, shift): (f32, f32),
    sink: &mut K,
) {
    let (scale, shift) = (s.splat(scale), s.splat(shift));
    for j in (0..16).step_by(S::LANES) {
        let code = if SIGNED {
            s.load_i8(&codes[at + j..])
        } else {
            s.load_u8(&codes[at + j..])
        };
        sink.put::<STREAM>(s, at + j, rounding.apply(s, s.fma(scale, code, shift)));
    }
}

/// Groups of 32 codes that share a scale and a shift.
#[inline(always)]
fn groups<const SIGNED: bool, S: Simd, K: Sink<S>>(
    s: S,
    rounding: Rounding,
    codes: &[u8],
    by: impl Fn(usize) -> (f32, f32),
    sink: &mut K,
) {
    for g in 0..codes.len() / 32 {
        affine::<SIGNED, 0, S, K>(s, rounding, (32 * g, codes), by(g), sink);
        affine::<SIGNED, 1, S, K>(s, rounding, (32 * g + 16, codes), by(g), sink);
    }
}

impl Decode for Q4_0 {
    #[inline(always)]
    fn decode<S: Simd, K: Sink<S>>(&self, s: S, rounding: Rounding, sink: &mut K) {
        let d = widen(self.d);
        by_table(s, table(s, rounding, d, -8.0 * d), &self.qs, sink);
    }
}

impl Decode for Q4_1 {
    #[inline(always)]
    fn decode<S: Simd, K: Sink<S>>(&self, s: S, rounding: Rounding, sink: &mut K) {
        by_table(
            s,
            table(s, rounding, widen(self.d), widen(self.m)),
            &self.qs,
            sink,
        );
    }
}

impl Decode for Q5_0 {
    #[inline(always)]
    fn decode<S: Simd, K: Sink<S>>(&self, s: S, rounding: Rounding, sink: &mut K) {
        let d = widen(self.d);
        let codes: [u8; 32] = std::array::from_fn(|i| nibble(&self.qs, i) | fifth(self.qh, i));
        groups::<false, S, K>(s, rounding, &codes, |_| (d, -16.0 * d), sink);
    }
}

impl Decode for Q5_1 {
    #[inline(always)]
    fn decode<S: Simd, K: Sink<S>>(&self, s: S, rounding: Rounding, sink: &mut K) {
        let by = (widen(self.d), widen(self.m));
        let codes: [u8; 32] = std::array::from_fn(|i| nibble(&self.qs, i) | fifth(self.qh, i));
        groups::<false, S, K>(s, rounding, &codes, |_| by, sink);
    }
}

impl Decode for Q8_0 {
    #[inline(always)]
    fn decode<S: Simd, K: Sink<S>>(&self, s: S, rounding: Rounding, sink: &mut K) {
        let d = widen(self.d);
        groups::<true, S, K>(s, rounding, &self.qs, |_| (d, 0.0), sink);
    }
}

impl Decode for Q4K {
    #[inline(always)]
    fn decode<S: Simd, K: Sink<S>>(&self, s: S, rounding: Rounding, sink: &mut K) {
        let (d, dmin) = (widen(self.d), widen(self.dmin));
        for (pair, qs) in self.qs.chunks_exact(32).enumerate() {
            let (scale, min) = scale_min(&self.scales, 2 * pair);
            let low = table(s, rounding, d * scale, -dmin * min);
            let (scale, min) = scale_min(&self.scales, 2 * pair + 1);
            let high = table(s, rounding, d * scale, -dmin * min);
            for j in (0..32).step_by(S::LANES) {
                sink.put::<0>(s, 64 * pair + j, s.lookup(low, &qs[j..]).0);
                sink.put::<1>(s, 64 * pair + 32 + j, s.lookup(high, &qs[j..]).1);
            }
        }
    }
}

impl Decode for Q5K {
    #[inline(always)]
    fn decode<S: Simd, K: Sink<S>>(&self, s: S, rounding: Rounding, sink: &mut K) {
        let (d, dmin) = (widen(self.d), widen(self.dmin));
        let mut codes = [0; 256];
        for (g, codes) in codes.chunks_exact_mut(32).enumerate() {
            for (i, code) in codes.iter_mut().enumerate() {
                *code = paired(&self.qs, 32 * g + i) | (self.qh[i] >> g & 1) << 4;
            }
        }
        let by = |g| {
            let (scale, min) = scale_min(&self.scales, g);
            (d * scale, -dmin * min)
        };
        groups::<false, S, K>(s, rounding, &codes, by, sink);
    }
}

impl Decode for Q6K {
    #[inline(always)]
    fn decode<S: Simd, K: Sink<S>>(&self, s: S, rounding: Rounding, sink: &mut K) {
        let d = widen(self.d);
        let mut codes = [0; 256];
        for (g, codes) in codes.chunks_exact_mut(32).enumerate() {
            codes
                .iter_mut()
                .enumerate()
                .for_each(|(i, code)| *code = self.code(32 * g + i));
        }
        let scale = |g: usize| d * f32::from(self.scales[g].cast_signed());
        for g in (0..16).step_by(2) {
            affine::<true, 0, S, K>(s, rounding, (16 * g, &codes), (scale(g), 0.0), sink);
            affine::<true, 1, S, K>(
                s,
                rounding,
                (16 * g + 16, &codes),
                (scale(g + 1), 0.0),
                sink,
            );
        }
    }
}

/// Stores the weights of blocks.
struct Write<'a, B> {
    blocks: &'a [B],
    out: &'a mut [f32],
    rounding: Rounding,
}

/// The part of the output a block goes to.
struct Store<'a>(&'a mut [f32]);

impl<S: Simd> Sink<S> for Store<'_> {
    #[inline(always)]
    fn put<const STREAM: usize>(&mut self, s: S, at: usize, v: S::V) {
        s.store(v, &mut self.0[at..]);
    }
}

impl<B: Decode> Kernel for Write<'_, B> {
    type Out = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for (block, out) in self.blocks.iter().zip(self.out.chunks_exact_mut(B::LEN)) {
            block.decode(s, self.rounding, &mut Store(out));
        }
    }
}

/// Products of rows with one vector.
struct DotRows<'a, B> {
    blocks: &'a [B],
    x: &'a [f32],
    out: &'a mut [f32],
    rounding: Rounding,
}

/// The sums of a row so far, and the part of the vector the present block meets.
struct Sums<'a, S: Simd> {
    x: &'a [f32],
    sums: [S::V; 2],
}

impl<S: Simd> Sink<S> for Sums<'_, S> {
    #[inline(always)]
    fn put<const STREAM: usize>(&mut self, s: S, at: usize, v: S::V) {
        self.sums[STREAM] = s.fma(v, s.load(&self.x[at..]), self.sums[STREAM]);
    }
}

impl<B: Decode> Kernel for DotRows<'_, B> {
    type Out = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let rows = self.blocks.chunks_exact((self.x.len() / B::LEN).max(1));
        for (row, y) in rows.zip(self.out) {
            let mut sums: [S::V; 2] = [s.splat(0.0); 2];
            for (block, x) in row.iter().zip(self.x.chunks_exact(B::LEN)) {
                let mut sink = Sums { x, sums };
                block.decode(s, self.rounding, &mut sink);
                sums = sink.sums;
            }
            *y = s.sum(s.add(sums[0], sums[1]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quant::{COLUMN_STEP, dequantize_row};
    use crate::testing::{Random, close};

    /// `n` random blocks with ordinary scales: the exponents of every f16 of a block are held down.
    fn blocks(format: BlockFormat, n: usize, seed: u64) -> Vec<u8> {
        let mut data = Random::new(seed).bytes(n * format.block_bytes());
        let halves: &[usize] = match format {
            BlockFormat::Q6K => &[208],
            BlockFormat::Q4_0 | BlockFormat::Q5_0 | BlockFormat::Q8_0 => &[0],
            _ => &[0, 2],
        };
        for block in data.chunks_exact_mut(format.block_bytes()) {
            halves
                .iter()
                .for_each(|&at| block[at + 1] = block[at + 1] & 0x83 | 0x04);
        }
        data
    }

    #[test]
    fn registers_decode_as_defined() {
        for (&format, rounding) in BlockFormat::ALL
            .iter()
            .flat_map(|f| [(f, Rounding::F32), (f, Rounding::F16)])
        {
            let k = 3 * 256;
            let data = blocks(format, 2 * k / format.block_len(), 3);
            let rows = GgufRows::new(format, &data, k, rounding).unwrap();
            assert_eq!((rows.rows(), rows.k()), (2, k));
            let mut want = vec![0.0; 2 * k];
            format.dequantize(&data, &mut want);
            want.iter_mut().for_each(|w| *w = rounding.scalar(*w));
            for isa in Isa::available() {
                let (mut whole, mut tail) = (vec![0.0; k], vec![0.0; k - COLUMN_STEP]);
                rows.dequantize(*isa, 1, 0, &mut whole);
                rows.dequantize(*isa, 1, COLUMN_STEP, &mut tail);
                assert_eq!(whole, want[k..], "{} {}", format.name(), isa.name());
                assert_eq!(
                    tail,
                    want[k + COLUMN_STEP..],
                    "{} {}",
                    format.name(),
                    isa.name()
                );
            }
            let mut row = vec![0.0; k];
            dequantize_row(&rows, 0, &mut row);
            assert_eq!(row, want[..k]);
        }
    }

    #[test]
    fn products_match_f64() {
        for &format in BlockFormat::ALL {
            let (k, n) = (512, 5);
            let data = blocks(format, n * k / format.block_len(), 11);
            let rows = GgufRows::new(format, &data, k, Rounding::F32).unwrap();
            let x = Random::new(5).floats(k);
            let mut weights = vec![0.0; n * k];
            format.dequantize(&data, &mut weights);
            for isa in Isa::available() {
                let mut y = vec![0.0; 3];
                rows.dot_rows(*isa, 2, &x, &mut y);
                for (y, row) in y.iter().zip(weights[2 * k..].chunks(k)) {
                    let want: f64 = row
                        .iter()
                        .zip(&x)
                        .map(|(a, b)| f64::from(*a) * f64::from(*b))
                        .sum();
                    assert!(
                        close(*y, want, k),
                        "{} {}: {y} {want}",
                        format.name(),
                        isa.name()
                    );
                }
            }
        }
    }

    #[test]
    fn ragged_rows_are_refused() {
        assert!(GgufRows::new(BlockFormat::Q4_1, &[0; 20], 33, Rounding::F32).is_none());
        assert!(GgufRows::new(BlockFormat::Q4_1, &[0; 21], 32, Rounding::F32).is_none());
        assert!(GgufRows::new(BlockFormat::Q4_1, &[], 0, Rounding::F32).is_none());
    }
}
