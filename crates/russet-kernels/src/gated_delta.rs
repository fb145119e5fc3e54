//! The recurrence of the gated delta rule (linear attention) over one state matrix, in f32.
//!
//! With S the state [dk, dv], each position does
//! S <- exp(g) S;  e = beta (v - S^T k);  S <- S + k e^T;  o = S^T q.
//! (Yang et al., "Gated Delta Networks", 2024; the `gated_delta_update` composite of contract B.)
//!
//! Few positions are done like that ([`recurrent`]). Many go in chunks ([`chunked`]), in which matrices are multiplied: with c_i the sum of
//! g up to position i of the chunk and S the state before it,
//! e_i = beta_i (v_i - exp(c_i) S^T k_i - sum over j < i of exp(c_i - c_j) (k_j . k_i) e_j), solved from the first to the last;
//! o_i = exp(c_i) S^T q_i + sum over j <= i of exp(c_i - c_j) (k_j . q_i) e_j;
//! S <- exp(c_n) S + sum over j of exp(c_n - c_j) k_j e_j^T.

use crate::elem::Elem;
use crate::gemm::{self, Store, Tile};
use crate::isa::Isa;
use crate::norm;
use crate::scratch;
use crate::simd::{Kernel, Simd};

/// A run of positions of one head. All are f32, row-major; queries and keys already normalised and scaled.
#[derive(Clone, Copy, Debug)]
pub struct GatedDelta<'a> {
    /// Queries [m, dk].
    pub q: &'a [f32],
    /// Keys [m, dk].
    pub k: &'a [f32],
    /// Values [m, dv].
    pub v: &'a [f32],
    /// Logarithms of the decay [m].
    pub g: &'a [f32],
    /// Step sizes [m].
    pub beta: &'a [f32],
    /// Width of queries and keys.
    pub dk: usize,
    /// Width of values.
    pub dv: usize,
}

impl GatedDelta<'_> {
    fn check(&self, state: &[f32], out: &[f32]) {
        let m = self.g.len();
        let (keys, values) = (m.checked_mul(self.dk), m.checked_mul(self.dv));
        let fits = [Some(self.q.len()), Some(self.k.len())] == [keys; 2]
            && [Some(self.v.len()), Some(out.len())] == [values; 2]
            && self.beta.len() == m
            && Some(state.len()) == self.dk.checked_mul(self.dv);
        assert!(fits, "gated_delta: lengths");
    }
}

/// Advances `state` [dk, dv] over the positions of `a`, one after the other; writes each position's result to `out` [m, dv].
///
/// # Panics
/// If the lengths do not fit.
pub fn recurrent(a: &GatedDelta<'_>, state: &mut [f32], out: &mut [f32]) {
    a.check(state, out);
    if !out.is_empty() {
        Isa::best().run(Recurrence { a, state, out });
    }
}

/// As [`recurrent`], many positions at a time.
///
/// # Panics
/// If the lengths do not fit.
pub fn chunked(a: &GatedDelta<'_>, state: &mut [f32], out: &mut [f32]) {
    a.check(state, out);
    if !out.is_empty() {
        Isa::best().run(Chunks { a, state, out });
    }
}

/// Divides every row of `width` by its length, and multiplies it with `scale`; `eps` is added to squared lengths.
pub fn unit_rows(rows: &mut [f32], width: usize, eps: f32, scale: f32) {
    if width > 0 {
        Isa::best().run(Units {
            rows,
            width,
            eps,
            scale,
        });
    }
}

struct Units<'a> {
    rows: &'a mut [f32],
    width: usize,
    eps: f32,
    scale: f32,
}

impl Kernel for Units<'_> {
    type Out = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let mut first = 0;
        while first + self.width <= self.rows.len() {
            let row = &mut self.rows[first..first + self.width];
            let length = (norm::sum_of_squares(s, row) + self.eps).sqrt();
            let factor = s.splat(self.scale / length);
            let mut at = 0;
            while at < row.len() {
                let len = S::LANES.min(row.len() - at);
                let v = s.mul(f32::load_part(s, &row[at..], len), factor);
                f32::store_part(s, v, &mut row[at..], len);
                at += S::LANES;
            }
            first += self.width;
        }
    }
}

struct Recurrence<'a> {
    a: &'a GatedDelta<'a>,
    state: &'a mut [f32],
    out: &'a mut [f32],
}

impl Kernel for Recurrence<'_> {
    type Out = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { a, state, out } = self;
        let mut at = 0;
        while at < a.g.len() {
            let out = &mut out[at * a.dv..(at + 1) * a.dv];
            let mut c = 0;
            while c < a.dv {
                let left = a.dv - c;
                if left >= 4 * S::LANES {
                    columns::<S, 4>(s, a, at, (state, c, S::LANES), out);
                    c += 4 * S::LANES;
                } else {
                    let len = left.min(S::LANES);
                    columns::<S, 1>(s, a, at, (state, c, len), out);
                    c += len;
                }
            }
            at += 1;
        }
    }
}

/// One position for `N` registers of columns of the state from column `c` on, `len` lanes of each.
#[inline(always)]
fn columns<S: Simd, const N: usize>(
    s: S,
    a: &GatedDelta<'_>,
    at: usize,
    (state, c, len): (&mut [f32], usize, usize),
    out: &mut [f32],
) {
    let (q, k) = (&a.q[at * a.dk..][..a.dk], &a.k[at * a.dk..][..a.dk]);
    let v = &a.v[at * a.dv + c..];
    let (decay, beta) = (s.splat(a.g[at].exp()), s.splat(a.beta[at]));
    let mut seen = [s.splat(0.0); N];
    let mut r = 0;
    while r < a.dk {
        let (row, k) = (&state[r * a.dv + c..], s.splat(k[r]));
        for i in 0..N {
            let decayed = s.mul(f32::load_part(s, &row[i * S::LANES..], len), decay);
            seen[i] = s.fma(decayed, k, seen[i]);
        }
        r += 1;
    }
    let mut errors = [s.splat(0.0); N];
    for i in 0..N {
        let v = f32::load_part(s, &v[i * S::LANES..], len);
        errors[i] = s.mul(s.sub(v, seen[i]), beta);
    }
    let mut result = [s.splat(0.0); N];
    let mut r = 0;
    while r < a.dk {
        let row = &mut state[r * a.dv + c..];
        let (k, q) = (s.splat(k[r]), s.splat(q[r]));
        for i in 0..N {
            let decayed = s.mul(f32::load_part(s, &row[i * S::LANES..], len), decay);
            let updated = s.fma(k, errors[i], decayed);
            f32::store_part(s, updated, &mut row[i * S::LANES..], len);
            result[i] = s.fma(updated, q, result[i]);
        }
        r += 1;
    }
    for i in 0..N {
        f32::store_part(s, result[i], &mut out[c + i * S::LANES..], len);
    }
}

/// Positions of a chunk: a multiple of every panel's width.
const CHUNK: usize = 32;

struct Chunks<'a> {
    a: &'a GatedDelta<'a>,
    state: &'a mut [f32],
    out: &'a mut [f32],
}

/// Working memory of a chunk. Panels are [`gemm::panel_width`] columns wide and lie one after the other; rows and columns that
/// do not exist are zero.
struct Memory<'a> {
    /// Panels of the state, each [dk, width].
    state: &'a mut [f32],
    /// Queries and keys [CHUNK, dk].
    q: &'a mut [f32],
    k: &'a mut [f32],
    /// Panels of keys, turned: each [dk, width].
    turned: &'a mut [f32],
    /// Products of keys with keys, of queries with keys: [CHUNK, CHUNK].
    kk: &'a mut [f32],
    qk: &'a mut [f32],
    /// A panel of what the state gives for keys, then of errors: [CHUNK, width].
    e: &'a mut [f32],
    /// A panel of results [CHUNK, width].
    o: &'a mut [f32],
}

impl<'a> Memory<'a> {
    fn new(mut rest: &'a mut [f32], sizes: [usize; 8]) -> Self {
        let mut next = |n: usize| {
            let (part, tail) = std::mem::take(&mut rest).split_at_mut(n);
            rest = tail;
            part
        };
        Self {
            state: next(sizes[0]),
            q: next(sizes[1]),
            k: next(sizes[2]),
            turned: next(sizes[3]),
            kk: next(sizes[4]),
            qk: next(sizes[5]),
            e: next(sizes[6]),
            o: next(sizes[7]),
        }
    }
}

impl Kernel for Chunks<'_> {
    type Out = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { a, state, out } = self;
        let width = gemm::panel_width::<S>();
        // Rows of the micro-kernel come by fours.
        let (dk, panels) = (a.dk.next_multiple_of(4), a.dv.div_ceil(width));
        let rows = CHUNK * dk;
        let square = CHUNK * CHUNK;
        let sizes = [
            panels * dk * width,
            rows,
            rows,
            rows,
            square,
            square,
            CHUNK * width,
            CHUNK * width,
        ];
        let memory = &mut *scratch::floats(sizes.iter().sum());
        let mut memory = Memory::new(memory, sizes);
        to_panels(state, (a.dk, a.dv), (dk, width), memory.state);
        let mut first = 0;
        while first < a.g.len() {
            let n = CHUNK.min(a.g.len() - first);
            chunk(s, a, (first, n), &mut memory, out);
            first += n;
        }
        from_panels(memory.state, (dk, width), (a.dk, a.dv), state);
    }
}

/// `[dk, dv]` as panels `[rows, width]`.
#[inline(always)]
fn to_panels(
    state: &[f32],
    (dk, dv): (usize, usize),
    (rows, width): (usize, usize),
    panels: &mut [f32],
) {
    panels.fill(0.0);
    for (p, panel) in panels.chunks_exact_mut(rows * width).enumerate() {
        let len = width.min(dv - p * width);
        for r in 0..dk {
            panel[r * width..][..len].copy_from_slice(&state[r * dv + p * width..][..len]);
        }
    }
}

#[inline(always)]
fn from_panels(
    panels: &[f32],
    (rows, width): (usize, usize),
    (dk, dv): (usize, usize),
    state: &mut [f32],
) {
    for (p, panel) in panels.chunks_exact(rows * width).enumerate() {
        let len = width.min(dv - p * width);
        for r in 0..dk {
            state[r * dv + p * width..][..len].copy_from_slice(&panel[r * width..][..len]);
        }
    }
}

/// Rows of `width` as `rows` rows of `padded`.
#[inline(always)]
fn padded(from: &[f32], (rows, width): (usize, usize), padded: usize, to: &mut [f32]) {
    if rows * padded < to.len() || width < padded {
        to.fill(0.0);
    }
    for r in 0..rows {
        to[r * padded..][..width].copy_from_slice(&from[r * width..][..width]);
    }
}

/// What the decay does to the positions of a chunk.
struct Decay {
    /// exp(c_i).
    since: [f32; CHUNK],
    /// exp(c_n - c_i).
    until: [f32; CHUNK],
}

/// Positions `first..first + n`.
#[inline(always)]
fn chunk<S: Simd>(
    s: S,
    a: &GatedDelta<'_>,
    (first, n): (usize, usize),
    m: &mut Memory<'_>,
    out: &mut [f32],
) {
    let width = gemm::panel_width::<S>();
    let dk = m.q.len() / CHUNK;
    padded(&a.q[first * a.dk..], (n, a.dk), dk, m.q);
    padded(&a.k[first * a.dk..], (n, a.dk), dk, m.k);
    pairs(s, m, dk);
    let decay = decays(s, a, (first, n), m.kk, m.qk);
    scale_rows(s, m.q, dk, &decay.since);
    let mut p = 0;
    while p < m.state.len() / (dk * width) {
        panel(s, a, (first, n, p * width), &decay, m, dk);
        let len = width.min(a.dv - p * width);
        for i in 0..n {
            let out = &mut out[(first + i) * a.dv + p * width..][..len];
            out.copy_from_slice(&m.o[i * width..][..len]);
        }
        p += 1;
    }
}

/// Rows without gaps.
#[inline(always)]
fn rows(data: &[f32], columns: usize) -> Tile<'_> {
    Tile {
        data,
        row_stride: columns,
        column_stride: 1,
        rows: CHUNK,
        columns,
    }
}

/// Products of all pairs of positions.
#[inline(always)]
fn pairs<S: Simd>(s: S, m: &mut Memory<'_>, dk: usize) {
    let width = gemm::panel_width::<S>();
    let mut p = 0;
    while p < CHUNK / width {
        let turned = &mut m.turned[p * dk * width..(p + 1) * dk * width];
        gemm::pack(s, &m.k[p * width * dk..], dk, width, turned);
        let to = (&mut m.kk[p * width..], CHUNK);
        gemm::multiply::<S, f32, true>(s, rows(m.k, dk), turned, width, to, Store::Replace);
        let to = (&mut m.qk[p * width..], CHUNK);
        gemm::multiply::<S, f32, true>(s, rows(m.q, dk), turned, width, to, Store::Replace);
        p += 1;
    }
}

/// Weighs the products of pairs: those of keys by beta and the decay between the two, none with itself or later ones; those of
/// queries by the decay, none with later keys.
#[inline(always)]
fn decays<S: Simd>(
    s: S,
    a: &GatedDelta<'_>,
    (first, n): (usize, usize),
    kk: &mut [f32],
    qk: &mut [f32],
) -> Decay {
    let mut sums = [0.0; CHUNK];
    let mut sum = 0.0;
    for (i, place) in sums.iter_mut().enumerate() {
        sum += if i < n { a.g[first + i] } else { 0.0 };
        *place = sum;
    }
    let mut decay = Decay {
        since: [0.0; CHUNK],
        until: [0.0; CHUNK],
    };
    let mut j = 0;
    while j < CHUNK {
        let c = s.load(&sums[j..]);
        s.store(s.exp(c), &mut decay.since[j..]);
        s.store(s.exp(s.sub(s.splat(sum), c)), &mut decay.until[j..]);
        let mut i = j;
        while i < n {
            let between = s.exp(s.sub(s.splat(sums[i]), c));
            let beta = s.splat(a.beta[first + i]);
            let at = i * CHUNK + j;
            s.store(
                s.mul(s.mul(s.load(&kk[at..]), between), beta),
                &mut kk[at..],
            );
            s.store(s.mul(s.load(&qk[at..]), between), &mut qk[at..]);
            i += 1;
        }
        j += S::LANES;
    }
    for i in 0..CHUNK {
        kk[i * CHUNK + i..(i + 1) * CHUNK].fill(0.0);
        qk[i * CHUNK + i + 1..(i + 1) * CHUNK].fill(0.0);
    }
    decay
}

/// Multiplies every row of `width` by its factor.
#[inline(always)]
fn scale_rows<S: Simd>(s: S, rows: &mut [f32], width: usize, factors: &[f32; CHUNK]) {
    let mut row = 0;
    while row < CHUNK {
        let (x, factor) = (
            &mut rows[row * width..(row + 1) * width],
            s.splat(factors[row]),
        );
        let mut at = 0;
        while at < width {
            let len = S::LANES.min(width - at);
            let v = s.mul(f32::load_part(s, &x[at..], len), factor);
            f32::store_part(s, v, &mut x[at..], len);
            at += S::LANES;
        }
        row += 1;
    }
}

/// Columns `column..` of the values of a chunk: results to `m.o`, and the state advanced.
#[inline(always)]
fn panel<S: Simd>(
    s: S,
    a: &GatedDelta<'_>,
    (first, n, column): (usize, usize, usize),
    decay: &Decay,
    m: &mut Memory<'_>,
    dk: usize,
) {
    let width = gemm::panel_width::<S>();
    let state = &mut m.state[column * dk..(column + width) * dk];
    let to = (&mut *m.e, width);
    gemm::multiply::<S, f32, true>(s, rows(m.k, dk), state, width, to, Store::Replace);
    let to = (&mut *m.o, width);
    gemm::multiply::<S, f32, true>(s, rows(m.q, dk), state, width, to, Store::Replace);
    solve(s, a, (first, n, column), decay, m.kk, m.e);
    let to = (&mut *m.o, width);
    gemm::multiply::<S, f32, true>(s, rows(m.qk, CHUNK), m.e, width, to, Store::Add);
    // Errors as they enter the state.
    scale_rows(s, m.e, width, &decay.until);
    let all = s.splat(decay.since[CHUNK - 1]);
    let mut at = 0;
    while at < state.len() {
        s.store(s.mul(s.load(&state[at..]), all), &mut state[at..]);
        at += S::LANES;
    }
    let keys = Tile {
        data: m.k,
        row_stride: 1,
        column_stride: dk,
        rows: dk,
        columns: CHUNK,
    };
    gemm::multiply::<S, f32, true>(s, keys, m.e, width, (state, width), Store::Add);
}

/// Makes of what the state gives for the keys, `e`, the errors, from the first to the last.
#[inline(always)]
fn solve<S: Simd>(
    s: S,
    a: &GatedDelta<'_>,
    (first, n, column): (usize, usize, usize),
    decay: &Decay,
    kk: &[f32],
    e: &mut [f32],
) {
    let width = gemm::panel_width::<S>();
    let mut i = 0;
    while i < n {
        let (since, beta) = (s.splat(decay.since[i]), s.splat(a.beta[first + i]));
        let v = &a.v[(first + i) * a.dv..(first + i + 1) * a.dv];
        // Two sums for even and odd positions, of two registers each.
        let mut sums = [[s.splat(0.0); 2]; 2];
        for r in 0..2 {
            let at = column + r * S::LANES;
            let value = if at < a.dv {
                f32::load_part(s, &v[at..], S::LANES.min(a.dv - at))
            } else {
                s.splat(0.0)
            };
            let seen = s.mul(s.load(&e[i * width + r * S::LANES..]), since);
            sums[0][r] = s.mul(s.sub(seen, value), beta);
        }
        let weights = &kk[i * CHUNK..(i + 1) * CHUNK];
        let mut j = 0;
        // The weight of position i itself is zero.
        while j <= i {
            for odd in 0..2 {
                let weight = s.splat(weights[(j + odd).min(CHUNK - 1)]);
                let at = (j + odd).min(CHUNK - 1) * width;
                if j + odd < i {
                    for r in 0..2 {
                        let earlier = s.load(&e[at + r * S::LANES..]);
                        sums[odd][r] = s.fma(weight, earlier, sums[odd][r]);
                    }
                }
            }
            j += 2;
        }
        for r in 0..2 {
            let error = s.neg(s.add(sums[0][r], sums[1][r]));
            s.store(error, &mut e[i * width + r * S::LANES..]);
        }
        i += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;

    /// The recurrence as written above, in f64.
    fn reference(a: &GatedDelta<'_>, state: &mut [f64]) -> Vec<f64> {
        let mut out = Vec::new();
        for at in 0..a.g.len() {
            let (q, k, v) = (&a.q[at * a.dk..], &a.k[at * a.dk..], &a.v[at * a.dv..]);
            let decay = f64::from(a.g[at]).exp();
            state.iter_mut().for_each(|x| *x *= decay);
            for c in 0..a.dv {
                let column = |r: usize| r * a.dv + c;
                let seen: f64 = (0..a.dk).map(|r| state[column(r)] * f64::from(k[r])).sum();
                let error = f64::from(a.beta[at]) * (f64::from(v[c]) - seen);
                (0..a.dk).for_each(|r| state[column(r)] += f64::from(k[r]) * error);
                out.push((0..a.dk).map(|r| state[column(r)] * f64::from(q[r])).sum());
            }
        }
        out
    }

    #[test]
    fn both_forms_match_f64() {
        let mut random = Random::new(12);
        for (m, dk, dv) in [
            (1, 1, 1),
            (5, 4, 20),
            (9, 16, 16),
            (3, 32, 70),
            (77, 24, 40),
            (64, 30, 64),
            (100, 7, 33),
        ] {
            let mut data = |n: usize| random.floats(n);
            let (q, k, v) = (data(m * dk), data(m * dk), data(m * dv));
            let (mut g, beta, start) = (data(m), data(m), data(dk * dv));
            // Mostly decays, some of which leave nothing, and a little growth.
            g.iter_mut().enumerate().for_each(|(i, g)| {
                *g = if i % 17 == 5 { -90.0 } else { *g - 0.8 };
            });
            let k: Vec<f32> = k.iter().map(|x| x / (dk as f32).sqrt()).collect();
            let a = GatedDelta {
                q: &q,
                k: &k,
                v: &v,
                g: &g,
                beta: &beta,
                dk,
                dv,
            };
            let mut want_state: Vec<f64> = start.iter().map(|x| f64::from(*x)).collect();
            let want = reference(&a, &mut want_state);
            for (isa, chunks) in Isa::available()
                .iter()
                .flat_map(|i| [(i, false), (i, true)])
            {
                let (mut state, mut out) = (start.clone(), vec![f32::NAN; m * dv]);
                let (to, results) = (&mut state[..], &mut out[..]);
                if chunks {
                    isa.run(Chunks {
                        a: &a,
                        state: to,
                        out: results,
                    });
                } else {
                    isa.run(Recurrence {
                        a: &a,
                        state: to,
                        out: results,
                    });
                }
                let pairs = out.iter().zip(&want).chain(state.iter().zip(&want_state));
                for (got, want) in pairs {
                    let error = (f64::from(*got) - want).abs();
                    let near = error <= 1e-4 * want.abs().max(1.0);
                    assert!(near, "{} {m} {dk} {dv} {chunks}: {got} {want}", isa.name());
                }
            }
        }
    }

    #[test]
    fn unit_rows_have_their_length() {
        for isa in Isa::available() {
            let mut rows = vec![3.0, 4.0, 0.0, 1.0, 2.0, 2.0];
            isa.run(Units {
                rows: &mut rows,
                width: 3,
                eps: 0.0,
                scale: 2.0,
            });
            let want = [1.2, 1.6, 0.0, 2.0 / 3.0, 4.0 / 3.0, 4.0 / 3.0];
            let near = rows.iter().zip(want).all(|(x, y)| (x - y).abs() < 1e-6);
            assert!(near, "{}: {rows:?}", isa.name());
        }
    }

    #[test]
    fn without_step_or_decay_the_state_only_answers() {
        let (q, g) = (vec![1.0; 4], vec![0.0; 2]);
        let a = GatedDelta {
            q: &q,
            k: &q,
            v: &q,
            g: &g,
            beta: &g,
            dk: 2,
            dv: 2,
        };
        for run in [recurrent, chunked] {
            let (mut state, mut out) = (vec![0.5; 4], vec![0.0; 4]);
            run(&a, &mut state, &mut out);
            assert_eq!((out, state), (vec![1.0; 4], vec![0.5; 4]));
        }
    }
}
