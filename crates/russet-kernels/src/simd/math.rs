//! Elementary functions on vectors, accurate to about one unit in the last place of f32.

use super::Simd;

const LOG2_E: f32 = std::f32::consts::LOG2_E;
/// ln 2 in two parts: the first has few bits, so that n * LN2_HI is exact.
const LN2_HI: f32 = 0.693_359_4;
const LN2_LO: f32 = -2.121_944_4e-4;
/// Minimax coefficients of (e^r - 1 - r) / r^2 on |r| <= ln2 / 2, highest power first (Cephes `expf`).
const EXP: [f32; 6] = [
    1.987_569_1e-4,
    1.398_2e-3,
    8.333_452e-3,
    4.166_579_6e-2,
    0.166_666_66,
    0.5,
];
/// Coefficients of (tanh x - x) / x^3 in x^2 for |x| < 0.625, highest power first (Cephes `tanhf`).
const TANH: [f32; 5] = [
    -5.704_988_7e-3,
    2.063_909e-2,
    -5.373_971e-2,
    0.133_314_42,
    -0.333_332_8,
];

#[inline(always)]
fn polynomial<S: Simd, const N: usize>(s: S, x: S::V, coefficients: [f32; N]) -> S::V {
    let mut p = s.splat(coefficients[0]);
    for c in &coefficients[1..] {
        p = s.fma(p, x, s.splat(*c));
    }
    p
}

#[inline(always)]
pub(super) fn exp<S: Simd>(s: S, x: S::V) -> S::V {
    // Beyond these bounds the result is infinity or zero; NaN passes through (second operand).
    let x = s.max(s.splat(-110.0), x);
    let x = s.min(s.splat(100.0), x);
    let n = s.round_int(s.mul(x, s.splat(LOG2_E)));
    let r = s.fma(n, s.splat(-LN2_HI), x);
    let r = s.fma(n, s.splat(-LN2_LO), r);
    let p = polynomial(s, r, EXP);
    let p = s.fma(s.mul(r, r), p, s.add(r, s.splat(1.0)));
    s.scale2(p, n)
}

/// Below this e^x is no longer a normal number.
const LEAST_NORMAL: f32 = -87.3;

#[inline(always)]
pub(super) fn exp_or_zero<S: Simd>(s: S, x: S::V) -> S::V {
    let least = s.splat(LEAST_NORMAL);
    s.select(s.lt(x, least), s.splat(0.0), exp(s, s.max(least, x)))
}

#[inline(always)]
pub(super) fn sigmoid<S: Simd>(s: S, x: S::V) -> S::V {
    // e^-|x| cannot overflow, and keeps the far negative side's relative precision.
    let one = s.splat(1.0);
    let e = exp(s, s.neg(s.abs(x)));
    s.div(s.select(s.lt(x, s.splat(0.0)), e, one), s.add(one, e))
}

#[inline(always)]
pub(super) fn tanh<S: Simd>(s: S, x: S::V) -> S::V {
    let (one, two) = (s.splat(1.0), s.splat(2.0));
    let a = s.abs(x);
    let e = exp(s, s.mul(a, two));
    let large = s.sub(one, s.div(two, s.add(e, one)));
    let large = s.select(s.lt(x, s.splat(0.0)), s.neg(large), large);
    let square = s.mul(x, x);
    let small = s.fma(s.mul(square, x), polynomial(s, square, TANH), x);
    s.select(s.lt(a, s.splat(0.625)), small, large)
}

#[cfg(test)]
mod tests {
    use crate::isa::Isa;
    use crate::simd::{Kernel, Simd, pieces};

    struct Apply<'a>(&'a str, &'a [f32], &'a mut [f32]);

    impl Kernel for Apply<'_> {
        type Out = ();
        #[inline(always)]
        fn run<S: Simd>(self, s: S) {
            for (i, len) in pieces(self.1.len(), S::LANES) {
                assert_eq!(len, S::LANES);
                let v = s.load(&self.1[i..]);
                let y = match self.0 {
                    "exp" => s.exp(v),
                    "sigmoid" => s.sigmoid(v),
                    "exp_or_zero" => s.exp_or_zero(v),
                    _ => s.tanh(v),
                };
                s.store(y, &mut self.2[i..]);
            }
        }
    }

    fn grid() -> Vec<f32> {
        let mut x: Vec<f32> = (0..65_536)
            .map(|i| (i as f32 - 32_768.0) * 0.003_1)
            .collect();
        x.extend([
            0.0,
            -0.0,
            1e-20,
            -1e-20,
            f32::INFINITY,
            f32::NEG_INFINITY,
            f32::NAN,
            88.8,
            -103.9,
            0.625,
            1.0,
            9.0,
        ]);
        x.extend([0.1; 4]);
        x
    }

    fn check(name: &str, exact: impl Fn(f64) -> f64, tolerance: f64) {
        let x = grid();
        for isa in Isa::available() {
            let mut y = vec![0.0; x.len()];
            isa.run(Apply(name, &x, &mut y));
            for (x, y) in x.iter().zip(y) {
                let want = exact(f64::from(*x));
                let near = (f64::from(y) - want).abs() <= tolerance * want.abs() + 1e-44;
                let same = want as f32 == y || want.is_nan() && y.is_nan();
                assert!(
                    near || same,
                    "{}: {name}({x}) = {y}, want {want}",
                    isa.name()
                );
            }
        }
    }

    #[test]
    fn exp_matches_f64() {
        check("exp", f64::exp, 1.5e-7);
    }

    #[test]
    fn exp_or_zero_has_no_subnormals() {
        let exact = |x: f64| if x < -87.3 { 0.0 } else { x.exp() };
        check("exp_or_zero", exact, 1.5e-7);
    }

    #[test]
    fn sigmoid_matches_f64() {
        check("sigmoid", |x| 1.0 / (1.0 + (-x).exp()), 3e-7);
    }

    #[test]
    fn tanh_matches_f64() {
        check("tanh", f64::tanh, 3e-7);
    }
}
