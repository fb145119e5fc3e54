//! Integer codes in blocks along k: (code - zero) * scale + shift, one (zero, scale, shift) per row and block.
//!
//! This is `coreai.blockwise_shift_scale` (contract B) with the blocks along the last axis. Four-bit codes are packed two to
//! a byte, low nibble first, and so are their zero points. The value is rounded to the compute type before the product,
//! which makes a block of 4-bit codes a choice among sixteen values: a table per block, looked up by nibble.

use std::marker::PhantomData;
use std::ops::Range;

use half::{bf16, f16};

use super::{Order, RowFormat};
use crate::elem::{Elem, Rounding};
use crate::isa::Isa;
use crate::packed::{BLOCK, Bits, BlockSource};
use crate::simd::{Kernel, MAX_LANES, Simd, pieces};

/// The integer type of the codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// Signed 4-bit.
    I4,
    /// Unsigned 4-bit.
    U4,
    /// Signed 8-bit.
    I8,
    /// Unsigned 8-bit.
    U8,
}

impl Code {
    /// Codes in a byte.
    fn per_byte(self) -> usize {
        if matches!(self, Code::I4 | Code::U4) {
            2
        } else {
            1
        }
    }

    /// The values of the sixteen nibbles.
    #[inline(always)]
    fn nibbles(self) -> &'static [f32; 16] {
        if self == Code::I4 { &SIGNED } else { &UNSIGNED }
    }

    /// Code `i` of `data`.
    #[inline(always)]
    fn get(self, data: &[u8], i: usize) -> f32 {
        match self {
            Code::I4 => f32::from(((nibble(data, i) << 4) as i8) >> 4),
            Code::U4 => f32::from(nibble(data, i)),
            Code::I8 => f32::from(data[i] as i8),
            Code::U8 => f32::from(data[i]),
        }
    }
}

#[inline(always)]
fn nibble(data: &[u8], i: usize) -> u8 {
    (data[i / 2] >> (4 * (i % 2))) & 15
}

const SIGNED: [f32; 16] = [
    0., 1., 2., 3., 4., 5., 6., 7., -8., -7., -6., -5., -4., -3., -2., -1.,
];
const UNSIGNED: [f32; 16] = [
    0., 1., 2., 3., 4., 5., 6., 7., 8., 9., 10., 11., 12., 13., 14., 15.,
];

/// A borrowed vector of any of the storage types.
#[derive(Clone, Copy, Debug)]
pub enum Floats<'a> {
    /// f32.
    F32(&'a [f32]),
    /// f16.
    F16(&'a [f16]),
    /// bf16.
    Bf16(&'a [bf16]),
}

impl Floats<'_> {
    /// Elements.
    pub fn len(&self) -> usize {
        match self {
            Floats::F32(x) => x.len(),
            Floats::F16(x) => x.len(),
            Floats::Bf16(x) => x.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Element `i`.
    pub(super) fn get(&self, i: usize) -> f32 {
        match self {
            Floats::F32(x) => x[i],
            Floats::F16(x) => x[i].to_f32(),
            Floats::Bf16(x) => x[i].to_f32(),
        }
    }

    /// Widens `count` elements from `from` on; `out` has room for a register more.
    #[inline(always)]
    fn widen<S: Simd>(&self, s: S, from: usize, count: usize, out: &mut [f32]) {
        match self {
            Floats::F32(x) => widen(s, &x[from..], count, out),
            Floats::F16(x) => widen(s, &x[from..], count, out),
            Floats::Bf16(x) => widen(s, &x[from..], count, out),
        }
    }
}

/// Reads whole registers where `x` goes on, which it does everywhere but at the end of the matrix.
#[inline(always)]
fn widen<S: Simd, T: Elem>(s: S, x: &[T], count: usize, out: &mut [f32]) {
    let readable = count.next_multiple_of(S::LANES).min(x.len());
    for (i, len) in pieces(readable, S::LANES) {
        f32::store_part(s, T::load_part(s, &x[i..], len), &mut out[i..], len);
    }
}

/// A matrix of integer codes with a scale per row and block.
#[derive(Clone, Copy, Debug)]
pub struct BlockRows<'a> {
    /// The codes, row-major, packed.
    pub data: &'a [u8],
    /// Their type.
    pub code: Code,
    /// Rows (n).
    pub rows: usize,
    /// Columns (k).
    pub k: usize,
    /// Columns per block.
    pub block: usize,
    /// Scales [rows, k / block].
    pub scales: Floats<'a>,
    /// Zero points [rows, k / block], coded and packed as the data; `None` for zeros.
    pub zeros: Option<&'a [u8]>,
    /// Shifts [rows, k / block], added after scaling; `None` for zeros.
    pub shifts: Option<Floats<'a>>,
    /// The type each value is rounded to before the product.
    pub rounding: Rounding,
}

impl BlockRows<'_> {
    /// Checks that the parts fit together, and that blocks are whole registers: 32 codes of four bits, 16 of eight; `None` if
    /// not ([`TableRows`](super::TableRows) reads any block).
    pub fn checked(self) -> Option<Self> {
        let blocks = self.rows.checked_mul(self.k.checked_div(self.block)?)?;
        let codes = self.rows.checked_mul(self.k)?;
        let per_byte = self.code.per_byte();
        let fits = (self.by_nibbles() || self.by_bytes())
            && self.k.is_multiple_of(self.block)
            && self.data.len() == codes.div_ceil(per_byte)
            && self.scales.len() == blocks
            && self
                .zeros
                .is_none_or(|z| z.len() == blocks.div_ceil(per_byte))
            && self.shifts.is_none_or(|s| s.len() == blocks);
        fits.then_some(self)
    }

    fn blocks(&self) -> usize {
        self.k / self.block
    }

    /// Whether rows can be read 16 bytes of nibbles at a time.
    fn by_nibbles(&self) -> bool {
        self.code.per_byte() == 2 && self.block.is_multiple_of(32)
    }

    /// Whether rows can be read in whole registers of bytes.
    fn by_bytes(&self) -> bool {
        self.code.per_byte() == 1 && self.block.is_multiple_of(16)
    }

    #[inline(always)]
    fn affine(&self) -> bool {
        self.zeros.is_some() || self.shifts.is_some()
    }
}

impl RowFormat for BlockRows<'_> {
    fn rows(&self) -> usize {
        self.rows
    }
    fn k(&self) -> usize {
        self.k
    }
    fn order(&self) -> Order {
        if self.by_nibbles() {
            Order::EvenOdd
        } else {
            Order::Natural
        }
    }
    fn no_finer_than_half(&self) -> bool {
        true
    }
    fn dequantize(&self, isa: Isa, row: usize, start: usize, out: &mut [f32]) {
        match self.rounding {
            Rounding::F32 => isa.run(Write::<f32>::new(self, row, start, out)),
            Rounding::F16 => isa.run(Write::<f16>::new(self, row, start, out)),
            Rounding::Bf16 => isa.run(Write::<bf16>::new(self, row, start, out)),
        }
    }
    fn dot_rows(&self, isa: Isa, first: usize, x: &[f32], out: &mut [f32]) {
        assert_eq!(x.len(), self.k, "dot_rows: k");
        match self.rounding {
            Rounding::F32 => isa.run(DotRows::<f32>::new(self, first, x, out)),
            Rounding::F16 => isa.run(DotRows::<f16>::new(self, first, x, out)),
            Rounding::Bf16 => isa.run(DotRows::<bf16>::new(self, first, x, out)),
        }
    }
}

impl BlockRows<'_> {
    /// Whether the matrix can be packed for integer products: 32 columns share a scale.
    pub fn packable(&self) -> bool {
        self.block.is_multiple_of(BLOCK) && self.block > 0
    }

    /// What the code of a signed type is raised by to make it unsigned.
    fn raise(&self) -> u8 {
        match self.code {
            Code::I4 => 8,
            Code::I8 => 128,
            Code::U4 | Code::U8 => 0,
        }
    }
}

impl BlockSource for BlockRows<'_> {
    fn rows(&self) -> usize {
        self.rows
    }
    fn k(&self) -> usize {
        self.k
    }
    fn bits(&self) -> Bits {
        if self.code.per_byte() == 2 {
            Bits::Four
        } else {
            Bits::Eight
        }
    }
    fn zero(&self) -> i32 {
        self.raise().into()
    }
    fn has_offsets(&self) -> bool {
        self.affine()
    }
    fn half_scales(&self) -> bool {
        // Offsets take a product of zero point and scale in, which half precision holds well enough.
        matches!(self.scales, Floats::F16(_))
    }
    fn block(&self, row: usize, block: usize, codes: &mut [u8; BLOCK]) -> (f32, f32) {
        let (first, raise) = (row * self.k + block * BLOCK, self.raise());
        if self.code.per_byte() == 2 {
            let bytes = &self.data[first / 2..first / 2 + BLOCK / 2];
            for i in 0..BLOCK / 2 {
                codes[2 * i] = bytes[i] & 15 ^ raise;
                codes[2 * i + 1] = bytes[i] >> 4 ^ raise;
            }
        } else {
            for (code, byte) in codes.iter_mut().zip(&self.data[first..]) {
                *code = byte ^ raise;
            }
        }
        // Divisions would take as long as all the rest.
        let at = if self.block == BLOCK {
            row * (self.k / BLOCK) + block
        } else {
            row * self.blocks() + block * BLOCK / self.block
        };
        let scale = self.scales.get(at);
        let zero = self.zeros.map_or(0.0, |z| self.code.get(z, at));
        let shift = self.shifts.map_or(0.0, |s| s.get(at));
        (scale, shift - zero * scale)
    }
}

/// Receives the values of a row piece by piece, in the format's order.
trait Sink<S: Simd> {
    /// The `len` values at column `at` (all the lanes but at a row's end); `turn` alternates between calls.
    fn put(&mut self, s: S, at: usize, v: S::V, len: usize, turn: usize);
}

struct Write<'a, R> {
    w: &'a BlockRows<'a>,
    row: usize,
    start: usize,
    out: &'a mut [f32],
    round: PhantomData<R>,
}

impl<'a, R: Elem> Write<'a, R> {
    fn new(w: &'a BlockRows<'a>, row: usize, start: usize, out: &'a mut [f32]) -> Self {
        Self {
            w,
            row,
            start,
            out,
            round: PhantomData,
        }
    }
}

impl<R: Elem> Kernel for Write<'_, R> {
    type Out = ();
    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let (mut walk, row) = (Walk::new(self.w), self.row);
        let columns = self.start..self.start + self.out.len();
        walk.visit::<S, R>(s, row, columns, &mut self);
    }
}

impl<S: Simd, R: Elem> Sink<S> for Write<'_, R> {
    #[inline(always)]
    fn put(&mut self, s: S, at: usize, v: S::V, len: usize, _: usize) {
        f32::store_part(s, v, &mut self.out[at - self.start..], len);
    }
}

struct DotRows<'a, R> {
    w: &'a BlockRows<'a>,
    first: usize,
    x: &'a [f32],
    out: &'a mut [f32],
    round: PhantomData<R>,
}

impl<'a, R: Elem> DotRows<'a, R> {
    fn new(w: &'a BlockRows<'a>, first: usize, x: &'a [f32], out: &'a mut [f32]) -> Self {
        Self {
            w,
            first,
            x,
            out,
            round: PhantomData,
        }
    }
}

impl<R: Elem> Kernel for DotRows<'_, R> {
    type Out = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let mut walk = Walk::new(self.w);
        if self.w.by_nibbles() {
            return self.nibbles(s, &mut walk);
        }
        for (i, y) in self.out.iter_mut().enumerate() {
            let mut sink = Product {
                x: self.x,
                sums: [s.splat(0.0); 2],
            };
            walk.visit::<S, R>(s, self.first + i, 0..self.x.len(), &mut sink);
            *y = s.sum(s.add(sink.sums[0], sink.sums[1]));
        }
    }
}

impl<R: Elem> DotRows<'_, R> {
    /// The hot path of decoding: the common block size and the absence of zero points and shifts are compiled in.
    #[inline(always)]
    fn nibbles<S: Simd>(self, s: S, walk: &mut Walk<'_>) {
        for (i, y) in self.out.iter_mut().enumerate() {
            let (row, x) = (self.first + i, self.x);
            *y = match (self.w.affine(), self.w.block) {
                (false, 32) => walk.dot_nibbles::<S, R, false>(s, row, x, 32),
                (true, 32) => walk.dot_nibbles::<S, R, true>(s, row, x, 32),
                (false, block) => walk.dot_nibbles::<S, R, false>(s, row, x, block),
                (true, block) => walk.dot_nibbles::<S, R, true>(s, row, x, block),
            };
        }
    }
}

/// The running product of a row with `x`.
struct Product<'a, S: Simd> {
    x: &'a [f32],
    sums: [S::V; 2],
}

impl<S: Simd> Sink<S> for Product<'_, S> {
    #[inline(always)]
    fn put(&mut self, s: S, at: usize, v: S::V, len: usize, turn: usize) {
        let x = f32::load_part(s, &self.x[at..], len);
        self.sums[turn] = s.fma(v, x, self.sums[turn]);
    }
}

/// Blocks whose scales are widened at once.
const AHEAD: usize = 64;

/// Goes along rows, with the parameters of the next blocks widened.
struct Walk<'a> {
    w: &'a BlockRows<'a>,
    blocks: usize,
    bytes_per_row: usize,
    scales: [f32; AHEAD + MAX_LANES],
    zeros: [f32; AHEAD],
    /// What is added to `(code - zero) * scale`.
    biases: [f32; AHEAD + MAX_LANES],
}

impl<'a> Walk<'a> {
    #[inline(always)]
    fn new(w: &'a BlockRows<'a>) -> Self {
        Self {
            w,
            blocks: w.blocks(),
            bytes_per_row: w.k / w.code.per_byte(),
            scales: [0.0; AHEAD + MAX_LANES],
            zeros: [0.0; AHEAD],
            biases: [0.0; AHEAD + MAX_LANES],
        }
    }

    /// Gives the values of `columns` of `row` to `sink`.
    #[inline(always)]
    fn visit<S: Simd, R: Elem>(
        &mut self,
        s: S,
        row: usize,
        columns: Range<usize>,
        sink: &mut impl Sink<S>,
    ) {
        let w = self.w;
        match (w.affine(), w.by_nibbles()) {
            (false, true) => self.by_block::<S, R, NibbleBlock, false>(s, row, columns, sink),
            (true, true) => self.by_block::<S, R, NibbleBlock, true>(s, row, columns, sink),
            (false, false) => self.by_block::<S, R, ByteBlock, false>(s, row, columns, sink),
            (true, false) => self.by_block::<S, R, ByteBlock, true>(s, row, columns, sink),
        }
    }

    /// Widens the parameters of `count` blocks from `from` on, counted over the matrix. As in Apple's CPU runtime, zero points of
    /// bytes go into what is added, `shift - zero * scale` rounded at every step; those of nibbles are subtracted from codes.
    #[inline(always)]
    fn fill<S: Simd, const AFFINE: bool>(&mut self, s: S, from: usize, count: usize) {
        let w = self.w;
        w.scales.widen(s, from, count, &mut self.scales);
        if AFFINE {
            match &w.shifts {
                Some(shifts) => shifts.widen(s, from, count, &mut self.biases),
                None => self.biases[..count].fill(0.0),
            }
            let Some(zeros) = w.zeros else {
                return;
            };
            let (bytes, round) = (w.code.per_byte() == 1, |x| w.rounding.scalar(x));
            for i in 0..count {
                let zero = w.code.get(zeros, from + i);
                if bytes {
                    self.biases[i] = round(self.biases[i] - round(zero * self.scales[i]));
                } else {
                    self.zeros[i] = zero;
                }
            }
        }
    }

    #[inline(always)]
    fn by_block<S: Simd, R: Elem, B: ReadBlock, const AFFINE: bool>(
        &mut self,
        s: S,
        row: usize,
        columns: Range<usize>,
        sink: &mut impl Sink<S>,
    ) {
        let w = self.w;
        let data = &w.data[row * self.bytes_per_row..(row + 1) * self.bytes_per_row];
        let first = if columns.start == 0 {
            0
        } else {
            columns.start / w.block
        };
        let (mut at, mut block) = (columns.start, first);
        while at < columns.end {
            let count = AHEAD.min(self.blocks - block);
            self.fill::<S, AFFINE>(s, row * self.blocks + block, count);
            for i in 0..count {
                let affine = Affine {
                    scale: s.splat(self.scales[i]),
                    zero: s.splat(self.zeros[i]),
                    bias: s.splat(self.biases[i]),
                };
                let end = columns.end.min((block + i + 1) * w.block);
                B::read::<S, R, AFFINE>(s, w.code, data, at..end, affine, sink);
                at = end;
                if at == columns.end {
                    return;
                }
            }
            block += count;
        }
    }

    /// The product of a row of nibbles with `x`, by slices of one length that need no checks inside.
    #[inline(always)]
    fn dot_nibbles<S: Simd, R: Elem, const AFFINE: bool>(
        &mut self,
        s: S,
        row: usize,
        x: &[f32],
        block: usize,
    ) -> f32 {
        let data = &self.w.data[row * self.bytes_per_row..(row + 1) * self.bytes_per_row];
        let codes = self.w.code.nibbles();
        let mut sums = [s.splat(0.0); 2];
        let (mut first, mut at) = (0, 0);
        while first < self.blocks {
            let count = AHEAD.min(self.blocks - first);
            self.fill::<S, AFFINE>(s, row * self.blocks + first, count);
            let mut i = 0;
            while i < count {
                let affine = Affine {
                    scale: s.splat(self.scales[i]),
                    zero: s.splat(self.zeros[i]),
                    bias: s.splat(self.biases[i]),
                };
                let table = s.table(|i| value::<S, R, AFFINE>(s, s.load(&codes[i..]), affine));
                let end = at + block;
                while at < end {
                    let (bytes, x) = (&data[at / 2..at / 2 + 16], &x[at..at + 32]);
                    let mut lane = 0;
                    while lane < 16 {
                        let (even, odd) = s.lookup(table, &bytes[lane..]);
                        sums[0] = s.fma(even, s.load(&x[lane..]), sums[0]);
                        sums[1] = s.fma(odd, s.load(&x[16 + lane..]), sums[1]);
                        lane += S::LANES;
                    }
                    at += 32;
                }
                i += 1;
            }
            first += count;
        }
        s.sum(s.add(sums[0], sums[1]))
    }
}

/// One block's map from codes to values.
#[derive(Clone, Copy)]
struct Affine<V> {
    scale: V,
    zero: V,
    bias: V,
}

/// (q - zero) * scale + bias, rounded to `R` at every step.
#[inline(always)]
fn value<S: Simd, R: Elem, const AFFINE: bool>(s: S, q: S::V, a: Affine<S::V>) -> S::V {
    if AFFINE {
        let v = R::round(s, s.mul(s.sub(q, a.zero), a.scale));
        R::round(s, s.add(v, a.bias))
    } else {
        R::round(s, s.mul(q, a.scale))
    }
}

/// A way to read the codes of one block.
trait ReadBlock {
    fn read<S: Simd, R: Elem, const AFFINE: bool>(
        s: S,
        code: Code,
        row: &[u8],
        columns: Range<usize>,
        affine: Affine<S::V>,
        sink: &mut impl Sink<S>,
    );
}

struct NibbleBlock;

impl ReadBlock for NibbleBlock {
    #[inline(always)]
    fn read<S: Simd, R: Elem, const AFFINE: bool>(
        s: S,
        code: Code,
        row: &[u8],
        columns: Range<usize>,
        affine: Affine<S::V>,
        sink: &mut impl Sink<S>,
    ) {
        let codes = code.nibbles();
        let table = s.table(|i| value::<S, R, AFFINE>(s, s.load(&codes[i..]), affine));
        let mut at = columns.start;
        for bytes in row[columns.start / 2..columns.end / 2].chunks_exact(16) {
            let mut lane = 0;
            while lane < 16 {
                let (even, odd) = s.lookup(table, &bytes[lane..]);
                sink.put(s, at + lane, even, S::LANES, 0);
                sink.put(s, at + 16 + lane, odd, S::LANES, 1);
                lane += S::LANES;
            }
            at += 32;
        }
    }
}

struct ByteBlock;

impl ReadBlock for ByteBlock {
    #[inline(always)]
    fn read<S: Simd, R: Elem, const AFFINE: bool>(
        s: S,
        code: Code,
        row: &[u8],
        columns: Range<usize>,
        affine: Affine<S::V>,
        sink: &mut impl Sink<S>,
    ) {
        let (mut at, mut turn) = (columns.start, 0);
        for bytes in row[columns].chunks_exact(S::LANES) {
            let q = if code == Code::I8 {
                s.load_i8(bytes)
            } else {
                s.load_u8(bytes)
            };
            sink.put(s, at, value::<S, R, AFFINE>(s, q, affine), S::LANES, turn);
            at += S::LANES;
            turn ^= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quant::{COLUMN_STEP, dequantize_row};
    use crate::testing::{Random, close};

    /// The formula, one value at a time, with its own unpacking.
    fn reference(
        w: &BlockRows<'_>,
        scales: &[f32],
        shifts: &[f32],
        row: usize,
        column: usize,
    ) -> f32 {
        let code = |data: &[u8], i: usize| match w.code {
            Code::I8 => i32::from(data[i] as i8),
            Code::U8 => i32::from(data[i]),
            four => {
                let byte = i32::from(data[i / 2]);
                let nibble = if i.is_multiple_of(2) {
                    byte & 15
                } else {
                    byte >> 4
                };
                if four == Code::I4 && nibble > 7 {
                    nibble - 16
                } else {
                    nibble
                }
            }
        };
        let b = row * w.blocks() + column / w.block;
        let zero = w.zeros.map_or(0, |z| code(z, b));
        let shift = if w.shifts.is_some() { shifts[b] } else { 0.0 };
        let round = |v| w.rounding.scalar(v);
        let q = code(w.data, row * w.k + column);
        if w.code.per_byte() == 2 {
            return round(round((q - zero) as f32 * scales[b]) + shift);
        }
        let bias = round(shift - round(zero as f32 * scales[b]));
        round(round(q as f32 * scales[b]) + bias)
    }

    fn check_rows(w: &BlockRows<'_>, scales: &[f32], shifts: &[f32], x: &[f32]) {
        let mut arranged = vec![0.0; w.k];
        w.order().arrange(x, &mut arranged);
        for row in 0..w.rows {
            let want: Vec<f32> = (0..w.k)
                .map(|c| reference(w, scales, shifts, row, c))
                .collect();
            let product: f64 = want
                .iter()
                .zip(x)
                .map(|(a, b)| f64::from(*a) * f64::from(*b))
                .sum();
            let mut natural = vec![0.0; w.k];
            dequantize_row(w, row, &mut natural);
            assert_eq!(natural, want);
            for isa in Isa::available() {
                let (mut got, mut y) = (vec![0.0; w.k], [0.0]);
                for (i, part) in got.chunks_mut(COLUMN_STEP).enumerate() {
                    w.dequantize(*isa, row, i * COLUMN_STEP, part);
                }
                w.order().restore(&got, &mut natural);
                assert_eq!(natural, want, "{} {w:?}", isa.name());
                w.dot_rows(*isa, row, &arranged, &mut y);
                assert!(
                    close(y[0], product, 40 * w.k),
                    "{}: {} {product}",
                    isa.name(),
                    y[0]
                );
            }
        }
    }

    /// Codes, scales and offsets of the packed form give the same weights.
    fn check_source(w: &BlockRows<'_>, scales: &[f32], shifts: &[f32]) {
        for (row, block) in (0..w.rows).flat_map(|r| (0..w.k / BLOCK).map(move |b| (r, b))) {
            let mut codes = [0; BLOCK];
            let (scale, offset) = BlockSource::block(w, row, block, &mut codes);
            for (i, code) in codes.iter().enumerate() {
                let got = scale * (i32::from(*code) - w.zero()) as f32 + offset;
                let exact = BlockRows {
                    rounding: Rounding::F32,
                    ..*w
                };
                let want = reference(&exact, scales, shifts, row, block * BLOCK + i);
                assert!((got - want).abs() < 1e-4, "{w:?}: {got} {want}");
            }
        }
    }

    fn check(code: Code, k: usize, block: usize, rounding: Rounding) {
        let mut random = Random::new(k as u64);
        let (rows, blocks) = (3, 3 * k / block);
        let data = random.bytes((rows * k).div_ceil(code.per_byte()));
        let zeros = random.bytes(blocks.div_ceil(code.per_byte()));
        let to16 =
            |x: Vec<f32>| -> Vec<f16> { x.into_iter().map(|v| f16::from_f32(v * 0.1)).collect() };
        let (s16, t16) = (to16(random.floats(blocks)), to16(random.floats(blocks)));
        let widen = |x: &[f16]| -> Vec<f32> { x.iter().map(|v| v.to_f32()).collect() };
        let (scales, shifts, x) = (widen(&s16), widen(&t16), random.floats(k));
        let plain = BlockRows {
            data: &data,
            code,
            rows,
            k,
            block,
            scales: Floats::F16(&s16),
            zeros: None,
            shifts: None,
            rounding,
        };
        let affine = BlockRows {
            zeros: Some(&zeros),
            shifts: Some(Floats::F32(&shifts)),
            ..plain
        };
        for w in [
            plain,
            affine,
            BlockRows {
                zeros: None,
                ..affine
            },
        ] {
            check_rows(&w.checked().unwrap(), &scales, &shifts, &x);
            if w.packable() {
                check_source(&w, &scales, &shifts);
            }
        }
    }

    #[test]
    fn every_code_and_block_matches_the_formula() {
        for code in [Code::I4, Code::U4, Code::I8, Code::U8] {
            for (k, block) in [(32, 32), (576, 32), (1536, 64), (640, 640), (2112, 96)] {
                check(code, k, block, Rounding::F16);
            }
        }
        check(Code::U8, 48, 16, Rounding::F16);
        check(Code::I8, 96, 48, Rounding::F16);
        check(Code::I4, 2304, 32, Rounding::Bf16);
        check(Code::I8, 320, 32, Rounding::F32);
    }

    #[test]
    fn parts_that_do_not_fit_are_refused() {
        let scales = [1.0; 4];
        let good = BlockRows {
            data: &[0; 64],
            code: Code::I4,
            rows: 2,
            k: 64,
            block: 32,
            scales: Floats::F32(&scales),
            zeros: None,
            shifts: None,
            rounding: Rounding::F32,
        };
        assert!(good.checked().is_some());
        assert!(BlockRows { block: 0, ..good }.checked().is_none());
        assert!(BlockRows { block: 16, ..good }.checked().is_none());
        assert!(BlockRows { block: 48, ..good }.checked().is_none());
        assert!(BlockRows { rows: 3, ..good }.checked().is_none());
        assert!(
            BlockRows {
                k: usize::MAX,
                ..good
            }
            .checked()
            .is_none()
        );
        assert!(
            BlockRows {
                zeros: Some(&[0; 3]),
                ..good
            }
            .checked()
            .is_none()
        );
    }
}
