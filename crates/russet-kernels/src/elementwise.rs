//! Element by element: compute in f32, round to the storage type.
//!
//! The loops are contiguous; broadcasting beyond a scalar is the caller's. All operands and results are of one type.

use crate::elem::Elem;
use crate::isa::Isa;
use crate::simd::{Kernel, MAX_LANES, Simd, pieces};

/// An operation on two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binary {
    /// a + b.
    Add,
    /// a - b.
    Sub,
    /// a * b.
    Mul,
    /// a / b.
    Div,
    /// The smaller; NaN if either is.
    Min,
    /// The larger; NaN if either is.
    Max,
    /// 1 where a > b, else 0.
    Greater,
}

impl Binary {
    #[inline(always)]
    fn apply<S: Simd>(self, s: S, a: S::V, b: S::V) -> S::V {
        match self {
            Binary::Add => s.add(a, b),
            Binary::Sub => s.sub(a, b),
            Binary::Mul => s.mul(a, b),
            Binary::Div => s.div(a, b),
            Binary::Min => s.select(s.is_nan(a), a, s.min(a, b)),
            Binary::Max => s.select(s.is_nan(a), a, s.max(a, b)),
            Binary::Greater => s.select(s.lt(b, a), s.splat(1.0), s.splat(0.0)),
        }
    }
}

/// An operand: one value per element, or one for all.
#[derive(Clone, Copy, Debug)]
pub enum Operand<'a, T> {
    /// As long as the result.
    Vector(&'a [T]),
    /// The same everywhere.
    Scalar(T),
}

impl<T: Elem> Operand<'_, T> {
    #[inline(always)]
    fn load<S: Simd>(&self, s: S, i: usize, len: usize) -> S::V {
        match self {
            Operand::Vector(x) => T::load_part(s, &x[i..], len),
            Operand::Scalar(x) => s.splat(x.to_f32()),
        }
    }

    fn fits(&self, len: usize) -> bool {
        matches!(self, Operand::Vector(x) if x.len() == len) || matches!(self, Operand::Scalar(_))
    }
}

struct BinaryKernel<'a, T> {
    op: Binary,
    a: Operand<'a, T>,
    b: Operand<'a, T>,
    out: &'a mut [T],
}

impl<T: Elem> Kernel for BinaryKernel<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { op, a, b, out } = self;
        for (i, len) in pieces(out.len(), S::LANES) {
            let y = op.apply(s, a.load(s, i, len), b.load(s, i, len));
            T::store_part(s, y, &mut out[i..], len);
        }
    }
}

/// out = a op b.
///
/// # Panics
/// If a vector operand is not as long as `out`.
pub fn binary<T: Elem>(op: Binary, a: Operand<'_, T>, b: Operand<'_, T>, out: &mut [T]) {
    assert!(a.fits(out.len()) && b.fits(out.len()), "binary: lengths");
    Isa::best().run(BinaryKernel { op, a, b, out });
}

/// An operation on one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unary {
    /// -x.
    Neg,
    /// |x|.
    Abs,
    /// Square root.
    Sqrt,
    /// 1 / sqrt(x).
    Rsqrt,
    /// e^x.
    Exp,
    /// Natural logarithm.
    Log,
    /// Sine.
    Sin,
    /// Cosine.
    Cos,
    /// Hyperbolic tangent.
    Tanh,
    /// Error function.
    Erf,
    /// 1 / (1 + e^-x).
    Sigmoid,
    /// x * sigmoid(x).
    Silu,
    /// x * Phi(x), by the error function.
    Gelu,
    /// x * Phi(x), by the usual hyperbolic tangent.
    GeluTanh,
}

struct UnaryKernel<'a, T> {
    op: Unary,
    x: &'a [T],
    out: &'a mut [T],
}

impl<T: Elem> Kernel for UnaryKernel<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { op, x, out } = self;
        for (i, len) in pieces(out.len(), S::LANES) {
            let y = op.apply(s, T::load_part(s, &x[i..], len));
            T::store_part(s, y, &mut out[i..], len);
        }
    }
}

impl Unary {
    #[inline(always)]
    fn apply<S: Simd>(self, s: S, x: S::V) -> S::V {
        match self {
            Unary::Neg => s.neg(x),
            Unary::Abs => s.abs(x),
            Unary::Sqrt => s.sqrt(x),
            Unary::Rsqrt => s.div(s.splat(1.0), s.sqrt(x)),
            Unary::Exp => s.exp(x),
            Unary::Log => lanes(s, x, f32::ln),
            Unary::Sin => lanes(s, x, f32::sin),
            Unary::Cos => lanes(s, x, f32::cos),
            Unary::Tanh => s.tanh(x),
            Unary::Erf => lanes(s, x, erf),
            Unary::Sigmoid => s.sigmoid(x),
            Unary::Silu => silu_value(s, x),
            Unary::Gelu => lanes(s, x, gelu),
            Unary::GeluTanh => gelu_tanh(s, x),
        }
    }
}

/// out = op x.
///
/// # Panics
/// If the lengths differ.
pub fn unary<T: Elem>(op: Unary, x: &[T], out: &mut [T]) {
    assert_eq!(x.len(), out.len(), "unary: lengths");
    Isa::best().run(UnaryKernel { op, x, out });
}

#[inline(always)]
fn silu_value<S: Simd>(s: S, x: S::V) -> S::V {
    s.mul(x, s.sigmoid(x))
}

/// Functions that are rare in models, by the scalar library.
#[inline(always)]
fn lanes<S: Simd>(s: S, x: S::V, f: impl Fn(f32) -> f32) -> S::V {
    let mut values = [0.0; MAX_LANES];
    s.store(x, &mut values);
    for value in &mut values[..S::LANES] {
        *value = f(*value);
    }
    s.load(&values)
}

/// 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))).
#[inline(always)]
fn gelu_tanh<S: Simd>(s: S, x: S::V) -> S::V {
    let cube = s.mul(s.mul(x, x), x);
    let inner = s.mul(s.splat(0.797_884_6), s.fma(s.splat(0.044_715), cube, x));
    s.mul(s.mul(s.splat(0.5), x), s.add(s.splat(1.0), s.tanh(inner)))
}

fn gelu(x: f32) -> f32 {
    let x = f64::from(x);
    (0.5 * x * erfc(-x * std::f64::consts::FRAC_1_SQRT_2)) as f32
}

fn erf(x: f32) -> f32 {
    erf_f64(f64::from(x)) as f32
}

/// Below 1 by the power series of erf, whose terms there shrink fast.
fn erf_f64(x: f64) -> f64 {
    if x.abs() >= 1.0 || x.is_nan() {
        return 1.0 - erfc(x);
    }
    let (square, mut term, mut sum) = (x * x, x, x);
    for n in 1..14 {
        let n = f64::from(n);
        term *= -square / n;
        sum += term / (2.0 * n + 1.0);
    }
    sum * std::f64::consts::FRAC_2_SQRT_PI
}

/// Coefficients of ln(erfc(z) e^(z^2) / t) in t = 1 / (1 + z / 2), highest power first
/// (Press et al., Numerical Recipes, section 6.2: relative error below 1.2e-7).
const ERFC: [f64; 10] = [
    0.170_872_77,
    -0.822_152_23,
    1.488_515_87,
    -1.135_203_98,
    0.278_868_07,
    -0.186_288_06,
    0.096_784_18,
    0.374_091_96,
    1.000_023_68,
    -1.265_512_23,
];

fn erfc(x: f64) -> f64 {
    if x.abs() < 1.0 {
        return 1.0 - erf_f64(x);
    }
    let z = x.abs();
    let t = 1.0 / (1.0 + 0.5 * z);
    let p = ERFC.iter().fold(0.0, |p, c| p * t + c);
    let tail = t * (p - z * z).exp();
    if x < 0.0 { 2.0 - tail } else { tail }
}

/// The activation of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// [`Unary::Silu`].
    Silu,
    /// [`Unary::GeluTanh`].
    GeluTanh,
}

struct Gated<'a, T> {
    activation: Activation,
    gate: &'a [T],
    up: &'a [T],
    out: &'a mut [T],
}

impl<T: Elem> Kernel for Gated<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        match self.activation {
            Activation::Silu => self.products::<S, false>(s),
            Activation::GeluTanh => self.products::<S, true>(s),
        }
    }
}

impl<T: Elem> Gated<'_, T> {
    #[inline(always)]
    fn products<S: Simd, const GELU: bool>(self, s: S) {
        let Self { gate, up, out, .. } = self;
        let mut i = 0;
        while i < out.len() {
            let len = S::LANES.min(out.len() - i);
            let x = T::load_part(s, &gate[i..], len);
            let activated = if GELU {
                gelu_tanh(s, x)
            } else {
                silu_value(s, x)
            };
            let y = s.mul(T::round(s, activated), T::load_part(s, &up[i..], len));
            T::store_part(s, y, &mut out[i..], len);
            i += S::LANES;
        }
    }
}

/// out = activation(gate) * up, the activation rounded to the storage type before the product, as two separate operations would.
///
/// # Panics
/// If the lengths differ.
pub fn gated<T: Elem>(activation: Activation, gate: &[T], up: &[T], out: &mut [T]) {
    assert!(
        gate.len() == out.len() && up.len() == out.len(),
        "gated: lengths"
    );
    Isa::best().run(Gated {
        activation,
        gate,
        up,
        out,
    });
}

struct InPlace<'a> {
    op: Unary,
    x: &'a mut [f32],
}

impl Kernel for InPlace<'_> {
    type Out = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for (i, len) in pieces(self.x.len(), S::LANES) {
            let y = self.op.apply(s, f32::load_part(s, &self.x[i..], len));
            f32::store_part(s, y, &mut self.x[i..], len);
        }
    }
}

/// x = op x.
pub fn unary_in_place(op: Unary, x: &mut [f32]) {
    Isa::best().run(InPlace { op, x });
}

struct InPlaceWith<'a, T> {
    op: Binary,
    a: &'a mut [T],
    b: &'a [T],
}

impl<T: Elem> Kernel for InPlaceWith<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { op, a, b } = self;
        for (i, len) in pieces(a.len(), S::LANES) {
            let (x, y) = (T::load_part(s, &a[i..], len), T::load_part(s, &b[i..], len));
            T::store_part(s, op.apply(s, x, y), &mut a[i..], len);
        }
    }
}

/// a = a op b.
///
/// # Panics
/// If the lengths differ.
pub fn binary_in_place<T: Elem>(op: Binary, a: &mut [T], b: &[T]) {
    assert_eq!(a.len(), b.len(), "binary: lengths");
    Isa::best().run(InPlaceWith { op, a, b });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;
    use half::{bf16, f16};

    /// Each operation with its definition and the relative error allowed in f32.
    type Defined = (Unary, fn(f64) -> f64, f64);
    type DefinedBinary = (Binary, fn(f32, f32) -> f32);

    fn gelu_by_integral(x: f64) -> f64 {
        // Simpson's rule on the density from -12: independent of the approximation under test.
        let steps = 4000;
        let h = (x + 12.0) / f64::from(steps);
        let density = |t: f64| (-0.5 * t * t).exp() / (2.0 * std::f64::consts::PI).sqrt();
        let weight = |i: i32| {
            if i == 0 || i == steps {
                1.0
            } else {
                f64::from(2 + 2 * (i % 2))
            }
        };
        x * (0..=steps)
            .map(|i| weight(i) * density(-12.0 + h * f64::from(i)))
            .sum::<f64>()
            * h
            / 3.0
    }

    const UNARY: [Defined; 13] = [
        (Unary::Neg, |x| -x, 0.0),
        (Unary::Abs, f64::abs, 0.0),
        (Unary::Sqrt, f64::sqrt, 1e-7),
        (Unary::Rsqrt, |x| 1.0 / x.sqrt(), 2e-7),
        (Unary::Exp, f64::exp, 2e-7),
        (Unary::Log, f64::ln, 2e-7),
        (Unary::Sin, f64::sin, 2e-7),
        (Unary::Cos, f64::cos, 2e-7),
        (Unary::Tanh, f64::tanh, 4e-7),
        (Unary::Sigmoid, |x| 1.0 / (1.0 + (-x).exp()), 3e-7),
        (Unary::Silu, |x| x / (1.0 + (-x).exp()), 4e-7),
        (Unary::Gelu, gelu_by_integral, 4e-7),
        (
            Unary::Erf,
            |x| {
                2.0 * gelu_by_integral(x * std::f64::consts::SQRT_2)
                    / (x * std::f64::consts::SQRT_2)
                    - 1.0
            },
            4e-7,
        ),
    ];

    #[test]
    fn unary_operations_match_their_definitions() {
        let x: Vec<f32> = Random::new(5)
            .floats(203)
            .iter()
            .map(|v| v * 5.0 + 0.003)
            .collect();
        for (op, exact, tolerance) in UNARY {
            for isa in Isa::available() {
                let mut y = vec![0.0; x.len()];
                isa.run(UnaryKernel {
                    op,
                    x: &x,
                    out: &mut y,
                });
                for (x, y) in x.iter().zip(y) {
                    let want = exact(f64::from(*x));
                    let near =
                        (f64::from(y) - want).abs() <= tolerance * want.abs().max(1e-3) + 1e-10;
                    assert!(
                        near || want.is_nan() && y.is_nan(),
                        "{} {op:?}({x}) = {y}, want {want}",
                        isa.name()
                    );
                }
            }
        }
    }

    #[test]
    fn gelu_tanh_matches_its_formula() {
        let x: Vec<f32> = (-400..400).map(|i| i as f32 * 0.02).collect();
        for isa in Isa::available() {
            let mut y = vec![0.0; x.len()];
            isa.run(UnaryKernel {
                op: Unary::GeluTanh,
                x: &x,
                out: &mut y,
            });
            for (x, y) in x.iter().map(|x| f64::from(*x)).zip(y) {
                let want = 0.5
                    * x
                    * (1.0
                        + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x * x * x))
                            .tanh());
                assert!(
                    (f64::from(y) - want).abs() < 1e-6 * x.abs().max(1.0),
                    "{} {x}: {y} {want}",
                    isa.name()
                );
            }
        }
    }

    const BINARY: [DefinedBinary; 7] = [
        (Binary::Add, |a, b| a + b),
        (Binary::Sub, |a, b| a - b),
        (Binary::Mul, |a, b| a * b),
        (Binary::Div, |a, b| a / b),
        (Binary::Min, |a, b| {
            if a.is_nan() || b.is_nan() {
                f32::NAN
            } else {
                a.min(b)
            }
        }),
        (Binary::Max, |a, b| {
            if a.is_nan() || b.is_nan() {
                f32::NAN
            } else {
                a.max(b)
            }
        }),
        (Binary::Greater, |a, b| f32::from(u8::from(a > b))),
    ];

    fn check_binary<T: Elem + std::fmt::Debug>() {
        let mut random = Random::new(6);
        for n in [0, 1, 7, 16, 17, 70] {
            let mut x: Vec<T> = random.floats(2 * n).into_iter().map(T::from_f32).collect();
            x.iter_mut()
                .step_by(9)
                .for_each(|v| *v = T::from_f32(f32::NAN));
            let (a, b) = x.split_at(n);
            let half = T::from_f32(0.5);
            for (op, exact) in BINARY {
                for (p, q) in [
                    (Operand::Vector(a), Operand::Vector(b)),
                    (Operand::Scalar(half), Operand::Vector(b)),
                    (Operand::Vector(a), Operand::Scalar(half)),
                ] {
                    let at = |o: &Operand<'_, T>, i: usize| match o {
                        Operand::Vector(x) => x[i].to_f32(),
                        Operand::Scalar(x) => x.to_f32(),
                    };
                    for isa in Isa::available() {
                        let mut out = vec![T::ZERO; n];
                        isa.run(BinaryKernel {
                            op,
                            a: p,
                            b: q,
                            out: &mut out,
                        });
                        for (i, y) in out.iter().enumerate() {
                            let want = T::from_f32(exact(at(&p, i), at(&q, i)));
                            assert!(
                                *y == want || y.to_f32().is_nan() && want.to_f32().is_nan(),
                                "{} {op:?} {y:?} {want:?}",
                                isa.name()
                            );
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn binary_operations_round_once() {
        check_binary::<f32>();
        check_binary::<f16>();
        check_binary::<bf16>();
    }

    #[test]
    fn gated_is_the_two_operations_in_turn() {
        let mut random = Random::new(7);
        let mut half = |n| -> Vec<f16> {
            random
                .floats(n)
                .iter()
                .map(|v| f16::from_f32(v * 4.0))
                .collect()
        };
        let (gate, up) = (half(75), half(75));
        for (activation, op) in [
            (Activation::Silu, Unary::Silu),
            (Activation::GeluTanh, Unary::GeluTanh),
        ] {
            let mut all = [(); 3].map(|()| vec![f16::ZERO; 75]);
            let [activated, want, got] = &mut all;
            unary(op, &gate, activated);
            let factors = [&*activated, &up].map(|x| Operand::Vector(&x[..]));
            binary(Binary::Mul, factors[0], factors[1], want);
            gated(activation, &gate, &up, got);
            assert_eq!(got, want);
        }
    }

    #[test]
    fn in_place_is_the_same() {
        let mut random = Random::new(8);
        let (a, b) = (random.floats(37), random.floats(37));
        let (mut want, mut got) = (vec![0.0; 37], a.clone());
        unary(Unary::Tanh, &a, &mut want);
        unary_in_place(Unary::Tanh, &mut got);
        assert_eq!(got, want);
        binary(
            Binary::Sub,
            Operand::Vector(&want.clone()),
            Operand::Vector(&b),
            &mut want,
        );
        binary_in_place(Binary::Sub, &mut got, &b);
        assert_eq!(got, want);
    }
}
