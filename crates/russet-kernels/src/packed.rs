//! Integer products: weights of 4 or 8 bits times activations quantised on the way in.
//!
//! This is what the fast mode computes with. A weight is `scale * code + offset` with one scale (and offset) per row and
//! block of 32 columns; an activation is `scale * code` with one scale per token and block and codes of about 16 bits, so that
//! they are as good as half precision. A block's product of codes is exact in i32: the only loss besides is the rounding of the
//! products' sums to f32.
//!
//! Weights are repacked once: [`GROUP`] rows side by side, four columns of each in a 32-bit lane, so that a register of
//! codes times one broadcast word of activations adds to as many rows as there are lanes and nothing is ever summed across
//! lanes. Few tokens wait for the weights: `few` takes these apart where they lie and activations as two numbers of 8 bits (so it
//! does with any number where bytes are multiplied much faster than words: [`Simd::FEW`]). For many tokens `many` takes a strip
//! of rows apart into words of 16 bits, once, and keeps it in the cache while all pass by.

mod few;
mod many;
mod words;

use std::ops::Range;
use std::sync::Arc;

use crate::elem::Elem;
use crate::isa::Isa;
use crate::mem::{AlignedBuf, OutOfMemory, cast_slice, cast_slice_mut};
use crate::simd::{Kernel, Simd};
use crate::threads::{Pool, Rows};

use half::f16;

pub(crate) use words::{suits as suits_words, words_linear};

/// Rows that lie side by side.
pub const GROUP: usize = 16;
/// Columns that share a scale.
pub const BLOCK: usize = 32;
/// The most products of one call.
pub const MAX_PRODUCTS: usize = 4;

/// The bits of a stored code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bits {
    /// Two codes a byte.
    Four,
    /// One code a byte.
    Eight,
}

impl Bits {
    /// Bytes of a block of a group.
    #[inline(always)]
    const fn chunk(self) -> usize {
        match self {
            Bits::Four => GROUP * BLOCK / 2,
            Bits::Eight => GROUP * BLOCK,
        }
    }
}

/// Where packed weights come from: unsigned codes with a scale and an offset per row and block.
pub trait BlockSource: Sync {
    /// Rows: n.
    fn rows(&self) -> usize;
    /// Columns: k, a multiple of [`BLOCK`].
    fn k(&self) -> usize;
    /// Bits of a code.
    fn bits(&self) -> Bits;
    /// The code that stands for zero everywhere.
    fn zero(&self) -> i32;
    /// Whether blocks have offsets besides.
    fn has_offsets(&self) -> bool;
    /// Whether scales and offsets are kept in half precision.
    fn half_scales(&self) -> bool;
    /// The codes of columns `32 block..` of `row`, its scale and its offset: a weight is
    /// `scale * (code - zero) + offset`.
    fn block(&self, row: usize, block: usize, codes: &mut [u8; BLOCK]) -> (f32, f32);
}

/// A weight matrix `[n, k]` packed for integer products.
#[derive(Clone, Debug)]
pub struct PackedRows {
    n: usize,
    k: usize,
    bits: Bits,
    zero: i32,
    offsets: bool,
    half: bool,
    memory: Arc<AlignedBuf>,
    codes: Range<usize>,
    params: Range<usize>,
}

impl PackedRows {
    /// Packs matrices on all threads, into one piece of memory (large pieces live in huge pages).
    ///
    /// # Errors
    /// If the memory cannot be had.
    ///
    /// # Panics
    /// If a k is not a multiple of [`BLOCK`].
    pub fn pack(pool: &Pool, sources: &[&dyn BlockSource]) -> Result<Vec<Self>, OutOfMemory> {
        let mut len = 0;
        let mut packed = Vec::with_capacity(sources.len());
        let nothing = Arc::new(AlignedBuf::new());
        for source in sources {
            let too_large = OutOfMemory { bytes: usize::MAX };
            packed.push(Self::laid_out(*source, &mut len, &nothing).ok_or(too_large)?);
        }
        let mut memory = AlignedBuf::with_len(len)?;
        for (source, rows) in sources.iter().zip(&packed) {
            let bytes = &mut memory.as_bytes_mut()[rows.codes.start..rows.params.end];
            let (codes, rest) = bytes.split_at_mut(rows.codes.len());
            let params = &mut rest[rows.params.start - rows.codes.end..];
            if rows.half {
                fill::<f16>(pool, *source, codes, params);
            } else {
                fill::<f32>(pool, *source, codes, params);
            }
        }
        let memory = Arc::new(memory);
        for rows in &mut packed {
            rows.memory = memory.clone();
        }
        Ok(packed)
    }

    /// A matrix's place behind the `len` bytes given out so far; `None` if it is too large.
    fn laid_out(
        source: &dyn BlockSource,
        len: &mut usize,
        memory: &Arc<AlignedBuf>,
    ) -> Option<Self> {
        assert!(source.k().is_multiple_of(BLOCK), "packed: k");
        let (half, offsets) = (source.half_scales(), source.has_offsets());
        let cells = source
            .rows()
            .div_ceil(GROUP)
            .checked_mul(source.k() / BLOCK)?;
        let mut place = |bytes: usize| {
            let start = *len;
            *len = start.checked_add(bytes)?.checked_next_multiple_of(64)?;
            Some(start..start + bytes)
        };
        let codes = place(cells.checked_mul(source.bits().chunk())?)?;
        let params = place(cells.checked_mul(record(offsets) * if half { 2 } else { 4 })?)?;
        Some(Self {
            n: source.rows(),
            k: source.k(),
            bits: source.bits(),
            zero: source.zero(),
            offsets,
            half,
            memory: memory.clone(),
            codes,
            params,
        })
    }

    /// `count` of the rows from `first` on, which is a multiple of [`GROUP`]; in the same memory.
    ///
    /// # Panics
    /// If there are no such rows.
    pub fn part(&self, first: usize, count: usize) -> Self {
        let fits = first.checked_add(count).is_some_and(|end| end <= self.n);
        assert!(fits && first.is_multiple_of(GROUP), "packed: a part");
        let within = |range: &Range<usize>| {
            let group = range.len() / self.groups().max(1);
            let start = range.start + first / GROUP * group;
            start..start + count.div_ceil(GROUP) * group
        };
        Self {
            n: count,
            codes: within(&self.codes),
            params: within(&self.params),
            ..self.clone()
        }
    }

    /// Rows: n.
    pub fn n(&self) -> usize {
        self.n
    }

    /// Columns: k.
    pub fn k(&self) -> usize {
        self.k
    }

    /// Bits of a code.
    pub fn bits(&self) -> Bits {
        self.bits
    }

    /// Whether activations quantised for one matrix suit the other.
    pub fn shares_activations(&self, other: &Self) -> bool {
        (self.k, self.bits, self.zero) == (other.k, other.bits, other.zero)
    }

    /// Memory, in bytes.
    pub fn size(&self) -> usize {
        self.codes.len() + self.params.len()
    }

    #[inline(always)]
    fn codes(&self) -> &[u8] {
        &self.memory.as_bytes()[self.codes.clone()]
    }

    #[inline(always)]
    fn params<P: Elem>(&self) -> &[P] {
        cast_slice(&self.memory.as_bytes()[self.params.clone()]).unwrap_or(&[])
    }

    #[inline(always)]
    fn groups(&self) -> usize {
        self.n.div_ceil(GROUP)
    }

    #[inline(always)]
    fn blocks(&self) -> usize {
        self.k / BLOCK
    }
}

/// Parameters of a block of a group.
#[inline(always)]
const fn record(offsets: bool) -> usize {
    if offsets { 2 * GROUP } else { GROUP }
}

fn fill<P: Elem>(pool: &Pool, source: &dyn BlockSource, codes: &mut [u8], params: &mut [u8]) {
    let (blocks, chunk) = (source.k() / BLOCK, source.bits().chunk());
    let record = record(source.has_offsets());
    let codes = (codes, blocks * chunk);
    let params = (
        cast_slice_mut::<P>(params).unwrap_or(&mut []),
        blocks * record,
    );
    pool.for_chunks_mut2(codes, params, |group, codes, params| {
        let cells = codes
            .chunks_exact_mut(chunk)
            .zip(params.chunks_exact_mut(record));
        for (block, (codes, params)) in cells.enumerate() {
            fill_cell(source, (group, block), codes, params);
        }
    });
}

/// Packs one block of one group of rows; rows beyond the last stay zero.
fn fill_cell<P: Elem>(
    source: &dyn BlockSource,
    (group, block): (usize, usize),
    codes: &mut [u8],
    params: &mut [P],
) {
    let bits = source.bits();
    let words = cast_slice_mut::<u32>(codes).unwrap_or(&mut []);
    for lane in 0..GROUP.min(source.rows() - group * GROUP) {
        let mut row = [0; BLOCK];
        let (scale, offset) = source.block(group * GROUP + lane, block, &mut row);
        params[lane] = P::from_f32(scale);
        if let Some(place) = params.get_mut(GROUP + lane) {
            *place = P::from_f32(offset);
        }
        let (quads, _) = row.as_chunks::<4>();
        for (c, words) in words.chunks_exact_mut(GROUP).enumerate() {
            let word = |c: usize| u32::from_le_bytes(quads[c]);
            words[lane] = match bits {
                Bits::Four => word(c) | word(c + 4) << 4,
                Bits::Eight => word(c),
            };
        }
    }
}

/// One of several products of the same activations.
#[derive(Debug)]
pub struct Product<'a, Y> {
    /// The weights `[n, k]`.
    pub weights: &'a PackedRows,
    /// The result `[m, n]`.
    pub out: &'a mut [Y],
    /// What is added to it before the one rounding.
    pub add: Option<Addend<'a, Y>>,
}

/// What a product is added to.
#[derive(Clone, Copy, Debug)]
pub enum Addend<'a, Y> {
    /// `[m, n]`, as a residual is.
    Rows(&'a [Y]),
    /// `[n]`, for every row, as a bias is.
    Row(&'a [Y]),
}

impl<'a, Y> Addend<'a, Y> {
    /// The row for `token` of rows of `n`.
    #[inline(always)]
    pub fn row(&self, token: usize, n: usize) -> &'a [Y] {
        match self {
            Self::Rows(rows) => &rows[token * n..(token + 1) * n],
            Self::Row(row) => row,
        }
    }

    fn fits(&self, m: usize, n: usize) -> bool {
        match self {
            Self::Rows(rows) => m.checked_mul(n) == Some(rows.len()),
            Self::Row(row) => row.len() == n,
        }
    }
}

impl<Y: Elem> Product<'_, Y> {
    /// The result where there are no columns.
    fn without_terms(&mut self) {
        let n = self.weights.n;
        match self.add {
            Some(add) => {
                let rows = self.out.chunks_exact_mut(n.max(1)).enumerate();
                rows.for_each(|(token, out)| out.copy_from_slice(add.row(token, n)));
            }
            None => self.out.fill(Y::ZERO),
        }
    }
}

/// `out = x W^T (+ add)` for each product, all of the same `m` rows `x` `[m, k]`.
///
/// # Panics
/// If lengths do not fit, the weights differ in k, in the bits of their codes or in their zero, or there are more than four
/// products.
pub fn packed_linear<T: Elem>(
    pool: &Pool,
    x: &[T],
    m: usize,
    products: &mut [Option<Product<'_, T>>],
) {
    T::packed_linear(pool, x, m, products);
}

pub(crate) fn packed_linear_on<X: Elem, Y: Elem>(
    isa: Isa,
    pool: &Pool,
    x: &[X],
    m: usize,
    products: &mut [Option<Product<'_, Y>>],
) {
    let Some(Some(first)) = products.first() else {
        return;
    };
    let (k, first) = (first.weights.k, first.weights);
    assert!(products.len() <= MAX_PRODUCTS, "packed: products");
    if m == 0 || k == 0 {
        return products
            .iter_mut()
            .flatten()
            .for_each(Product::without_terms);
    }
    assert!(m.checked_mul(k) == Some(x.len()), "packed: activations");
    for p in products.iter().flatten() {
        let len = m.checked_mul(p.weights.n);
        let fits = len == Some(p.out.len()) && p.add.is_none_or(|a| a.fits(m, p.weights.n));
        assert!(
            fits && p.weights.shares_activations(first),
            "packed: a product"
        );
    }
    let mut outputs: [Option<Output<'_, Y>>; MAX_PRODUCTS] = [const { None }; MAX_PRODUCTS];
    for (slot, product) in outputs.iter_mut().zip(products) {
        *slot = product.as_mut().map(Output::new);
    }
    if m <= isa.run(Few) {
        few::multiply(isa, pool, x, k, &outputs);
    } else {
        many::multiply(isa, pool, x, k, &outputs);
    }
}

/// Asks how many tokens are few.
struct Few;

impl Kernel for Few {
    type Out = usize;
    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> usize {
        S::FEW
    }
}

/// A product whose result is shared out among tasks.
struct Output<'a, Y, W = PackedRows> {
    weights: &'a W,
    n: usize,
    out: Rows<'a, Y>,
    add: Option<Addend<'a, Y>>,
}

impl<'a, Y: Elem> Output<'a, Y> {
    fn new(product: &'a mut Product<'_, Y>) -> Self {
        Self {
            weights: product.weights,
            n: product.weights.n,
            out: Rows::new(product.out, product.weights.n),
            add: product.add,
        }
    }
}

impl<Y: Elem, W> Output<'_, Y, W> {
    /// Writes a register of sums: rows `row..` (those that exist) of a token.
    #[inline(always)]
    fn write<S: Simd>(&self, s: S, sums: S::V, token: usize, row: usize) {
        let n = self.n;
        if row >= n {
            return;
        }
        let (at, len) = (token * n + row, S::LANES.min(n - row));
        // SAFETY: rows are shared out among tasks: no other task has these columns.
        let out = unsafe { self.out.part(at, len) };
        let sums = match self.add {
            Some(add) => s.add(sums, Y::load_part(s, &add.row(token, n)[row..], len)),
            None => sums,
        };
        Y::store_part(s, sums, out, len);
    }
}

/// Units of rows a task, of `total` units that hold `codes` codes each: some tasks per thread even out the load, a task of few
/// codes is not worth claiming.
fn share(total: usize, codes: usize, threads: usize) -> usize {
    let even = total.div_ceil(4 * threads);
    even.clamp(1, 64).max(8192_usize.div_ceil(codes))
}

/// Which output has unit `at`, and which of its units that is, where an output has `units(output)` of them.
#[inline(always)]
fn locate<'a, 'b, Y, W>(
    outputs: &'a [Option<Output<'b, Y, W>>],
    mut at: usize,
    units: impl Fn(&W) -> usize,
) -> Option<(&'a Output<'b, Y, W>, usize)> {
    for output in outputs.iter().flatten() {
        let own = units(output.weights);
        if at < own {
            return Some((output, at));
        }
        at -= own;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;

    /// Random codes with the scales and offsets of every kind.
    struct Source {
        n: usize,
        k: usize,
        bits: Bits,
        zero: i32,
        half: bool,
        codes: Vec<u8>,
        params: Vec<(f32, f32)>,
        offsets: bool,
    }

    impl Source {
        fn new((n, k): (usize, usize), bits: Bits, zero: i32, half: bool, offsets: bool) -> Self {
            let mut random = Random::new((n * k) as u64);
            let mask = if bits == Bits::Four { 15 } else { 255 };
            let codes = random.bytes(n * k).iter().map(|b| b & mask).collect();
            let mut param = |_| {
                let number = |x: f32| f16::from_f32(x).to_f32();
                let offset = if offsets { random.float() } else { 0.0 };
                (number(random.float() * 0.1), number(offset))
            };
            let params = (0..n * k / BLOCK).map(&mut param).collect();
            Self {
                n,
                k,
                bits,
                zero,
                half,
                codes,
                params,
                offsets,
            }
        }
    }

    impl BlockSource for Source {
        fn rows(&self) -> usize {
            self.n
        }
        fn k(&self) -> usize {
            self.k
        }
        fn bits(&self) -> Bits {
            self.bits
        }
        fn zero(&self) -> i32 {
            self.zero
        }
        fn has_offsets(&self) -> bool {
            self.offsets
        }
        fn half_scales(&self) -> bool {
            self.half
        }
        fn block(&self, row: usize, block: usize, codes: &mut [u8; BLOCK]) -> (f32, f32) {
            let at = row * self.k + block * BLOCK;
            codes.copy_from_slice(&self.codes[at..at + BLOCK]);
            self.params[at / BLOCK]
        }
    }

    /// The definition: activations rounded to a block's codes, exact products, sums in f64.
    fn reference(w: &Source, x: &[f32], few: bool) -> Vec<f64> {
        let mut out = Vec::new();
        for x in x.chunks(w.k) {
            for row in 0..w.n {
                let mut sum = 0.0;
                for (b, x) in x.chunks(BLOCK).enumerate() {
                    let mut codes = [0; BLOCK];
                    let (scale, offset) = w.block(row, b, &mut codes);
                    for (x, code) in rounded(x, few).into_iter().zip(codes) {
                        let weight = f64::from(scale) * f64::from(i32::from(code) - w.zero);
                        sum += x * (weight + f64::from(offset));
                    }
                }
                out.push(sum);
            }
        }
        out
    }

    /// A block's activations as one code of 16 bits each, or as two of 8 of which the second takes up what the first leaves.
    fn rounded(x: &[f32], few: bool) -> Vec<f64> {
        let top = if few { 127.0 } else { 32_767.0 };
        let largest = x.iter().fold(0.0_f32, |m, v| m.max(v.abs()));
        let inverse = if largest > 0.0 { top / largest } else { 0.0 };
        let round = |x: &f32| {
            let code = (x * inverse).round_ties_even();
            let rest = ((x * inverse - code) * 254.0).round_ties_even() / 254.0;
            f64::from((if few { code + rest } else { code }) * (largest / top))
        };
        x.iter().map(round).collect()
    }

    fn check(pool: &Pool, w: &Source, m: usize) {
        let x = Random::new(m as u64).floats(m * w.k);
        let packed = PackedRows::pack(pool, &[w]).unwrap().remove(0);
        let wants = [false, true].map(|few| reference(w, &x, few));
        for isa in Isa::available() {
            let want = &wants[usize::from(m <= isa.run(Few))];
            let mut out = vec![f32::NAN; m * w.n];
            let product = Product {
                weights: &packed,
                out: &mut out,
                add: None,
            };
            packed_linear_on(*isa, pool, &x, m, &mut [Some(product)]);
            for (i, (y, want)) in out.iter().zip(want).enumerate() {
                let near = (f64::from(*y) - want).abs() <= 1e-4 * (1.0 + want.abs());
                assert!(near, "{} {:?} m={m} [{i}]: {y} {want}", isa.name(), w.bits);
            }
        }
    }

    #[test]
    fn products_match_the_definition() {
        for threads in [1, 3] {
            let pool = Pool::new(threads);
            for (bits, zero) in [
                (Bits::Four, 8),
                (Bits::Four, 0),
                (Bits::Eight, 128),
                (Bits::Eight, 0),
            ] {
                for (half, offsets) in [(true, false), (true, true), (false, false), (false, true)]
                {
                    for (shape, m) in [((1, 32), 1), ((16, 64), 5), ((50, 96), 13), ((7, 160), 31)]
                    {
                        check(&pool, &Source::new(shape, bits, zero, half, offsets), m);
                    }
                }
            }
            check(
                &pool,
                &Source::new((33, 64), Bits::Four, 8, true, false),
                600,
            );
        }
    }

    #[test]
    fn several_products_share_their_activations() {
        let pool = Pool::new(2);
        let sources =
            [(40, 64), (3, 64), (16, 64)].map(|s| Source::new(s, Bits::Four, 8, true, false));
        let packed = sources
            .each_ref()
            .map(|s| PackedRows::pack(&pool, &[s]).unwrap().remove(0));
        let x = Random::new(9).floats(6 * 64);
        let x: Vec<f16> = x.iter().map(|v| f16::from_f32(*v)).collect();
        let add = vec![f16::ONE; 40];
        let mut outs = packed.each_ref().map(|p| vec![f16::ZERO; 6 * p.n()]);
        let mut alone = outs.clone();
        for (p, out) in packed.iter().zip(&mut alone) {
            packed_linear(
                &pool,
                &x,
                6,
                &mut [Some(Product {
                    weights: p,
                    out,
                    add: None,
                })],
            );
        }
        let [a, b, c] = &mut outs;
        let mut products = [
            Some(Product {
                weights: &packed[0],
                out: a,
                add: Some(Addend::Row(&add)),
            }),
            Some(Product {
                weights: &packed[1],
                out: b,
                add: None,
            }),
            Some(Product {
                weights: &packed[2],
                out: c,
                add: None,
            }),
        ];
        packed_linear(&pool, &x, 6, &mut products);
        assert_eq!(outs[1..], alone[1..]);
        let near = |(a, b): (&f16, &f16)| (a.to_f32() - b.to_f32() - 1.0).abs() < 0.02;
        assert!(outs[0].iter().zip(&alone[0]).all(near));
    }
    #[test]
    fn a_part_is_a_matrix_of_its_own() {
        let pool = Pool::new(2);
        let source = Source::new((80, 64), Bits::Four, 8, true, true);
        let whole = PackedRows::pack(&pool, &[&source]).unwrap().remove(0);
        for (first, count, m) in [(0, 80, 1), (32, 32, 1), (48, 20, 11), (64, 0, 2)] {
            let x = Random::new(3).floats(m * 64);
            let multiply = |weights: &PackedRows, add: &[f32]| {
                let mut out = vec![0.0; m * weights.n()];
                let product = Product {
                    weights,
                    out: &mut out,
                    add: Some(Addend::Rows(add)),
                };
                packed_linear(&pool, &x, m, &mut [Some(product)]);
                out
            };
            let all = multiply(&whole, &vec![1.0; m * 80]);
            let part = multiply(&whole.part(first, count), &vec![1.0; m * count]);
            for token in 0..m {
                let want = &all[token * 80 + first..][..count];
                assert_eq!(part[token * count..][..count], *want);
            }
        }
    }
}
