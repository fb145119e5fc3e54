//! The recurrence of the gated delta rule (linear attention), one state matrix per head, in f32.
//!
//! With S the state [dk, dv] of a head, each position does
//! S <- exp(g) S;  e = beta (v - k^T S);  S <- S + k e^T;  o = q^T S.
//! (Yang et al., "Gated Delta Networks", 2024; the `gated_delta_update` composite of contract B.)

use crate::elem::Elem;
use crate::isa::Isa;
use crate::simd::{Kernel, Simd, pieces};
use crate::threads::Pool;

/// The inputs of a run of positions. All are f32, row-major; queries and keys already normalised and scaled.
#[derive(Clone, Copy, Debug)]
pub struct GatedDelta<'a> {
    /// Queries [heads, m, dk].
    pub q: &'a [f32],
    /// Keys [heads, m, dk].
    pub k: &'a [f32],
    /// Values [heads, m, dv].
    pub v: &'a [f32],
    /// Logarithms of the decay [heads, m].
    pub g: &'a [f32],
    /// Step sizes [heads, m].
    pub beta: &'a [f32],
    /// Heads.
    pub heads: usize,
    /// Positions.
    pub m: usize,
    /// Width of queries and keys.
    pub dk: usize,
    /// Width of values.
    pub dv: usize,
}

impl GatedDelta<'_> {
    fn fits(&self, state: &[f32], out: &[f32]) -> bool {
        let size = |dims: &[usize]| dims.iter().try_fold(self.heads, |n, d| n.checked_mul(*d));
        let (keys, values, scalars) = (
            size(&[self.m, self.dk]),
            size(&[self.m, self.dv]),
            size(&[self.m]),
        );
        let lengths = [
            (self.q, keys),
            (self.k, keys),
            (self.v, values),
            (self.g, scalars),
            (self.beta, scalars),
        ];
        lengths.iter().all(|(x, n)| Some(x.len()) == *n)
            && Some(out.len()) == values
            && Some(state.len()) == size(&[self.dk, self.dv])
    }
}

/// Advances `state` [heads, dk, dv] over the m positions of `a`; writes each position's result to `out` [heads, m, dv].
///
/// # Panics
/// If the lengths do not fit.
pub fn gated_delta(pool: &Pool, a: &GatedDelta<'_>, state: &mut [f32], out: &mut [f32]) {
    assert!(a.fits(state, out), "gated_delta: lengths");
    if a.m == 0 || a.dv == 0 || a.dk == 0 {
        return out.fill(0.0);
    }
    let chunks = ((state, a.dk * a.dv), (out, a.m * a.dv));
    pool.for_chunks_mut2(chunks.0, chunks.1, |head, state, out| {
        Isa::best().run(Head {
            a,
            head,
            state,
            out,
        });
    });
}

struct Head<'a> {
    a: &'a GatedDelta<'a>,
    head: usize,
    state: &'a mut [f32],
    out: &'a mut [f32],
}

impl Kernel for Head<'_> {
    type Out = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self {
            a,
            head,
            state,
            out,
        } = self;
        for (i, out) in out.chunks_exact_mut(a.dv).enumerate() {
            let at = head * a.m + i;
            let (q, k) = (&a.q[at * a.dk..][..a.dk], &a.k[at * a.dk..][..a.dk]);
            let v = &a.v[at * a.dv..][..a.dv];
            for (c, len) in pieces(a.dv, S::LANES) {
                let scalars = (s.splat(a.g[at].exp()), s.splat(a.beta[at]));
                step(
                    s,
                    (q, k, &v[c..]),
                    scalars,
                    (state, a.dv, c),
                    &mut out[c..],
                    len,
                );
            }
        }
    }
}

/// One position for `len` columns of the state, from column `c` on.
#[inline(always)]
fn step<S: Simd>(
    s: S,
    (q, k, v): (&[f32], &[f32], &[f32]),
    (decay, beta): (S::V, S::V),
    (state, dv, c): (&mut [f32], usize, usize),
    out: &mut [f32],
    len: usize,
) {
    let mut seen = s.splat(0.0);
    for (row, k) in state.chunks_exact_mut(dv).zip(k) {
        let decayed = s.mul(f32::load_part(s, &row[c..], len), decay);
        f32::store_part(s, decayed, &mut row[c..], len);
        seen = s.fma(decayed, s.splat(*k), seen);
    }
    let error = s.mul(s.sub(f32::load_part(s, v, len), seen), beta);
    let mut result = s.splat(0.0);
    for ((row, k), q) in state.chunks_exact_mut(dv).zip(k).zip(q) {
        let updated = s.fma(s.splat(*k), error, f32::load_part(s, &row[c..], len));
        f32::store_part(s, updated, &mut row[c..], len);
        result = s.fma(updated, s.splat(*q), result);
    }
    f32::store_part(s, result, out, len);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;

    /// The recurrence as written above, in f64.
    fn reference(a: &GatedDelta<'_>, head: usize, state: &mut [f64]) -> Vec<f64> {
        let mut out = Vec::new();
        for at in head * a.m..(head + 1) * a.m {
            let (q, k, v) = (&a.q[at * a.dk..], &a.k[at * a.dk..], &a.v[at * a.dv..]);
            state
                .iter_mut()
                .for_each(|x| *x *= f64::from(a.g[at]).exp());
            for c in 0..a.dv {
                let seen: f64 = (0..a.dk)
                    .map(|r| state[r * a.dv + c] * f64::from(k[r]))
                    .sum();
                let error = f64::from(a.beta[at]) * (f64::from(v[c]) - seen);
                (0..a.dk).for_each(|r| state[r * a.dv + c] += f64::from(k[r]) * error);
                out.push(
                    (0..a.dk)
                        .map(|r| state[r * a.dv + c] * f64::from(q[r]))
                        .sum(),
                );
            }
        }
        out
    }

    #[test]
    fn the_recurrence_matches_f64() {
        let mut random = Random::new(12);
        for (heads, m, dk, dv) in [(1, 1, 1, 1), (3, 5, 4, 20), (2, 9, 16, 16), (4, 3, 32, 70)] {
            let mut data = |n: usize| random.floats(n);
            let (q, k, v) = (
                data(heads * m * dk),
                data(heads * m * dk),
                data(heads * m * dv),
            );
            let (g, beta, start) = (data(heads * m), data(heads * m), data(heads * dk * dv));
            let k: Vec<f32> = k.iter().map(|x| x / (dk as f32).sqrt()).collect();
            let a = GatedDelta {
                q: &q,
                k: &k,
                v: &v,
                g: &g,
                beta: &beta,
                heads,
                m,
                dk,
                dv,
            };
            for isa in Isa::available() {
                let (mut state, mut out) = (start.clone(), vec![f32::NAN; heads * m * dv]);
                let parts = state.chunks_mut(dk * dv).zip(out.chunks_mut(m * dv));
                for (head, (state, out)) in parts.enumerate() {
                    let mut want_state: Vec<f64> = state.iter().map(|x| f64::from(*x)).collect();
                    let want = reference(&a, head, &mut want_state);
                    isa.run(Head {
                        a: &a,
                        head,
                        state,
                        out,
                    });
                    let pairs = out.iter().zip(&want).chain(state.iter().zip(&want_state));
                    for (got, want) in pairs {
                        let error = (f64::from(*got) - want).abs();
                        assert!(
                            error <= 1e-4 * want.abs().max(1.0),
                            "{}: {got} {want}",
                            isa.name()
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn heads_are_shared_out() {
        let (q, g) = (vec![1.0; 12], vec![0.0; 6]);
        let a = GatedDelta {
            q: &q,
            k: &q,
            v: &q,
            g: &g,
            beta: &g,
            heads: 3,
            m: 2,
            dk: 2,
            dv: 2,
        };
        let (mut state, mut out) = (vec![0.5; 12], vec![0.0; 12]);
        gated_delta(&Pool::new(2), &a, &mut state, &mut out);
        assert_eq!(
            out, [1.0; 12],
            "without step or decay the state only answers"
        );
    }
}
