//! Attention of one layer over a cache: causal, windowed or masked, with grouped queries, read where it lies.
//!
//! Queries that share a key/value head are laid along the lanes (all heads of the group, several positions), so both
//! products are the micro-kernel of [`crate::gemm`] and the softmax needs no sums across lanes. Scores are kept for
//! the whole context, which lets the softmax be rounded as the operation's decomposed form rounds it. Where nothing needs rounding
//! `online` goes along the context once, in f32; `words` does so with integers for half precision where
//! that is fast, and `decode` for one query a head.

mod decode;
mod online;
mod words;

pub use crate::compiled::CachedFor;
use crate::elem::{Elem, Rounding};
use crate::gemm::{self, Store, Tile};
use crate::isa::Isa;
use crate::mem::Pod;
use crate::scratch;
use crate::simd::{Kernel, MAX_LANES, Simd, pieces};
use crate::threads::{Pool, Rows};

/// Keys widened at a time: a multiple of every `TILE_ROWS`.
const KEYS: usize = 48;
/// Values widened at a time.
const VALUES: usize = 192;

/// A tensor [heads, rows, width] whose rows are contiguous: element (h, r, c) is
/// `data[h * head_stride + r * row_stride + c]`.
#[derive(Clone, Copy, Debug)]
pub struct Heads<'a, T> {
    /// The elements.
    pub data: &'a [T],
    /// Elements from a head to the next.
    pub head_stride: usize,
    /// Elements from a row to the next.
    pub row_stride: usize,
}

impl<'a, T> Heads<'a, T> {
    /// The same without the rows before `first`.
    #[must_use]
    pub fn from_row(self, first: usize) -> Self {
        let at = (first * self.row_stride).min(self.data.len());
        Self {
            data: &self.data[at..],
            ..self
        }
    }

    #[inline(always)]
    fn row(&self, head: usize, row: usize, width: usize) -> &'a [T] {
        &self.data[head * self.head_stride + row * self.row_stride..][..width]
    }

    fn holds(&self, heads: usize, rows: usize, width: usize) -> bool {
        rows == 0 || end(heads, rows, width, (self.head_stride, self.row_stride)) <= self.data.len()
    }
}

/// What keys and values are kept as.
pub trait Cached: Pod {
    /// Elements behind those of a row, which hold its scale.
    const TAIL: usize;
    /// Loads `len` elements of a row, not scaled yet; lanes beyond are zero.
    fn load_codes<S: Simd>(s: S, x: &[Self], len: usize) -> S::V;
    /// The scale of a row.
    fn scale(tail: &[Self]) -> f32;
}

/// The elements themselves.
impl<T: Elem> Cached for T {
    const TAIL: usize = 0;
    #[inline(always)]
    fn load_codes<S: Simd>(s: S, x: &[Self], len: usize) -> S::V {
        T::load_part(s, x, len)
    }
    #[inline(always)]
    fn scale(_: &[Self]) -> f32 {
        1.0
    }
}

/// Signed codes of eight bits, and behind a row its scale, an f32. [`cache_row`] makes them.
impl Cached for u8 {
    const TAIL: usize = size_of::<f32>();
    #[inline(always)]
    fn load_codes<S: Simd>(s: S, x: &[Self], len: usize) -> S::V {
        if len == S::LANES {
            return s.load_i8(x);
        }
        let mut lanes = [0; MAX_LANES];
        lanes[..len].copy_from_slice(&x[..len]);
        s.load_i8(&lanes)
    }
    #[inline(always)]
    fn scale(tail: &[Self]) -> f32 {
        f32::from_le_bytes([tail[0], tail[1], tail[2], tail[3]])
    }
}

/// The bytes that a row of `width` elements is kept in as codes with a scale.
pub const fn cached_width(width: usize) -> usize {
    width + <u8 as Cached>::TAIL
}

/// Keeps a row as codes with a scale, so that the largest has code 127.
///
/// # Panics
/// If `out` is not of [`cached_width`].
pub fn cache_row<T: Elem>(row: &[T], out: &mut [u8]) {
    assert_eq!(out.len(), cached_width(row.len()), "cache_row: width");
    let largest = row.iter().fold(0.0_f32, |m, x| m.max(x.to_f32().abs()));
    let inverse = if largest > 0.0 { 127.0 / largest } else { 0.0 };
    let (codes, tail) = out.split_at_mut(row.len());
    for (code, x) in codes.iter_mut().zip(row) {
        *code = ((x.to_f32() * inverse).round_ties_even() as i8).cast_unsigned();
    }
    tail.copy_from_slice(&(largest / 127.0).to_le_bytes());
}

/// Where the result goes: [heads, rows, width] like [`Heads`].
#[derive(Debug)]
pub struct HeadsMut<'a, T> {
    /// The elements.
    pub data: &'a mut [T],
    /// Elements from a head to the next.
    pub head_stride: usize,
    /// Elements from a row to the next.
    pub row_stride: usize,
}

/// What a layer's attention computes: softmax(scale q k^T + mask) v.
#[derive(Clone, Copy, Debug)]
pub struct Attention<'a, T, C = T> {
    /// Queries [heads, m, d].
    pub q: Heads<'a, T>,
    /// Keys [kv_heads, s, d], as they are or as codes with a scale ([`Cached`]).
    pub k: Heads<'a, C>,
    /// Values [kv_heads, s, dv], likewise.
    pub v: Heads<'a, C>,
    /// Query heads: a multiple of `kv_heads`; head h reads key/value head h / (heads / kv_heads).
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Queries per head.
    pub m: usize,
    /// Keys: the context, the queries' own positions included.
    pub s: usize,
    /// Width of queries and keys.
    pub d: usize,
    /// Width of values.
    pub dv: usize,
    /// Multiplies the queries.
    pub scale: f32,
    /// Whether query i sees only keys up to s - m + i (aligned to the last key).
    pub causal: bool,
    /// Query at position p = s - m + i sees only keys above p - window.
    pub window: Option<usize>,
    /// Added to the scores: [m, s], for all heads; then elements from a row to the next.
    pub mask: Option<(&'a [T], usize)>,
    /// A logit per head that takes part in the softmax and has no value.
    pub sinks: Option<&'a [f32]>,
    /// Whether to round scaled queries, scores, masked scores and probabilities to `T`, as the operation's decomposed
    /// form does; otherwise all is f32 until the result.
    pub exact: bool,
}

/// Computes `a` into `out` [heads, m, dv].
///
/// # Panics
/// If a shape does not fit its data, or heads of the result overlap.
pub fn attention<T: Elem, C: CachedFor<T>>(
    pool: &Pool,
    a: &Attention<'_, T, C>,
    out: HeadsMut<'_, T>,
) {
    C::attention(pool, a, out);
}

pub(crate) fn attention_on<T: Elem, C: Cached>(
    isa: Isa,
    pool: &Pool,
    a: &Attention<'_, T, C>,
    mut out: HeadsMut<'_, T>,
) {
    if a.heads == 0 || a.m == 0 || a.dv == 0 {
        return;
    }
    a.check(&out);
    if decode::applies(a) {
        return decode::decode(isa, pool, a, &mut out);
    }
    let HeadsMut {
        data,
        head_stride,
        row_stride,
    } = out;
    let rows = Rows::new(data, 1);
    let out = Output {
        rows,
        head_stride,
        row_stride,
    };
    if words::applies(isa, a) {
        return words::attention(isa, pool, a, &out);
    }
    for_blocks(isa, pool, a, &|lanes| {
        isa.run(BlockKernel { lanes, out: &out });
    });
}

/// Calls `f` for every block of queries.
fn for_blocks<T: Elem, C: Cached>(
    isa: Isa,
    pool: &Pool,
    a: &Attention<'_, T, C>,
    f: &(dyn Fn(Lanes<'_, T, C>) + Sync),
) {
    let width = isa.run(gemm::Width);
    let blocks = (a.group() * a.m).div_ceil(width);
    pool.run(a.kv_heads * blocks, &|task| {
        // Later blocks see more keys: starting with them evens out the end.
        let block = blocks - 1 - task / a.kv_heads;
        f(Lanes {
            a,
            kv_head: task % a.kv_heads,
            first: block * width,
        });
    });
}

impl<'a, T: Elem, C: Cached> Attention<'a, T, C> {
    /// Query heads per key/value head.
    #[inline(always)]
    fn group(&self) -> usize {
        self.heads / self.kv_heads
    }

    fn check(&self, out: &HeadsMut<'_, T>) {
        assert!(
            self.kv_heads > 0 && self.heads.is_multiple_of(self.kv_heads),
            "attention: heads"
        );
        assert!(
            self.m <= self.s || !self.causal,
            "attention: more queries than keys"
        );
        assert!(
            self.q.holds(self.heads, self.m, self.d),
            "attention: queries"
        );
        assert!(
            self.k.holds(self.kv_heads, self.s, self.d + C::TAIL),
            "attention: keys"
        );
        assert!(
            self.v.holds(self.kv_heads, self.s, self.dv + C::TAIL),
            "attention: values"
        );
        self.check_out(out);
        assert!(
            self.mask
                .is_none_or(|(x, row)| x.len() >= (self.m - 1) * row + self.s),
            "attention: mask"
        );
        assert!(
            self.sinks.is_none_or(|x| x.len() == self.heads),
            "attention: sinks"
        );
    }

    fn check_out(&self, out: &HeadsMut<'_, T>) {
        assert!(
            end(
                self.heads,
                self.m,
                self.dv,
                (out.head_stride, out.row_stride)
            ) <= out.data.len(),
            "attention: out"
        );
        assert!(
            disjoint(
                (self.heads, out.head_stride),
                (self.m, out.row_stride),
                self.dv
            ),
            "attention: out overlaps"
        );
    }

    /// A key and its scale.
    #[inline(always)]
    fn key(&self, head: usize, row: usize) -> (&'a [C], f32) {
        let (key, tail) = self.k.row(head, row, self.d + C::TAIL).split_at(self.d);
        (key, C::scale(tail))
    }

    /// A value and its scale.
    #[inline(always)]
    fn value(&self, head: usize, row: usize) -> (&'a [C], f32) {
        let (value, tail) = self.v.row(head, row, self.dv + C::TAIL).split_at(self.dv);
        (value, C::scale(tail))
    }

    /// Keys that query row `i` sees.
    #[inline(always)]
    fn visible(&self, i: usize) -> (usize, usize) {
        // Without causality there may be more queries than keys: positions then start below zero.
        let position = (self.s + i) as isize - self.m as isize;
        let high = if self.causal {
            position + 1
        } else {
            self.s as isize
        };
        let low = self.window.map_or(0, |w| {
            position + 1 - isize::try_from(w).unwrap_or(isize::MAX)
        });
        (low.max(0) as usize, high.max(0) as usize)
    }
}

/// One past the last element of `heads` times `rows` rows of `width` at two strides.
fn end(heads: usize, rows: usize, width: usize, (h, r): (usize, usize)) -> usize {
    let last = |n: usize, stride: usize| n.saturating_sub(1).saturating_mul(stride);
    last(heads, h)
        .saturating_add(last(rows, r))
        .saturating_add(width)
}

/// Whether rows of `width` at two strides never overlap: one axis lies within the other's stride.
fn disjoint((n, a): (usize, usize), (m, b): (usize, usize), width: usize) -> bool {
    let within = |n: usize, inner: usize, m: usize, outer: usize| {
        let row = if n > 1 { inner >= width } else { true };
        row && (m <= 1 || outer >= (n - 1).saturating_mul(inner).saturating_add(width))
    };
    within(n, a, m, b) || within(m, b, n, a)
}

struct Output<'a, T> {
    rows: Rows<'a, T>,
    head_stride: usize,
    row_stride: usize,
}

/// A block of queries of one key/value head: lane l is query `first + l`, counted over positions, then heads of the group.
#[derive(Clone, Copy)]
struct Lanes<'a, T, C> {
    a: &'a Attention<'a, T, C>,
    kv_head: usize,
    first: usize,
}

impl<T: Elem, C: Cached> Lanes<'_, T, C> {
    #[inline(always)]
    fn count(&self, width: usize) -> usize {
        width.min(self.a.group() * self.a.m - self.first)
    }

    /// The head and the query row of lane `l`.
    #[inline(always)]
    fn query(&self, l: usize) -> (usize, usize) {
        let (group, at) = (self.a.group(), self.first + l);
        (self.kv_head * group + at % group, at / group)
    }
}

/// Two registers of lanes: the widest panel.
const MAX_WIDTH: usize = gemm::PANEL_REGISTERS * MAX_LANES;

/// Which keys each lane sees, as numbers to compare in registers; lanes without a query see none.
struct Limits {
    low: [f32; MAX_WIDTH],
    high: [f32; MAX_WIDTH],
    /// The keys that some lane sees.
    keys: (usize, usize),
    /// The keys that every lane with a query sees.
    common: (usize, usize),
}

impl Limits {
    #[inline(always)]
    fn new<T: Elem, C: Cached>(lanes: &Lanes<'_, T, C>, count: usize) -> Self {
        let mut limits = Self {
            low: [0.0; MAX_WIDTH],
            high: [0.0; MAX_WIDTH],
            keys: (usize::MAX, 0),
            common: (0, usize::MAX),
        };
        for l in 0..count {
            let (low, high) = lanes.a.visible(lanes.query(l).1);
            limits.low[l] = low as f32;
            limits.high[l] = high as f32;
            limits.keys = (limits.keys.0.min(low), limits.keys.1.max(high));
            limits.common = (limits.common.0.max(low), limits.common.1.min(high));
        }
        limits.keys.0 = limits.keys.0.min(limits.keys.1);
        limits
    }
}

struct BlockKernel<'a, T, C> {
    lanes: Lanes<'a, T, C>,
    out: &'a Output<'a, T>,
}

impl<T: Elem, C: Cached> Kernel for BlockKernel<'_, T, C> {
    type Out = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (a, width) = (self.lanes.a, gemm::panel_width::<S>());
        let count = self.lanes.count(width);
        let limits = Limits::new(&self.lanes, count);
        let keys = limits.keys.1 - limits.keys.0;
        let dv = a.dv.next_multiple_of(gemm::rest_rows::<S>());
        let step = Step {
            lanes: self.lanes,
            limits,
            count,
            rounding: if a.exact { T::ROUNDING } else { Rounding::F32 },
        };
        let queries = &mut *scratch::floats(a.d * width);
        step.pack_queries(s, queries);
        let sums = &mut *scratch::floats(dv * width);
        if !a.exact {
            step.online(s, queries, sums, dv);
            return step.write(s, sums, self.out);
        }
        let scores = &mut *scratch::floats(keys.next_multiple_of(KEYS) * width);
        step.scores(s, queries, scores);
        let scores = &mut scores[..keys * width];
        step.softmax(s, scores);
        step.values(s, scores, sums, dv);
        step.write(s, sums, self.out);
    }
}

/// One block's data, for the steps of the computation.
struct Step<'a, T, C> {
    lanes: Lanes<'a, T, C>,
    limits: Limits,
    count: usize,
    rounding: Rounding,
}

impl<T: Elem, C: Cached> Step<'_, T, C> {
    /// Registers in use: one when the queries fit in one.
    #[inline(always)]
    fn registers<S: Simd>(&self) -> usize {
        self.count.div_ceil(S::LANES)
    }

    /// The product of the micro-kernel. The reference runtime rounds half precision at every step, and bf16 and f32 sums in f32.
    #[inline(always)]
    fn multiply<S: Simd>(
        &self,
        s: S,
        tile: Tile<'_>,
        panel: &[f32],
        out: (&mut [f32], usize),
        store: Store,
    ) {
        let tokens = self.count;
        match T::ROUNDING {
            Rounding::F16 => gemm::multiply::<S, T, false>(s, tile, panel, tokens, out, store),
            _ => gemm::multiply::<S, f32, false>(s, tile, panel, tokens, out, store),
        }
    }

    /// panel[c][lane] = scale * q, rounded.
    #[inline(always)]
    fn pack_queries<S: Simd>(&self, s: S, panel: &mut [f32]) {
        let (a, width) = (self.lanes.a, gemm::panel_width::<S>());
        let scale = s.splat(a.scale);
        let rows = &mut *scratch::floats(width * a.d);
        let mut l = 0;
        while l < self.count {
            let (head, i) = self.lanes.query(l);
            let q = a.q.row(head, i, a.d);
            let row = &mut rows[l * a.d..(l + 1) * a.d];
            let mut c = 0;
            while c < a.d {
                let len = S::LANES.min(a.d - c);
                let v = s.mul(T::load_part(s, &q[c..], len), scale);
                f32::store_part(s, self.rounding.apply(s, v), &mut row[c..], len);
                c += S::LANES;
            }
            l += 1;
        }
        gemm::pack(s, rows, a.d, self.count, panel);
    }

    /// scores[key][lane] = the rounded product, not yet masked.
    #[inline(always)]
    fn scores<S: Simd>(&self, s: S, queries: &[f32], scores: &mut [f32]) {
        let (a, width) = (self.lanes.a, gemm::panel_width::<S>());
        let (low, high) = self.limits.keys;
        let keys = &mut *scratch::floats(KEYS * a.d);
        for first in (low..high).step_by(KEYS) {
            let real = KEYS.min(high - first);
            let rows = real.next_multiple_of(gemm::rest_rows::<S>());
            for (i, row) in keys.chunks_exact_mut(a.d).take(rows).enumerate() {
                // Rows beyond the last repeat it: their scores are not used.
                let key = a.key(self.lanes.kv_head, first + i.min(real - 1));
                widen(s, key, row);
            }
            let tile = Tile {
                data: keys,
                row_stride: a.d,
                column_stride: 1,
                rows,
                columns: a.d,
            };
            let out = &mut scores[(first - low) * width..];
            let out = (out, width);
            self.multiply(s, tile, queries, out, Store::Replace);
        }
    }

    /// Turns scores into probabilities, each lane on its own.
    #[inline(always)]
    fn softmax<S: Simd>(&self, s: S, scores: &mut [f32]) {
        for register in 0..self.registers::<S>() {
            let sinks = self.sinks(s, register);
            let max = self.mask_and_max(s, scores, register, sinks);
            let sum = exponentials(s, scores, register, max);
            let sum = s.add(sum, s.exp_or_zero(s.sub(sinks, max)));
            // A query that sees nothing has sum 0: it then gets zeros.
            let sum = s.max(sum, s.splat(f32::MIN_POSITIVE));
            let mut at = register * S::LANES;
            while at < scores.len() {
                let p = s.div(s.load(&scores[at..]), sum);
                s.store(self.rounding.apply(s, p), &mut scores[at..]);
                at += gemm::panel_width::<S>();
            }
        }
    }

    /// The sink of each lane's head; minus infinity without sinks.
    #[inline(always)]
    fn sinks<S: Simd>(&self, s: S, register: usize) -> S::V {
        let mut values = [f32::NEG_INFINITY; MAX_LANES];
        if let Some(sinks) = self.lanes.a.sinks {
            for (lane, value) in values[..S::LANES].iter_mut().enumerate() {
                let l = register * S::LANES + lane;
                if l < self.count {
                    *value = sinks[self.lanes.query(l).0];
                }
            }
        }
        s.load(&values)
    }

    /// Rounds and masks the scores; returns each lane's largest (finite).
    #[inline(always)]
    fn mask_and_max<S: Simd>(
        &self,
        s: S,
        scores: &mut [f32],
        register: usize,
        sinks: S::V,
    ) -> S::V {
        let at = register * S::LANES;
        let (low, high) = (
            s.load(&self.limits.low[at..]),
            s.load(&self.limits.high[at..]),
        );
        let none = s.splat(f32::NEG_INFINITY);
        let mut max = s.max(sinks, s.splat(f32::MIN));
        let full = self.limits.common;
        let (mut i, mut at) = (0, register * S::LANES);
        let ragged = self.count < at + S::LANES;
        while at < scores.len() {
            let key = self.limits.keys.0 + i;
            let mut v = self.rounding.apply(s, s.load(&scores[at..]));
            if self.lanes.a.mask.is_some() {
                let mask = self.mask_of(s, key, register);
                v = self.rounding.apply(s, s.add(v, mask));
            }
            if key < full.0 || key >= full.1 || ragged {
                let at = s.splat(key as f32);
                v = s.select(s.lt(at, low), none, s.select(s.lt(at, high), v, none));
            }
            max = s.max(v, max);
            s.store(v, &mut scores[at..]);
            (i, at) = (i + 1, at + gemm::panel_width::<S>());
        }
        max
    }

    /// The mask's value at `key` for each lane.
    #[inline(always)]
    fn mask_of<S: Simd>(&self, s: S, key: usize, register: usize) -> S::V {
        let mut values = [0.0; MAX_LANES];
        // Where the keys go by in chunks, the last may reach beyond them.
        if let Some((mask, row)) = self.lanes.a.mask.filter(|_| key < self.lanes.a.s) {
            for (lane, value) in values[..S::LANES].iter_mut().enumerate() {
                let l = register * S::LANES + lane;
                if l < self.count {
                    *value = mask[self.lanes.query(l).1 * row + key].to_f32();
                }
            }
        }
        s.load(&values)
    }

    /// sums[c][lane] = sum over keys of v[key][c] * p[key][lane].
    #[inline(always)]
    fn values<S: Simd>(&self, s: S, probabilities: &[f32], sums: &mut [f32], dv: usize) {
        let (a, width) = (self.lanes.a, gemm::panel_width::<S>());
        let (low, high) = self.limits.keys;
        if low == high {
            sums.fill(0.0);
        }
        let rows = &mut *scratch::floats(VALUES * dv);
        for first in (low..high).step_by(VALUES) {
            let columns = VALUES.min(high - first);
            for (i, row) in rows.chunks_exact_mut(dv).take(columns).enumerate() {
                let value = a.value(self.lanes.kv_head, first + i);
                widen(s, value, &mut row[..a.dv]);
                row[a.dv..].fill(0.0);
            }
            let tile = Tile {
                data: rows,
                row_stride: 1,
                column_stride: dv,
                rows: dv,
                columns,
            };
            let p = &probabilities[(first - low) * width..][..columns * width];
            let store = if first == low {
                Store::Replace
            } else {
                Store::Add
            };
            self.multiply(s, tile, p, (&mut *sums, width), store);
        }
    }

    /// Transposes the sums into the result.
    #[inline(always)]
    fn write<S: Simd>(&self, s: S, sums: &[f32], out: &Output<'_, T>) {
        let (a, width) = (self.lanes.a, gemm::panel_width::<S>());
        let row = &mut *scratch::floats(a.dv);
        for l in 0..self.count {
            let mut c = 0;
            while c < a.dv {
                row[c] = sums[c * width + l];
                c += 1;
            }
            let (head, i) = self.lanes.query(l);
            // SAFETY: each (head, row) belongs to one lane of one task, and `check` saw that rows do not overlap.
            let out = unsafe {
                out.rows
                    .part(head * out.head_stride + i * out.row_stride, a.dv)
            };
            for (c, len) in pieces(a.dv, S::LANES) {
                T::store_part(s, f32::load_part(s, &row[c..], len), &mut out[c..], len);
            }
        }
    }
}

#[inline(always)]
fn widen<S: Simd, C: Cached>(s: S, (x, scale): (&[C], f32), out: &mut [f32]) {
    let scale = s.splat(scale);
    let mut i = 0;
    while i < x.len() {
        let len = S::LANES.min(x.len() - i);
        let mut v = C::load_codes(s, &x[i..], len);
        if C::TAIL > 0 {
            v = s.mul(v, scale);
        }
        f32::store_part(s, v, &mut out[i..], len);
        i += S::LANES;
    }
}

/// Replaces each score by e^(score - max) and returns the sums; by the scalar library, whose results are all but always the
/// nearest.
#[inline(always)]
fn exponentials<S: Simd>(s: S, scores: &mut [f32], register: usize, max: S::V) -> S::V {
    let (mut sum, mut limits) = (s.splat(0.0), [0.0; MAX_LANES]);
    s.store(max, &mut limits);
    let mut at = register * S::LANES;
    while at < scores.len() {
        let mut lane = 0;
        while lane < S::LANES {
            scores[at + lane] = (scores[at + lane] - limits[lane]).exp();
            lane += 1;
        }
        sum = s.add(sum, s.load(&scores[at..]));
        at += gemm::panel_width::<S>();
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;
    use half::f16;

    /// The definition in f64, with the roundings done where `exact` says.
    fn reference<T: Elem>(a: &Attention<'_, T>, head: usize, i: usize) -> Vec<f64> {
        let round = |x: f64| {
            if a.exact {
                f64::from(T::from_f32(x as f32).to_f32())
            } else {
                x
            }
        };
        let value = |x: &[T], c: usize| f64::from(x[c].to_f32());
        let (kv, (low, high)) = (head / a.group(), a.visible(i));
        let q: Vec<f64> = (0..a.d)
            .map(|c| round(value(a.q.row(head, i, a.d), c) * f64::from(a.scale)))
            .collect();
        let score = |key: usize| {
            let k = a.k.row(kv, key, a.d);
            let v = round(step_sum::<T>(
                a.exact,
                q.iter().enumerate().map(|(c, q)| (*q, value(k, c))),
            ));
            a.mask
                .map_or(v, |(m, row)| round(v + value(m, i * row + key)))
        };
        let scores: Vec<f64> = (low..high).map(score).collect();
        let sink = a.sinks.map(|x| f64::from(x[head]));
        let max = scores.iter().copied().chain(sink).fold(f64::MIN, f64::max);
        let sum: f64 = scores
            .iter()
            .copied()
            .chain(sink)
            .map(|v| (v - max).exp())
            .sum();
        let p: Vec<f64> = scores
            .iter()
            .map(|v| round((v - max).exp() / sum))
            .collect();
        let product = |c| {
            let values = p.iter().enumerate();
            let pairs = values.map(|(j, p)| (*p, value(a.v.row(kv, low + j, a.dv), c)));
            step_sum::<T>(a.exact, pairs)
        };
        (0..a.dv).map(product).collect()
    }

    /// A sum of products, every step rounded where half precision is followed exactly.
    fn step_sum<T: Elem>(exact: bool, pairs: impl Iterator<Item = (f64, f64)>) -> f64 {
        let round = |x: f64| {
            if exact && T::ROUNDING == Rounding::F16 {
                f64::from(T::from_f32(x as f32).to_f32())
            } else {
                x
            }
        };
        pairs.fold(0.0, |sum, (a, b)| round(sum + round(a * b)))
    }

    struct Case {
        heads: (usize, usize),
        m: usize,
        s: usize,
        d: usize,
        dv: usize,
        causal: bool,
        window: Option<usize>,
        extra: bool,
    }

    fn check<T: Elem>(case: &Case, exact: bool, tolerance: f64) {
        let (heads, kv_heads) = case.heads;
        let mut random = Random::new(11);
        let mut data = |n: usize| -> Vec<T> {
            random
                .floats(n)
                .iter()
                .map(|v| T::from_f32(v * 2.0))
                .collect()
        };
        let Case { m, s, d, dv, .. } = *case;
        // Rows of the cache lie apart, and queries and result are [m, heads, d].
        let (q, k, v) = (
            data(heads * m * d),
            data(kv_heads * (s + 3) * d),
            data(kv_heads * (s + 3) * dv),
        );
        let (mask, sinks) = (
            data(m * (s + 2)),
            data(heads).iter().map(|x| x.to_f32()).collect::<Vec<_>>(),
        );
        let a = Attention {
            q: Heads {
                data: &q,
                head_stride: d,
                row_stride: heads * d,
            },
            k: Heads {
                data: &k,
                head_stride: (s + 3) * d,
                row_stride: d,
            },
            v: Heads {
                data: &v,
                head_stride: (s + 3) * dv,
                row_stride: dv,
            },
            heads,
            kv_heads,
            m,
            s,
            d,
            dv,
            scale: T::from_f32(1.0 / (d as f32).sqrt()).to_f32(),
            causal: case.causal,
            window: case.window,
            // Without rounding, one query goes another way, which takes no mask: try its sinks alone.
            mask: (case.extra && (exact || m > 1)).then_some((&mask[..], s + 2)),
            sinks: case.extra.then_some(&sinks),
            exact,
        };
        compare(&a, tolerance);
    }

    /// Every instruction set against the definition; the result is laid out as [m, heads, dv].
    fn compare<T: Elem>(a: &Attention<'_, T>, tolerance: f64) {
        let Attention {
            m, s, d, dv, heads, ..
        } = *a;
        for isa in Isa::available() {
            let mut out = vec![T::from_f32(f32::NAN); m * heads * dv];
            let place = HeadsMut {
                data: &mut out,
                head_stride: dv,
                row_stride: heads * dv,
            };
            attention_on(*isa, &Pool::new(2), a, place);
            for (at, got) in out.chunks(dv).enumerate() {
                let want = reference(a, at % heads, at / heads);
                for (got, want) in got.iter().zip(want) {
                    let error = (f64::from(got.to_f32()) - want).abs();
                    assert!(
                        error <= tolerance,
                        "{} m={m} s={s} d={d}: {} {want}",
                        isa.name(),
                        got.to_f32()
                    );
                }
            }
        }
    }

    #[test]
    fn attention_matches_its_definition() {
        for heads in [(1, 1), (4, 2), (9, 3), (10, 2), (9, 1)] {
            for (m, s, d, dv) in [
                (1, 1, 4, 4),
                (1, 50, 16, 16),
                (1, 300, 64, 64),
                (5, 5, 16, 24),
                (7, 40, 20, 10),
                (40, 70, 64, 64),
            ] {
                for (causal, window, extra) in [
                    (true, None, false),
                    (true, Some(6), true),
                    (false, None, true),
                ] {
                    let case = Case {
                        heads,
                        m,
                        s,
                        d,
                        dv,
                        causal,
                        window,
                        extra,
                    };
                    check::<f32>(&case, false, 3e-6);
                    check::<f16>(&case, true, 4e-3);
                    check::<f16>(&case, false, 4e-3);
                }
            }
        }
    }

    #[test]
    fn overlapping_results_are_refused() {
        assert!(disjoint((4, 8), (10, 32), 8));
        assert!(disjoint((4, 80), (10, 8), 8));
        assert!(!disjoint((4, 8), (10, 8), 8));
        assert!(!disjoint((4, 4), (10, 32), 8));
    }

    /// Keys or values as half precision, as codes, and as what the codes stand for.
    struct Kept {
        codes: Vec<u8>,
        meant: Vec<f32>,
    }

    impl Kept {
        fn new(random: &mut Random, rows: usize, d: usize) -> Self {
            let given: Vec<f16> = random
                .floats(rows * d)
                .into_iter()
                .map(f16::from_f32)
                .collect();
            let mut codes = vec![0; rows * cached_width(d)];
            for (row, out) in given.chunks(d).zip(codes.chunks_mut(cached_width(d))) {
                cache_row(row, out);
            }
            let mut meant = Vec::new();
            for (row, kept) in given.chunks(d).zip(codes.chunks(cached_width(d))) {
                let (kept, tail) = kept.split_at(d);
                let scale = <u8 as Cached>::scale(tail);
                for (x, code) in row.iter().zip(kept) {
                    meant.push(f32::from(code.cast_signed()) * scale);
                    let error = (x.to_f32() - meant[meant.len() - 1]).abs();
                    assert!(error <= 0.51 * scale, "{error} of {scale}");
                }
            }
            Self { codes, meant }
        }
    }

    /// All rows of a head one after the other.
    fn in_rows<T>(data: &[T], rows: usize, width: usize) -> Heads<'_, T> {
        Heads {
            data,
            head_stride: rows * width,
            row_stride: width,
        }
    }

    /// The results of `m` queries a head.
    fn results<T: Elem, C: Cached>(isa: Isa, a: &Attention<'_, T, C>) -> Vec<f32> {
        let mut out = vec![T::ZERO; a.heads * a.m * a.dv];
        let place = HeadsMut {
            data: &mut out,
            head_stride: a.m * a.dv,
            row_stride: a.dv,
        };
        attention_on(isa, &Pool::new(2), a, place);
        out.into_iter().map(T::to_f32).collect()
    }

    /// Causal attention of `(heads, kv_heads, m, s, d)`.
    fn causal<'a, T, C>(
        (heads, kv_heads, m, s, d): (usize, usize, usize, usize, usize),
        window: Option<usize>,
        (q, k, v): (Heads<'a, T>, Heads<'a, C>, Heads<'a, C>),
    ) -> Attention<'a, T, C> {
        Attention {
            q,
            k,
            v,
            heads,
            kv_heads,
            m,
            s,
            d,
            dv: d,
            scale: 1.0 / (d as f32).sqrt(),
            causal: true,
            window,
            mask: None,
            sinks: None,
            exact: false,
        }
    }

    /// Rows kept as codes give what the rows give that the codes stand for.
    #[test]
    fn codes_are_read_as_the_rows_they_stand_for() {
        for (shape, window) in [
            ((4, 2, 1, 200, 64), None),
            ((9, 3, 1, 65, 40), Some(30)),
            ((4, 1, 7, 90, 32), None),
            ((6, 3, 33, 150, 64), Some(40)),
        ] {
            let (heads, kv_heads, m, s, d) = shape;
            let mut random = Random::new((m * s) as u64);
            let half: Vec<f16> = random
                .floats(heads * m * d)
                .into_iter()
                .map(f16::from_f32)
                .collect();
            let wide: Vec<f32> = half.iter().map(|x| x.to_f32()).collect();
            let [k, v] = [0; 2].map(|_| Kept::new(&mut random, kv_heads * s, d));
            let long = cached_width(d);
            let codes = || (in_rows(&k.codes, s, long), in_rows(&v.codes, s, long));
            let meant = (
                in_rows(&wide, m, d),
                in_rows(&k.meant, s, d),
                in_rows(&v.meant, s, d),
            );
            let meant = causal(shape, window, meant);
            let kept = causal(shape, window, (in_rows(&wide, m, d), codes().0, codes().1));
            let halves = causal(shape, window, (in_rows(&half, m, d), codes().0, codes().1));
            for isa in Isa::available() {
                let want = results(*isa, &meant);
                let worst = |got: Vec<f32>| {
                    let each = want.iter().zip(got).map(|(a, b)| (a - b).abs());
                    each.fold(0.0, f32::max)
                };
                let (kept, halves) = (worst(results(*isa, &kept)), worst(results(*isa, &halves)));
                assert!(kept < 1e-5, "{} {shape:?}: {kept}", isa.name());
                assert!(halves < 4e-3, "{} {shape:?}, halves: {halves}", isa.name());
            }
        }
    }
}
