//! How far a result of one operation may be from its recording.
//!
//! Integers and truth values are equal. A float of an operation on single elements is within two units in the last place
//! (one, for the 16-bit kinds). Those of operations that round many times on the way, above all sums and matrix products, are
//! within a part of the recorded element, however small it is: plans add and round in the runtime's order. [`BY_DEFINITION`] and
//! [`BESIDE_THE_LARGEST`] list the exceptions. A quotient of 16-bit floats that is rounded down may fall to the next whole number, because the runtime
//! rounds it to sixteen bits before at the ends of rows and not elsewhere.

use russet_graph::tensor::{Scalar, Tensor};
use russet_graph::types::DType;

/// Operations that round many times on the way to an element.
const MANY_STEPS: [&str; 26] = [
    "batch_matmul",
    "blockwise_shift_scale",
    "broadcasting_batch_matmul",
    "complex",
    "composite",
    "conv2d",
    "conv3d",
    "conv_transpose2d",
    "conv_transpose3d",
    "gated_delta_update",
    "gather_mm",
    "interpolate",
    "interpolate_coordinates",
    "model",
    "reduce_mean",
    "reduce_product",
    "reduce_sum",
    "rms_norm",
    "rope",
    "scaled_dot_product_attention",
    "scan",
    "scatter_along_axis",
    "softmax",
    "sumpool2d",
    "sumpool3d",
    "unknown_composite",
];

/// What is allowed for the elements of one result.
#[derive(Clone, Copy, Debug)]
pub(super) enum Bound {
    /// Nothing but equality.
    Exact,
    /// Units in the last place: bits of the mantissa, smallest exponent, how many units.
    Ulps(i32, i32, f64),
    /// A part of the recorded element, and never less than this.
    Part(f64, f64),
    /// An absolute distance.
    Within(f64),
}

/// Who computed a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// An exact plan.
    Plan,
    /// A fast plan, which adds in `f32` in an order of its own.
    FastPlan,
    /// The interpreter.
    Interpreter,
}

/// A recorded case: its operation and its name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case<'a> {
    pub(super) op: &'a str,
    pub(super) name: &'a str,
}

/// Operations whose elements are measured beside the largest one where the interpreter computes them: it adds in `f32`, once, where
/// the runtime rounds every step in its order. Plans do as the runtime does. Whole networks are made of such products.
const BY_DEFINITION: [&str; 6] = [
    "batch_matmul",
    "broadcasting_batch_matmul",
    "gated_delta_update",
    "gather_mm",
    "model",
    "scaled_dot_product_attention",
];

/// Cases whose elements are measured beside the largest one, whoever computes them. The runtime adds the taps of a transposed
/// convolution in one order or the other, depending on the column. What remains are a few elements near zero, the small
/// differences of large numbers (`docs/oracle-differences.md` counts them).
const BESIDE_THE_LARGEST: [(&str, &str); 5] = [
    ("conv_transpose2d", "f16_s1"),
    ("conv_transpose2d", "groups_2"),
    ("gated_delta_update", "f32"),
    ("model", "encoder"),
    ("scaled_dot_product_attention", "sinks_f32"),
];

impl Case<'_> {
    fn is_beside_the_largest(self, by: By) -> bool {
        let by_whom = match by {
            By::Plan => false,
            By::FastPlan => true,
            By::Interpreter => BY_DEFINITION.contains(&self.op),
        };
        by_whom || BESIDE_THE_LARGEST.contains(&(self.op, self.name))
    }
}

impl Bound {
    /// The bound for results of a case.
    pub(super) fn of(case: Case<'_>, recorded: &Tensor, by: By) -> Self {
        let floors = case.op.ends_with("floor_divide");
        let sums = MANY_STEPS.contains(&case.op);
        let beside = case.is_beside_the_largest(by);
        let part = |part, least: i32| match beside {
            true => Self::Within(part * largest(recorded)),
            false => Self::Part(part, 2f64.powi(least)),
        };
        match recorded.dtype {
            DType::F16 if floors => Self::Within(1.0),
            DType::F64 if sums => part(1e-12, -1022),
            DType::F32 | DType::C32 if sums => part(1e-5, -149),
            DType::F16 | DType::C16 if sums => part(2e-3, -24),
            DType::BF16 if sums => part(1.6e-2, -133),
            DType::F64 => Self::Ulps(52, -1022, 2.0),
            DType::F32 | DType::C32 => Self::Ulps(23, -126, 2.0),
            DType::F16 | DType::C16 => Self::Ulps(10, -14, 1.0),
            DType::BF16 => Self::Ulps(7, -126, 1.0),
            _ => Self::Exact,
        }
    }

    /// The distance of two elements in parts of what is allowed.
    pub(super) fn distance(self, got: Scalar, want: Scalar) -> f64 {
        match (got, want) {
            (Scalar::Float(a), Scalar::Float(b)) => self.floats(a, b),
            (Scalar::Complex(a, b), Scalar::Complex(c, d)) => {
                self.floats(a, c).max(self.floats(b, d))
            }
            (a, b) if a == b => 0.0,
            _ => f64::INFINITY,
        }
    }

    fn floats(self, got: f64, want: f64) -> f64 {
        if got == want || (got.is_nan() && want.is_nan()) {
            return 0.0;
        }
        let allowed = match self {
            Self::Exact => 0.0,
            Self::Ulps(mantissa, lowest, count) => {
                let exponent = if want == 0.0 {
                    lowest
                } else {
                    (want.abs().log2().floor() as i32).max(lowest)
                };
                count * 2f64.powi(exponent - mantissa)
            }
            Self::Part(part, least) => (part * want.abs()).max(least),
            Self::Within(distance) => distance,
        };
        let parts = (got - want).abs() / allowed;
        if parts.is_nan() { f64::INFINITY } else { parts }
    }
}

/// The largest finite magnitude.
fn largest(tensor: &Tensor) -> f64 {
    let size = |s: Scalar| match s {
        Scalar::Complex(re, im) => re.abs().max(im.abs()),
        other => other.float().abs(),
    };
    tensor
        .scalars()
        .map(size)
        .filter(|v| v.is_finite())
        .fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXP: Case<'_> = Case {
        op: "exp",
        name: "f32",
    };

    #[test]
    fn small_elements_of_sums_are_measured_by_themselves() {
        let recorded = Tensor::from_floats(DType::F32, &[2], &[1000.0, 1e-3]).unwrap();
        let off = |op, name, by| {
            let bound = Bound::of(Case { op, name }, &recorded, by);
            bound.distance(Scalar::Float(1.1e-3), Scalar::Float(1e-3)) > 1.0
        };
        assert!(off("batch_matmul", "f32", By::Plan));
        assert!(!off("batch_matmul", "f32", By::Interpreter));
        assert!(!off("model", "encoder", By::Plan) && off("model", "unet", By::Plan));
    }

    #[test]
    fn units_are_those_of_the_kind() {
        let bound = |dtype| {
            Bound::of(
                EXP,
                &Tensor::from_floats(dtype, &[], &[1.0]).unwrap(),
                By::Plan,
            )
        };
        let near =
            |dtype, step: f64| bound(dtype).distance(Scalar::Float(1.0 + step), Scalar::Float(1.0));
        assert_eq!(near(DType::F32, 2f64.powi(-22)), 1.0);
        assert_eq!(near(DType::F16, 2f64.powi(-10)), 1.0);
        assert_eq!(near(DType::BF16, 2f64.powi(-6)), 2.0);
        let tiny = bound(DType::F16).distance(Scalar::Float(0.0), Scalar::Float(2f64.powi(-24)));
        assert_eq!(tiny, 1.0);
    }

    #[test]
    fn what_is_not_a_number_equals_itself_only() {
        let bound = Bound::Within(1e-5);
        let distance = |a, b| bound.distance(Scalar::Float(a), Scalar::Float(b));
        assert_eq!(distance(f64::NAN, f64::NAN), 0.0);
        assert_eq!(distance(f64::NAN, 1.0), f64::INFINITY);
        assert_eq!(distance(f64::INFINITY, f64::INFINITY), 0.0);
        assert_eq!(distance(f64::INFINITY, 1.0), f64::INFINITY);
        assert_eq!(
            Bound::Exact.distance(Scalar::Int(3), Scalar::Int(4)),
            f64::INFINITY
        );
    }
}
