//! `divide`: quotient; integers truncate towards zero.

use super::complex;
use super::family::{Align, binary_op, by_class};
use crate::tensor::Scalar;
use crate::types::Dim;

/// The quotient of two elements. Integers truncate towards zero, and give 0 where the divisor is 0.
pub fn divide(x: Scalar, y: Scalar) -> Scalar {
    match (x, y) {
        (Scalar::Complex(a, b), Scalar::Complex(c, d)) => {
            let (re, im) = complex::divide((a, b), (c, d));
            Scalar::Complex(re, im)
        }
        _ => by_class(x, y, |x, y| x / y, |x, y| x.checked_div(y).unwrap_or(0)),
    }
}

binary_op! {
    /// Quotient; integers truncate towards zero, elementwise, of two tensors of one shape.
    Divide, "divide", "quotient; integers truncate towards zero", Align::Same, divide, fold, None, [F32, F16, BF16, I32, U8, C32]
}

/// The quotient of two followed contents. Dims round down, so what may be negative is taken apart by its sign.
pub fn fold(a: &Dim, b: &Dim) -> Option<Dim> {
    let zero = Dim::Const(0);
    match (a.as_const(), b.as_const()) {
        (Some(a), Some(b)) => a.checked_div(b).map(Dim::Const),
        (_, Some(0)) => None,
        _ if !b.is_never_negative() => None,
        _ if a.is_never_negative() => Some(a.div(b)),
        _ => {
            let below = zero.sub(a).larger(&zero);
            Some(a.larger(&zero).div(b).sub(&below.div(b)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn followed_quotients_truncate_as_elements_do() {
        let q = Dim::symbol("q");
        for (offset, divisor) in [(0, 3), (-1, 2), (-5, 3), (-4, 1), (2, 7)] {
            let a = q.add(&Dim::Const(offset));
            let folded = fold(&a, &Dim::Const(divisor)).unwrap();
            for length in 0..12 {
                let value = folded.eval(&|_| Some(length));
                assert_eq!(value, Some((length + offset) / divisor), "{folded}");
            }
        }
        assert_eq!(fold(&q, &Dim::Const(-2)), None);
        assert_eq!(fold(&q, &Dim::Const(0)), None);
    }
}
