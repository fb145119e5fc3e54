//! One query a head: the context is read once, for all heads that share it, and split among the threads.
//!
//! A task takes a key/value head and a stretch of the context. It goes along in chunks with a running maximum (the online
//! softmax of Milakov and Gimelshein, 2018): scores of four keys at a time, then their exponentials, then the values. What
//! the tasks of a head found is joined at the end.

use super::{Attention, Cached, HeadsMut};
use crate::elem::Elem;
use crate::isa::Isa;
use crate::scratch;
use crate::simd::{Kernel, Simd, pieces};
use crate::threads::Pool;

/// Keys between two looks at the maximum.
const CHUNK: usize = 64;
/// The most heads that share keys and values.
pub(super) const MAX_GROUP: usize = 8;
/// The least keys worth a task of their own.
const STRETCH: usize = 128;
/// Keys whose scores are worked out together.
const QUAD: usize = 4;

/// Whether [`decode`] computes `a`.
pub(super) fn applies<T, C>(a: &Attention<'_, T, C>) -> bool {
    a.m == 1 && !a.exact && a.mask.is_none() && a.heads / a.kv_heads <= MAX_GROUP
}

/// Computes `a` for its one query a head.
pub(super) fn decode<T: Elem, C: Cached>(
    isa: Isa,
    pool: &Pool,
    a: &Attention<'_, T, C>,
    out: &mut HeadsMut<'_, T>,
) {
    let (low, high) = a.visible(0);
    let keys = high.saturating_sub(low);
    let wanted = (3 * pool.threads()).div_ceil(a.kv_heads);
    let splits = wanted.min(keys / STRETCH).max(1);
    let stretch = keys.div_ceil(splits);
    let group = a.heads / a.kv_heads;
    let part = group * (a.dv + 2);
    let partial = &mut *scratch::floats(a.kv_heads * splits * part);
    pool.for_chunks_mut(partial, part, &|task, partial| {
        let (kv_head, split) = (task / splits, task % splits);
        let first = low + split * stretch;
        isa.run(Stretch {
            a,
            kv_head,
            keys: (first.min(high), (first + stretch).min(high)),
            partial,
        });
    });
    for head in 0..a.heads {
        let (kv_head, g) = (head / group, head % group);
        let parts = &partial[kv_head * splits * part..(kv_head + 1) * splits * part];
        let row = &mut out.data[head * out.head_stride..][..a.dv];
        isa.run(Join {
            parts,
            part,
            group,
            g,
            sink: a.sinks.map_or(f32::NEG_INFINITY, |s| s[head]),
            row,
        });
    }
}

/// One task: the queries of a group with some keys. The result is, for each query, its maximum, then for each its sum, then
/// for each the sum of the values weighted by `e^(score - maximum)`.
struct Stretch<'a, T, C> {
    a: &'a Attention<'a, T, C>,
    kv_head: usize,
    keys: (usize, usize),
    partial: &'a mut [f32],
}

impl<T: Elem, C: Cached> Kernel for Stretch<'_, T, C> {
    type Out = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        match self.partial.len() / (self.a.dv + 2) {
            1 => self.go::<S, 1, 4>(s),
            2 => self.go::<S, 2, 4>(s),
            3 => self.go::<S, 3, 4>(s),
            4 => self.go::<S, 4, 4>(s),
            5 => self.go::<S, 5, 2>(s),
            6 => self.go::<S, 6, 2>(s),
            7 => self.go::<S, 7, 2>(s),
            _ => self.go::<S, 8, 2>(s),
        }
    }
}

impl<T: Elem, C: Cached> Stretch<'_, T, C> {
    /// `G` queries, values in tiles of `N` registers.
    #[inline(always)]
    fn go<S: Simd, const G: usize, const N: usize>(self, s: S) {
        let a = self.a;
        let width = a.d.next_multiple_of(S::LANES);
        let queries = &mut *scratch::floats(G * width);
        self.widen_queries(s, queries, width);
        let (head, sums) = self.partial.split_at_mut(2 * G);
        sums.fill(0.0);
        let mut scores = [[0.0; CHUNK]; G];
        let (mut largest, mut total) = ([f32::MIN; G], [0.0; G]);
        let mut first = self.keys.0;
        while first < self.keys.1 {
            let count = CHUNK.min(self.keys.1 - first);
            score::<S, T, C, G>(
                s,
                a,
                (self.kv_head, first, count),
                (queries, width),
                &mut scores,
            );
            for g in 0..G {
                let max = largest_of(s, &scores[g], count, largest[g]);
                let fade = (largest[g] - max).exp();
                total[g] = total[g] * fade + exponentials(s, &mut scores[g], count, max);
                if fade < 1.0 {
                    scale(s, &mut sums[g * a.dv..(g + 1) * a.dv], fade);
                }
                largest[g] = max;
            }
            weigh::<S, T, C, G, N>(s, a, (self.kv_head, first, count), &scores, sums);
            first += count;
        }
        head[..G].copy_from_slice(&largest);
        head[G..].copy_from_slice(&total);
    }

    /// The scaled queries, in f32, padded with zeros to whole registers.
    #[inline(always)]
    fn widen_queries<S: Simd>(&self, s: S, queries: &mut [f32], width: usize) {
        let (a, factor) = (self.a, s.splat(self.a.scale));
        let group = queries.len() / width;
        for g in 0..group {
            let q = a.q.row(self.kv_head * group + g, 0, a.d);
            for (c, len) in pieces(a.d, S::LANES) {
                let v = s.mul(T::load_part(s, &q[c..], len), factor);
                s.store(v, &mut queries[g * width + c..]);
            }
        }
    }
}

/// `scores[g][i]` = query g times key `first + i`.
#[inline(always)]
fn score<S: Simd, T: Elem, C: Cached, const G: usize>(
    s: S,
    a: &Attention<'_, T, C>,
    (kv_head, first, count): (usize, usize, usize),
    (queries, width): (&[f32], usize),
    scores: &mut [[f32; CHUNK]; G],
) {
    let mut i = 0;
    while i < count {
        // Keys beyond the last repeat it: their scores are not used.
        let row = |j: usize| a.key(kv_head, first + (i + j).min(count - 1));
        let keys = [row(0), row(1), row(2), row(3)];
        let mut sums = [[s.splat(0.0); QUAD]; G];
        let mut c = 0;
        while c < a.d {
            let len = S::LANES.min(a.d - c);
            let mut k = [s.splat(0.0); QUAD];
            for j in 0..QUAD {
                k[j] = C::load_codes(s, &keys[j].0[c..], len);
            }
            for g in 0..G {
                let q = s.load(&queries[g * width + c..]);
                for j in 0..QUAD {
                    sums[g][j] = s.fma(k[j], q, sums[g][j]);
                }
            }
            c += S::LANES;
        }
        for g in 0..G {
            let mut four = s.sum4(sums[g]);
            if C::TAIL > 0 {
                for j in 0..QUAD {
                    four[j] *= keys[j].1;
                }
            }
            scores[g][i..i + QUAD].copy_from_slice(&four);
        }
        i += QUAD;
    }
}

#[inline(always)]
fn largest_of<S: Simd>(s: S, scores: &[f32; CHUNK], count: usize, before: f32) -> f32 {
    let mut max = s.splat(before);
    let mut i = 0;
    while i + S::LANES <= count {
        max = s.max(s.load(&scores[i..]), max);
        i += S::LANES;
    }
    let mut max = s.max_lane(max);
    while i < count {
        if scores[i] > max {
            max = scores[i];
        }
        i += 1;
    }
    max
}

/// Replaces the scores by `e^(score - max)` (those beyond `count` by anything) and returns the sum.
#[inline(always)]
fn exponentials<S: Simd>(s: S, scores: &mut [f32; CHUNK], count: usize, max: f32) -> f32 {
    for score in &mut scores[count..] {
        *score = f32::NEG_INFINITY;
    }
    let (max, mut sum) = (s.splat(max), s.splat(0.0));
    let mut i = 0;
    while i < count {
        let e = s.exp_or_zero(s.sub(s.load(&scores[i..]), max));
        sum = s.add(sum, e);
        s.store(e, &mut scores[i..]);
        i += S::LANES;
    }
    s.sum(sum)
}

#[inline(always)]
fn scale<S: Simd>(s: S, x: &mut [f32], factor: f32) {
    let factor = s.splat(factor);
    for (i, len) in pieces(x.len(), S::LANES) {
        let v = s.mul(f32::load_part(s, &x[i..], len), factor);
        f32::store_part(s, v, &mut x[i..], len);
    }
}

/// `sums[g][c]` += sum over keys of `weights[g][i] * v[first + i][c]`.
#[inline(always)]
fn weigh<S: Simd, T: Elem, C: Cached, const G: usize, const N: usize>(
    s: S,
    a: &Attention<'_, T, C>,
    at: (usize, usize, usize),
    weights: &[[f32; CHUNK]; G],
    sums: &mut [f32],
) {
    let mut c = 0;
    while c + N * S::LANES <= a.dv {
        weigh_tile::<S, T, C, G, N>(s, a, at, c, S::LANES, weights, sums);
        c += N * S::LANES;
    }
    while c < a.dv {
        weigh_tile::<S, T, C, G, 1>(s, a, at, c, S::LANES.min(a.dv - c), weights, sums);
        c += S::LANES;
    }
}

/// Columns `c..` of the weighted sum: `N` registers, the last of `len` columns.
#[inline(always)]
fn weigh_tile<S: Simd, T: Elem, C: Cached, const G: usize, const N: usize>(
    s: S,
    a: &Attention<'_, T, C>,
    (kv_head, first, count): (usize, usize, usize),
    c: usize,
    len: usize,
    weights: &[[f32; CHUNK]; G],
    sums: &mut [f32],
) {
    let mut acc = [[s.splat(0.0); N]; G];
    for g in 0..G {
        for n in 0..N {
            acc[g][n] = f32::load_part(s, &sums[g * a.dv + c + n * S::LANES..], len);
        }
    }
    let mut i = 0;
    while i < count {
        let (row, scale) = a.value(kv_head, first + i);
        let row = &row[c..];
        let mut v = [s.splat(0.0); N];
        for n in 0..N {
            v[n] = C::load_codes(s, &row[n * S::LANES..], len);
        }
        for g in 0..G {
            let weight = if C::TAIL > 0 {
                weights[g][i] * scale
            } else {
                weights[g][i]
            };
            let weight = s.splat(weight);
            for n in 0..N {
                acc[g][n] = s.fma(weight, v[n], acc[g][n]);
            }
        }
        i += 1;
    }
    for g in 0..G {
        for n in 0..N {
            let out = &mut sums[g * a.dv + c + n * S::LANES..];
            f32::store_part(s, acc[g][n], out, len);
        }
    }
}

/// Joins what the tasks found for one query.
struct Join<'a, T> {
    parts: &'a [f32],
    part: usize,
    group: usize,
    g: usize,
    sink: f32,
    row: &'a mut [T],
}

impl<T: Elem> Kernel for Join<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (g, group, dv) = (self.g, self.group, self.row.len());
        let (mut max, mut total) = (self.sink.max(f32::MIN), 0.0);
        for part in self.parts.chunks_exact(self.part) {
            max = max.max(part[g]);
        }
        for part in self.parts.chunks_exact(self.part) {
            total += part[group + g] * (part[g] - max).exp();
        }
        total += (self.sink - max).exp();
        // A query that sees nothing has sum 0: it then gets zeros.
        let inverse = 1.0 / total.max(f32::MIN_POSITIVE);
        for (c, len) in pieces(dv, S::LANES) {
            let mut sum = s.splat(0.0);
            for part in self.parts.chunks_exact(self.part) {
                let weight = s.splat((part[g] - max).exp() * inverse);
                let values = &part[2 * group + g * dv + c..];
                sum = s.fma(f32::load_part(s, values, len), weight, sum);
            }
            T::store_part(s, sum, &mut self.row[c..], len);
        }
    }
}
