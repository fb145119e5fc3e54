//! Integer products: weights of 4 or 8 bits times activations quantised to 8 bits on the way in.
//!
//! This is what the fast mode computes with. A weight is `scale * code + offset` with one scale (and offset) per row and
//! block of 32 columns; an activation is `scale * code` with one scale per token and block. A block's product of codes is
//! exact in i32, so the only loss is the rounding of activations to 8 bits (and of the products' sums to f32). Few tokens are given
//! twice as many bits, as a second code.
//!
//! Weights are repacked once: [`GROUP`] rows side by side, four columns of each in a 32-bit lane, so that a register of
//! codes times one broadcast word of activations adds to as many rows as there are lanes and nothing is ever summed across
//! lanes. Activations are packed in tiles of tokens, a block's words, scales and sums in one record.

use std::ops::Range;
use std::sync::Arc;

use crate::convert;
use crate::elem::Elem;
use crate::isa::Isa;
use crate::mem::{AlignedBuf, OutOfMemory, bytes_of_mut, cast_slice, cast_slice_mut};
use crate::scratch;
use crate::simd::{Kernel, Simd};
use crate::threads::{Pool, Rows};

use half::f16;

/// Rows that lie side by side.
pub const GROUP: usize = 16;
/// Columns that share a scale.
pub const BLOCK: usize = 32;
/// Words of a token in a block's record: for each term eight of codes and a start, then scale and sum.
const fn token_words(terms: usize) -> usize {
    terms * (BLOCK / 4 + 1) + 2
}
/// Up to this many tokens activations are two numbers of 8 bits each, which is as good as half precision: so few tokens wait for
/// the weights anyway. More tokens are taken with one number.
const FINE: usize = 128;
/// How much finer the second number of an activation is.
const FINER: f32 = 254.0;
/// Tokens per pass: bounds the working memory and keeps the activations in the cache.
const PASS: usize = 512;
/// The most tokens of a tile.
const MAX_TILE: usize = 12;
/// The most products of one call.
const MAX_PRODUCTS: usize = 4;

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

    /// Rows: n.
    pub fn n(&self) -> usize {
        self.n
    }

    /// Columns: k.
    pub fn k(&self) -> usize {
        self.k
    }

    /// Whether activations quantised for one matrix suit the other.
    pub fn shares_activations(&self, other: &Self) -> bool {
        (self.k, self.bits, self.zero) == (other.k, other.bits, other.zero)
    }

    /// Memory, in bytes.
    pub fn size(&self) -> usize {
        self.codes.len() + self.params.len()
    }

    fn codes(&self) -> &[u8] {
        &self.memory.as_bytes()[self.codes.clone()]
    }

    fn params<P: Elem>(&self) -> &[P] {
        cast_slice(&self.memory.as_bytes()[self.params.clone()]).unwrap_or(&[])
    }

    fn groups(&self) -> usize {
        self.n.div_ceil(GROUP)
    }

    fn blocks(&self) -> usize {
        self.k / BLOCK
    }
}

/// Parameters of a block of a group.
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
    for lane in 0..GROUP.min(source.rows() - group * GROUP) {
        let mut row = [0; BLOCK];
        let (scale, offset) = source.block(group * GROUP + lane, block, &mut row);
        params[lane] = P::from_f32(scale);
        if let Some(place) = params.get_mut(GROUP + lane) {
            *place = P::from_f32(offset);
        }
        let word = |c: usize| {
            u32::from_le_bytes([row[4 * c], row[4 * c + 1], row[4 * c + 2], row[4 * c + 3]])
        };
        for (c, chunk) in codes.chunks_exact_mut(4 * GROUP).enumerate() {
            let word = match bits {
                Bits::Four => word(c) | word(c + 4) << 4,
                Bits::Eight => word(c),
            };
            chunk[4 * lane..4 * lane + 4].copy_from_slice(&word.to_le_bytes());
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
    /// What is added to it, `[m, n]`, before the one rounding.
    pub add: Option<&'a [Y]>,
}

impl<Y: Elem> Product<'_, Y> {
    /// The result where there are no columns.
    fn without_terms(&mut self) {
        match self.add {
            Some(add) => self.out.copy_from_slice(add),
            None => self.out.fill(Y::ZERO),
        }
    }
}

/// `out = x W^T (+ add)` for each product, all of the same `m` rows `x` `[m, k]`.
///
/// # Panics
/// If lengths do not fit, the weights differ in k, in the bits of their codes or in their zero, or there are more than four products.
pub fn packed_linear<X: Elem, Y: Elem>(
    pool: &Pool,
    x: &[X],
    m: usize,
    products: &mut [Option<Product<'_, Y>>],
) {
    packed_linear_on(Isa::best(), pool, x, m, products);
}

fn packed_linear_on<X: Elem, Y: Elem>(
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
        let fits = len == Some(p.out.len()) && p.add.is_none_or(|a| Some(a.len()) == len);
        assert!(
            fits && p.weights.shares_activations(first),
            "packed: a product"
        );
    }
    let mut outputs: [Option<Output<'_, Y>>; MAX_PRODUCTS] = [const { None }; MAX_PRODUCTS];
    for (slot, product) in outputs.iter_mut().zip(products) {
        *slot = product.as_mut().map(Output::new);
    }
    let zero = isa.run(LoadedZero(first));
    for start in (0..m).step_by(PASS) {
        let count = PASS.min(m - start);
        let x = &x[start * k..(start + count) * k];
        let terms = if m <= FINE { 2 } else { 1 };
        pass(isa, pool, x, (start, count), (zero, terms), &outputs);
    }
}

/// A product whose result is shared out among tasks.
struct Output<'a, Y> {
    weights: &'a PackedRows,
    out: Rows<'a, Y>,
    add: Option<&'a [Y]>,
}

impl<'a, Y> Output<'a, Y> {
    fn new(product: &'a mut Product<'_, Y>) -> Self {
        Self {
            weights: product.weights,
            out: Rows::new(product.out, product.weights.n),
            add: product.add,
        }
    }
}

/// Packs some tokens and multiplies them with every group of rows of every product.
fn pass<X: Elem, Y: Elem>(
    isa: Isa,
    pool: &Pool,
    x: &[X],
    (start, count): (usize, usize),
    (zero, terms): (i32, usize),
    outputs: &[Option<Output<'_, Y>>],
) {
    let k = x.len() / count;
    let blocks = k / BLOCK;
    let tile = isa.run(TileTokens);
    let per_token = blocks * token_words(terms);
    let words = &mut *scratch::words(count * per_token);
    pool.for_chunks_mut(words, tile * per_token, &|i, panel| {
        let x = &x[i * tile * k..];
        isa.run(Quantize {
            x,
            k,
            zero,
            terms,
            panel,
        });
    });
    let words = &*words;
    let groups = outputs.iter().flatten().map(|o| o.weights.groups()).sum();
    let per = share(groups, k, pool.threads());
    pool.run(usize::div_ceil(groups, per), &|task| {
        for at in task * per..groups.min((task + 1) * per) {
            let mut group = at;
            for output in outputs.iter().flatten() {
                if group < output.weights.groups() {
                    multiply_group(isa, output, group, (words, tile, terms), (start, count));
                    break;
                }
                group -= output.weights.groups();
            }
        }
    });
}

/// Groups a task: some tasks per thread even out the load, a task of few codes is not worth claiming.
fn share(groups: usize, k: usize, threads: usize) -> usize {
    let even = groups.div_ceil(4 * threads);
    even.clamp(1, 64).max(8192_usize.div_ceil(GROUP * k))
}

/// One group of rows times all tokens of a pass.
fn multiply_group<Y: Elem>(
    isa: Isa,
    output: &Output<'_, Y>,
    group: usize,
    (words, tile, terms): (&[i32], usize, usize),
    (start, count): (usize, usize),
) {
    let (n, blocks) = (output.weights.n, output.weights.blocks());
    let rows = GROUP.min(n - group * GROUP);
    let mut first = 0;
    for panel in words.chunks(tile * blocks * token_words(terms)) {
        let tokens = tile.min(count - first);
        let mut sums = [0.0; MAX_TILE * GROUP];
        isa.run(Panel {
            weights: output.weights,
            group,
            panel,
            tokens,
            terms,
            sums: &mut sums,
        });
        for (token, sums) in sums.chunks_exact_mut(GROUP).take(tokens).enumerate() {
            let at = (start + first + token) * n + group * GROUP;
            // SAFETY: groups of rows are shared out among tasks: no other task has these columns.
            let out = unsafe { output.out.part(at, rows) };
            let sums = &mut sums[..rows];
            if let Some(add) = output.add {
                let add = add[at..at + rows].iter();
                sums.iter_mut().zip(add).for_each(|(y, a)| *y += a.to_f32());
            }
            convert::convert(sums, out);
        }
        first += tokens;
    }
}

/// Asks for what stands for zero once codes are loaded.
struct LoadedZero<'a>(&'a PackedRows);

impl Kernel for LoadedZero<'_> {
    type Out = i32;
    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> i32 {
        match self.0.bits {
            Bits::Four => self.0.zero,
            Bits::Eight => self.0.zero - S::BIAS,
        }
    }
}

/// Asks for the tokens of a tile.
struct TileTokens;

impl Kernel for TileTokens {
    type Out = usize;
    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> usize {
        S::TILE_TOKENS
    }
}

/// Quantises a tile of tokens into records. A tile is made of runs of [`S::TILE_TOKENS`](Simd::TILE_TOKENS), four or one
/// tokens, as [`runs`] says; a run's record of a block holds every token's codes, then scales, starts, and sums.
struct Quantize<'a, X> {
    x: &'a [X],
    k: usize,
    zero: i32,
    terms: usize,
    panel: &'a mut [i32],
}

/// The size of the next run where `left` tokens are left: two terms leave registers for four tokens.
#[inline(always)]
fn run_of<S: Simd>(left: usize, terms: usize) -> usize {
    if terms == 1 && left >= S::TILE_TOKENS {
        S::TILE_TOKENS
    } else if left >= 4 {
        4
    } else {
        1
    }
}

impl<X: Elem> Kernel for Quantize<'_, X> {
    type Out = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (blocks, words) = (self.k / BLOCK, token_words(self.terms));
        let tokens = self.panel.len() / (blocks * words).max(1);
        let mut first = 0;
        while first < tokens {
            let run = run_of::<S>(tokens - first, self.terms);
            let mut block = 0;
            while block < blocks {
                let at = (first * blocks + block * run) * words;
                let record = &mut self.panel[at..at + run * words];
                let mut token = 0;
                while token < run {
                    let from = (first + token) * self.k + block * BLOCK;
                    let x = &self.x[from..from + BLOCK];
                    quantize_block(s, x, (self.zero, self.terms), record, (token, run));
                    token += 1;
                }
                block += 1;
            }
            first += run;
        }
    }
}

/// Codes of one token's block: `x = scale * code`, the largest magnitude becoming 127; a second code takes up what is left,
/// [`FINER`] times as fine. The record holds the codes of all tokens term by term, then their scales, starts (term by term) and
/// sums.
#[inline(always)]
fn quantize_block<S: Simd, X: Elem>(
    s: S,
    x: &[X],
    (zero, terms): (i32, usize),
    record: &mut [i32],
    (token, run): (usize, usize),
) {
    let mut largest = s.splat(0.0);
    let mut at = 0;
    while at < BLOCK {
        largest = s.max(s.abs(X::load(s, &x[at..])), largest);
        at += S::LANES;
    }
    let largest = s.max_lane(largest);
    let inverse = s.splat(if largest > 0.0 { 127.0 / largest } else { 0.0 });
    let (words, tail) = record.split_at_mut(terms * run * (BLOCK / 4));
    let mut sums = [s.splat(0.0); 2];
    let mut at = 0;
    while at < BLOCK {
        let mut rest = s.mul(X::load(s, &x[at..]), inverse);
        let mut term = 0;
        while term < terms {
            let code = s.round_int(rest);
            rest = s.mul(s.sub(rest, code), s.splat(FINER));
            sums[term] = s.add(sums[term], code);
            let place = term * run * (BLOCK / 4) + S::place(token, run, at / 4);
            s.store_i8(code, bytes_of_mut(&mut words[place..]));
            term += 1;
        }
        at += S::LANES;
    }
    let scale = largest / 127.0;
    let sums = [s.sum(sums[0]), s.sum(sums[1])];
    tail[token] = scale.to_bits().cast_signed();
    let mut term = 0;
    while term < terms {
        tail[(1 + term) * run + token] = -zero * sums[term] as i32;
        term += 1;
    }
    let sum = scale * (sums[0] + sums[1] / FINER);
    tail[(1 + terms) * run + token] = sum.to_bits().cast_signed();
}

/// A tile of tokens times a group of rows: `sums[token][row]`.
struct Panel<'a> {
    weights: &'a PackedRows,
    group: usize,
    panel: &'a [i32],
    tokens: usize,
    terms: usize,
    sums: &'a mut [f32; MAX_TILE * GROUP],
}

impl Kernel for Panel<'_> {
    type Out = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let w = self.weights;
        match (w.bits, w.offsets, w.half) {
            (Bits::Four, false, true) => self.tiles::<S, f16, false, false>(s),
            (Bits::Four, true, true) => self.tiles::<S, f16, false, true>(s),
            (Bits::Eight, false, true) => self.tiles::<S, f16, true, false>(s),
            (Bits::Eight, true, true) => self.tiles::<S, f16, true, true>(s),
            (Bits::Four, false, false) => self.tiles::<S, f32, false, false>(s),
            (Bits::Four, true, false) => self.tiles::<S, f32, false, true>(s),
            (Bits::Eight, false, false) => self.tiles::<S, f32, true, false>(s),
            (Bits::Eight, true, false) => self.tiles::<S, f32, true, true>(s),
        }
    }
}

impl Panel<'_> {
    #[inline(always)]
    fn tiles<S: Simd, P: Elem, const EIGHT: bool, const OFFSETS: bool>(self, s: S) {
        let blocks = self.weights.blocks();
        let mut first = 0;
        while first < self.tokens {
            let run = run_of::<S>(self.tokens - first, self.terms);
            let words = blocks * token_words(self.terms);
            let panel = &self.panel[first * words..(first + run) * words];
            let sums = &mut self.sums[first * GROUP..(first + run) * GROUP];
            let cell = Cell {
                weights: self.weights,
                group: self.group,
                panel,
            };
            match (run, self.terms) {
                (12, _) => cell.multiply::<S, P, 12, 1, EIGHT, OFFSETS>(s, sums),
                (4, 1) => cell.multiply::<S, P, 4, 1, EIGHT, OFFSETS>(s, sums),
                (4, _) => cell.multiply::<S, P, 4, 2, EIGHT, OFFSETS>(s, sums),
                (_, 1) => cell.multiply::<S, P, 1, 1, EIGHT, OFFSETS>(s, sums),
                _ => cell.multiply::<S, P, 1, 2, EIGHT, OFFSETS>(s, sums),
            }
            first += run;
        }
    }
}

/// A run of tokens and a group of rows.
struct Cell<'a> {
    weights: &'a PackedRows,
    group: usize,
    panel: &'a [i32],
}

impl Cell<'_> {
    #[inline(always)]
    fn multiply<
        S: Simd,
        P: Elem,
        const T: usize,
        const TERMS: usize,
        const EIGHT: bool,
        const OFFSETS: bool,
    >(
        &self,
        s: S,
        out: &mut [f32],
    ) {
        let (w, blocks) = (self.weights, self.weights.blocks());
        let chunk = w.bits.chunk();
        let codes = &w.codes()[self.group * blocks * chunk..];
        let record = record(OFFSETS);
        let params = &w.params::<P>()[self.group * blocks * record..];
        let mut lane = 0;
        while lane < GROUP {
            let mut sums = [s.splat(0.0); T];
            let mut block = 0;
            while block < blocks {
                let weights = load_codes::<S, EIGHT>(s, &codes[block * chunk + 4 * lane..]);
                let params = &params[block * record + lane..];
                let words = T * token_words(TERMS);
                let x = &self.panel[block * words..(block + 1) * words];
                let factors = factors::<S, P, OFFSETS>(s, params);
                // Some tokens at a time, spelled out: a token's products wait for each other, and the sums stay in registers.
                match T {
                    12 => {
                        add_block::<S, T, 6, TERMS, EIGHT, OFFSETS>(
                            s, &weights, factors, x, 0, &mut sums,
                        );
                        add_block::<S, T, 6, TERMS, EIGHT, OFFSETS>(
                            s, &weights, factors, x, 6, &mut sums,
                        );
                    }
                    4 => {
                        add_block::<S, T, 4, TERMS, EIGHT, OFFSETS>(
                            s, &weights, factors, x, 0, &mut sums,
                        );
                    }
                    _ => {
                        add_block::<S, T, 1, TERMS, EIGHT, OFFSETS>(
                            s, &weights, factors, x, 0, &mut sums,
                        );
                    }
                }
                block += 1;
            }
            for (t, sum) in sums.iter().enumerate() {
                s.store(*sum, &mut out[t * GROUP + lane..]);
            }
            lane += S::LANES;
        }
    }
}

/// Scales and offsets of a block (the scales again where there are no offsets).
#[inline(always)]
fn factors<S: Simd, P: Elem, const OFFSETS: bool>(s: S, params: &[P]) -> (S::V, S::V) {
    let offsets = if OFFSETS { GROUP } else { 0 };
    (P::load(s, params), P::load(s, &params[offsets..]))
}

/// Adds the products of a block with tokens `t..t + N` of a run of `T` to their sums.
#[inline(always)]
fn add_block<
    S: Simd,
    const T: usize,
    const N: usize,
    const TERMS: usize,
    const EIGHT: bool,
    const OFFSETS: bool,
>(
    s: S,
    weights: &[S::I; 8],
    (scale, offset): (S::V, S::V),
    x: &[i32],
    t: usize,
    sums: &mut [S::V; T],
) {
    let tail = TERMS * T * 8;
    let coarse = dot_block::<S, T, N, EIGHT>(s, weights, x, t, tail + T);
    let mut dots = [s.splat(0.0); N];
    for i in 0..N {
        dots[i] = s.to_float(coarse[i]);
    }
    if TERMS == 2 {
        let fine = dot_block::<S, T, N, EIGHT>(s, weights, &x[T * 8..], t, tail + 2 * T - T * 8);
        for i in 0..N {
            dots[i] = s.fma(s.to_float(fine[i]), s.splat(1.0 / FINER), dots[i]);
        }
    }
    for i in 0..N {
        let factor = s.mul(scale, s.splat(float(x[tail + t + i])));
        sums[t + i] = s.fma(dots[i], factor, sums[t + i]);
        if OFFSETS {
            let sum = s.splat(float(x[tail + (1 + TERMS) * T + t + i]));
            sums[t + i] = s.fma(offset, sum, sums[t + i]);
        }
    }
}

/// The integer products of a block's codes with one term of `N` tokens, from the starts at `starts` on.
#[inline(always)]
fn dot_block<S: Simd, const T: usize, const N: usize, const EIGHT: bool>(
    s: S,
    weights: &[S::I; 8],
    x: &[i32],
    t: usize,
    starts: usize,
) -> [S::I; N] {
    s.dot_tokens::<EIGHT, N>(&x[starts + t..], weights, &x[t * 8..])
}

#[inline(always)]
fn float(word: i32) -> f32 {
    f32::from_bits(word.cast_unsigned())
}

/// The eight registers of a block's codes, four columns in each.
#[inline(always)]
fn load_codes<S: Simd, const EIGHT: bool>(s: S, codes: &[u8]) -> [S::I; 8] {
    let mut w = [s.ints(0); 8];
    let mut c = 0;
    while c < 4 {
        if EIGHT {
            w[c] = s.load_wide(&codes[64 * c..]);
            w[c + 4] = s.load_wide(&codes[64 * (c + 4)..]);
        } else {
            let v = s.load_ints(&codes[64 * c..]);
            w[c] = s.low_nibbles(v);
            w[c + 4] = s.high_nibbles(v);
        }
        c += 1;
    }
    w
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

    /// The definition: activations rounded to 8 bits a block, exact products, sums in f64.
    fn reference(w: &Source, x: &[f32], fine: bool) -> Vec<f64> {
        let mut out = Vec::new();
        for x in x.chunks(w.k) {
            for row in 0..w.n {
                let mut sum = 0.0;
                for (b, x) in x.chunks(BLOCK).enumerate() {
                    let largest = x.iter().fold(0.0_f32, |m, v| m.max(v.abs()));
                    let inverse = if largest > 0.0 { 127.0 / largest } else { 0.0 };
                    let mut codes = [0; BLOCK];
                    let (scale, offset) = w.block(row, b, &mut codes);
                    for (x, code) in x.iter().zip(codes) {
                        let rounded = f64::from(activation(x * inverse, fine) * (largest / 127.0));
                        let weight = f64::from(scale) * f64::from(i32::from(code) - w.zero);
                        sum += rounded * (weight + f64::from(offset));
                    }
                }
                out.push(sum);
            }
        }
        out
    }

    /// One code, or two of which the second takes up what the first leaves.
    fn activation(scaled: f32, fine: bool) -> f32 {
        let code = scaled.round_ties_even();
        let rest = ((scaled - code) * FINER).round_ties_even() / FINER;
        if fine { code + rest } else { code }
    }

    fn check(pool: &Pool, w: &Source, m: usize) {
        let x = Random::new(m as u64).floats(m * w.k);
        let packed = PackedRows::pack(pool, &[w]).unwrap().remove(0);
        let want = reference(w, &x, m <= FINE);
        for isa in Isa::available() {
            let mut out = vec![f32::NAN; m * w.n];
            let product = Product {
                weights: &packed,
                out: &mut out,
                add: None,
            };
            packed_linear_on(*isa, pool, &x, m, &mut [Some(product)]);
            for (i, (y, want)) in out.iter().zip(&want).enumerate() {
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
        let add = vec![f16::ONE; 6 * 40];
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
                add: Some(&add),
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
}
