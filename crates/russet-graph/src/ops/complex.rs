//! What operations on complex numbers share: their kinds and parts, and functions of one number.

use crate::error::OpError;
use crate::ops::{Case, Fact, Operands};
use crate::tensor::{Scalar, Tensor, TensorMut};
use crate::types::{DType, TensorType};

/// Every complex kind with the kind of its parts.
pub const KINDS: [(DType, DType); 2] = [(DType::C32, DType::F32), (DType::C16, DType::F16)];

/// The kind of the parts of `dtype`.
pub fn part_of(dtype: DType) -> Result<DType, OpError> {
    let found = KINDS.iter().find(|(c, _)| *c == dtype).map(|(_, p)| *p);
    found.ok_or(OpError::Kind {
        rule: "the operand is complex",
        index: 0,
        got: dtype,
    })
}

/// A complex number: real and imaginary part.
pub type Pair = (f64, f64);

/// A function of an element: `real` of its float, or `complex` of its two parts.
pub fn apply(x: Scalar, real: impl Fn(f64) -> f64, complex: impl Fn(Pair) -> Pair) -> Scalar {
    if let Scalar::Complex(a, b) = x {
        let (re, im) = complex((a, b));
        Scalar::Complex(re, im)
    } else {
        Scalar::Float(real(x.float()))
    }
}

/// Product.
pub fn mul((a, b): Pair, (c, d): Pair) -> Pair {
    (a * c - b * d, a * d + b * c)
}

/// Quotient.
pub fn divide((a, b): Pair, (c, d): Pair) -> Pair {
    let size = c * c + d * d;
    ((a * c + b * d) / size, (b * c - a * d) / size)
}

/// `eᶻ`.
pub fn exp((a, b): Pair) -> Pair {
    (a.exp() * b.cos(), a.exp() * b.sin())
}

/// The principal natural logarithm.
pub fn log((a, b): Pair) -> Pair {
    (a.hypot(b).ln(), b.atan2(a))
}

/// Sine.
pub fn sin((a, b): Pair) -> Pair {
    (a.sin() * b.cosh(), a.cos() * b.sinh())
}

/// Cosine.
pub fn cos((a, b): Pair) -> Pair {
    (a.cos() * b.cosh(), -a.sin() * b.sinh())
}

/// Tangent.
pub fn tan((a, b): Pair) -> Pair {
    let below = (2.0 * a).cos() + (2.0 * b).cosh();
    ((2.0 * a).sin() / below, (2.0 * b).sinh() / below)
}

/// Hyperbolic sine.
pub fn sinh((a, b): Pair) -> Pair {
    (a.sinh() * b.cos(), a.cosh() * b.sin())
}

/// Hyperbolic cosine.
pub fn cosh((a, b): Pair) -> Pair {
    (a.cosh() * b.cos(), a.sinh() * b.sin())
}

/// `1 / (1 + e⁻ᶻ)`.
pub fn sigmoid((a, b): Pair) -> Pair {
    let (re, im) = exp((-a, -b));
    divide((1.0, 0.0), (1.0 + re, im))
}

/// `z / (1 + e⁻ᶻ)`.
pub fn silu(z: Pair) -> Pair {
    mul(z, sigmoid(z))
}

/// The type of one part of the operand.
pub fn infer_part(operands: Operands<'_>) -> Result<Vec<Fact>, OpError> {
    let t = operands.tensor(0)?;
    Ok(vec![
        TensorType::new(part_of(t.dtype)?, t.shape.iter().cloned()).into(),
    ])
}

/// One part of every element.
pub fn part(x: &Tensor, of: impl Fn(Pair) -> f64) -> Result<Vec<Tensor>, OpError> {
    let mut out = TensorMut::zeros(part_of(x.dtype)?, &x.shape)?;
    for (i, element) in x.scalars().enumerate() {
        if let Scalar::Complex(re, im) = element {
            out.set(i, Scalar::Float(of((re, im))));
        }
    }
    Ok(vec![out.finish()])
}

/// Examples of every complex kind.
pub fn cases<O: Copy>(op: O) -> Vec<Case<O>> {
    let values = [Scalar::Complex(1.0, -2.0), Scalar::Complex(0.5, f64::NAN)];
    let tensor = |(dtype, _)| Tensor::from_scalars(dtype, &[2, 1], &values).ok();
    KINDS
        .into_iter()
        .filter_map(tensor)
        .map(|t| Case {
            op,
            inputs: vec![t],
        })
        .collect()
}
