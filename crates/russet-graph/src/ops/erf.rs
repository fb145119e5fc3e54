//! `erf`: the error function.

use super::family::unary_op;
use crate::tensor::Scalar;

unary_op! {
    /// `2/√π ∫₀ˣ exp(-t²) dt`.
    Erf, "erf", "the error function", |x| Scalar::Float(erf(x.float()))
}

/// The error function to about 1e-16: its Maclaurin series near zero, a continued fraction of the complement beyond.
pub fn erf(x: f64) -> f64 {
    if x.is_nan() {
        return x;
    }
    let a = x.abs();
    let value = if a < 2.5 {
        series(a)
    } else if a > 6.0 {
        1.0
    } else {
        1.0 - complement(a)
    };
    value.copysign(x)
}

/// `1 - erf(x)`, without cancellation where that is small.
pub fn erfc(x: f64) -> f64 {
    if x >= 2.5 {
        complement(x)
    } else {
        1.0 - erf(x)
    }
}

fn series(x: f64) -> f64 {
    let (mut term, mut sum) = (x, x);
    for n in 1..80 {
        let n = f64::from(n);
        term *= -x * x / n;
        sum += term / (2.0 * n + 1.0);
    }
    sum * std::f64::consts::FRAC_2_SQRT_PI
}

/// `1 - erf(x)` by Lentz-free backward evaluation of the continued fraction of Laplace.
fn complement(x: f64) -> f64 {
    let fraction = (1..=60).rev().fold(x, |f, k| x + f64::from(k) / 2.0 / f);
    (-x * x).exp() / fraction * std::f64::consts::FRAC_2_SQRT_PI / 2.0
}
