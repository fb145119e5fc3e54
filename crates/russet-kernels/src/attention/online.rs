//! Many queries in one pass: the context goes by in chunks that stay in the nearest cache, with a running maximum and sum a query
//! (the online softmax of Milakov and Gimelshein, 2018).
//!
//! Queries lie along the lanes as in the parent; for each chunk the scores are worked out, turned into weights in place, and the
//! values added. Sums made under an older maximum fade when a larger score turns up.

use super::{Cached, MAX_WIDTH, Step, widen};
use crate::elem::Elem;
use crate::gemm::{self, Store, Tile};
use crate::scratch;
use crate::simd::{MAX_LANES, Simd};

/// Keys of a chunk: a multiple of every `TILE_ROWS`.
const CHUNK: usize = 48;

/// What is known of the queries so far: for each its largest score and the sum of its weights.
pub(super) struct Running {
    pub(super) largest: [f32; MAX_WIDTH],
    pub(super) total: [f32; MAX_WIDTH],
}

impl<T: Elem, C: Cached> Step<'_, T, C> {
    /// sums[c][lane] = the lane's result, for `dv` (padded) columns of values.
    #[inline(always)]
    pub(super) fn online<S: Simd>(&self, s: S, queries: &[f32], sums: &mut [f32], dv: usize) {
        let a = self.lanes.a;
        sums.fill(0.0);
        let mut running = self.start(s);
        let rows = &mut *scratch::floats(CHUNK * a.d.max(dv));
        let mut scores = [0.0; CHUNK * MAX_WIDTH];
        let mut first = self.limits.keys.0;
        while first < self.limits.keys.1 {
            let count = CHUNK.min(self.limits.keys.1 - first);
            self.chunk_scores(s, (first, count), queries, rows, &mut scores);
            for register in 0..self.registers::<S>() {
                let fade = self.weights(s, (first, count), register, &mut running, &mut scores);
                fade_sums(s, fade, register, sums);
            }
            self.add_values(s, (first, count), &scores, rows, (&mut *sums, dv));
            first += count;
        }
        for register in 0..self.registers::<S>() {
            // A query that sees nothing has total 0: it gets zeros.
            let total = s.load(&running.total[register * S::LANES..]);
            let total = s.max(total, s.splat(f32::MIN_POSITIVE));
            fade_sums(s, s.div(s.splat(1.0), total), register, sums);
        }
    }

    /// Before any key: the sinks, which have a score and no value.
    #[inline(always)]
    pub(super) fn start<S: Simd>(&self, s: S) -> Running {
        let mut running = Running {
            largest: [0.0; MAX_WIDTH],
            total: [0.0; MAX_WIDTH],
        };
        for register in 0..self.registers::<S>() {
            let sinks = self.sinks(s, register);
            let largest = s.max(sinks, s.splat(f32::MIN));
            let total = s.exp_or_zero(s.sub(sinks, largest));
            s.store(largest, &mut running.largest[register * S::LANES..]);
            s.store(total, &mut running.total[register * S::LANES..]);
        }
        running
    }

    /// scores[key][lane] of a chunk, not yet masked.
    #[inline(always)]
    fn chunk_scores<S: Simd>(
        &self,
        s: S,
        (first, count): (usize, usize),
        queries: &[f32],
        rows: &mut [f32],
        scores: &mut [f32],
    ) {
        let (a, width) = (self.lanes.a, gemm::panel_width::<S>());
        let padded = count.next_multiple_of(gemm::rest_rows::<S>());
        let mut i = 0;
        while i < padded {
            // Rows beyond the last repeat it: their scores are not used.
            let key = a.key(self.lanes.kv_head, first + i.min(count - 1));
            widen(s, key, &mut rows[i * a.d..(i + 1) * a.d]);
            i += 1;
        }
        let tile = Tile {
            data: rows,
            row_stride: a.d,
            column_stride: 1,
            rows: padded,
            columns: a.d,
        };
        let out = (scores, width);
        gemm::multiply::<S, f32, true>(s, tile, queries, self.count, out, Store::Replace);
    }

    /// Masks a chunk's scores and turns them into `e^(score - largest)`; returns the factor for what was summed before.
    #[inline(always)]
    fn weights<S: Simd>(
        &self,
        s: S,
        (first, count): (usize, usize),
        register: usize,
        running: &mut Running,
        scores: &mut [f32],
    ) -> S::V {
        let (at, width) = (register * S::LANES, gemm::panel_width::<S>());
        let before = s.load(&running.largest[at..]);
        let largest = self.mask_chunk(s, (first, count), register, before, scores);
        let fade = s.exp_or_zero(s.sub(before, largest));
        let mut total = s.mul(s.load(&running.total[at..]), fade);
        let mut i = 0;
        while i < count {
            let score = &mut scores[i * width + at..];
            let weight = s.exp_or_zero(s.sub(s.load(score), largest));
            total = s.add(total, weight);
            s.store(weight, score);
            i += 1;
        }
        s.store(largest, &mut running.largest[at..]);
        s.store(total, &mut running.total[at..]);
        fade
    }

    /// Adds the mask and hides keys that a lane does not see; returns each lane's largest score (or `before`).
    #[inline(always)]
    pub(super) fn mask_chunk<S: Simd>(
        &self,
        s: S,
        (first, count): (usize, usize),
        register: usize,
        before: S::V,
        scores: &mut [f32],
    ) -> S::V {
        let (at, width) = (register * S::LANES, gemm::panel_width::<S>());
        let common = self.limits.common;
        let all = first >= common.0 && first + count <= common.1 && self.count >= at + S::LANES;
        if !all || self.lanes.a.mask.is_some() {
            self.hide(s, (first, count), register, scores);
        }
        let mut largest = before;
        let mut i = 0;
        while i < count {
            largest = s.max(s.load(&scores[i * width + at..]), largest);
            i += 1;
        }
        largest
    }

    #[inline(always)]
    fn hide<S: Simd>(
        &self,
        s: S,
        (first, count): (usize, usize),
        register: usize,
        scores: &mut [f32],
    ) {
        let (at, width) = (register * S::LANES, gemm::panel_width::<S>());
        let low = s.load(&self.limits.low[at..]);
        let high = s.load(&self.limits.high[at..]);
        let none = s.splat(f32::NEG_INFINITY);
        let mut i = 0;
        while i < count {
            let score = &mut scores[i * width + at..];
            let mut v = s.load(score);
            if self.lanes.a.mask.is_some() {
                v = s.add(v, self.mask_of(s, first + i, register));
            }
            let key = s.splat((first + i) as f32);
            v = s.select(s.lt(key, low), none, s.select(s.lt(key, high), v, none));
            s.store(v, score);
            i += 1;
        }
    }

    /// sums[c][lane] += sum over a chunk's keys of v[key][c] * weight[key][lane].
    #[inline(always)]
    fn add_values<S: Simd>(
        &self,
        s: S,
        (first, count): (usize, usize),
        weights: &[f32],
        rows: &mut [f32],
        (sums, dv): (&mut [f32], usize),
    ) {
        let (a, width) = (self.lanes.a, gemm::panel_width::<S>());
        let mut i = 0;
        while i < count {
            let row = &mut rows[i * dv..(i + 1) * dv];
            let value = a.value(self.lanes.kv_head, first + i);
            widen(s, value, &mut row[..a.dv]);
            row[a.dv..].fill(0.0);
            i += 1;
        }
        let tile = Tile {
            data: rows,
            row_stride: 1,
            column_stride: dv,
            rows: dv,
            columns: count,
        };
        let (weights, out) = (&weights[..count * width], (sums, width));
        gemm::multiply::<S, f32, true>(s, tile, weights, self.count, out, Store::Add);
    }
}

/// Multiplies a register's sums, unless all factors are one.
#[inline(always)]
fn fade_sums<S: Simd>(s: S, factor: S::V, register: usize, sums: &mut [f32]) {
    let mut factors = [1.0; MAX_LANES];
    s.store(factor, &mut factors);
    if factors == [1.0; MAX_LANES] {
        return;
    }
    let mut at = register * S::LANES;
    while at < sums.len() {
        let sum = &mut sums[at..];
        s.store(s.mul(s.load(sum), factor), sum);
        at += gemm::panel_width::<S>();
    }
}
