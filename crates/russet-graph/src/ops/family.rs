//! What operations of one family share: elementwise unary, binary with and without broadcasting, and shape-only ones.

use crate::error::OpError;
use crate::ops::shape::{broadcast, broadcast_fixed, broadcast_index, dims_error};
use crate::ops::{Case, Fact, Known, Operands};
use crate::tensor::{Scalar, Tensor, TensorMut};
use crate::types::{Class, DType, Dim, TensorType};

/// How the operands of a binary operation line up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Equal shapes.
    Same,
    /// NumPy's broadcasting.
    Broadcast,
}

/// Refuses an operand whose arithmetic none of the example `kinds` has.
pub fn check_kind(kinds: &[DType], index: usize, got: DType) -> Result<(), OpError> {
    let group = |d: DType| if d.is_int() { Class::Signed } else { d.class() };
    if kinds.iter().any(|&k| group(k) == group(got)) {
        return Ok(());
    }
    let rule = "the operation is defined for the element kind";
    Err(OpError::Kind { rule, index, got })
}

/// The result of an elementwise unary operation: the operand's type.
pub fn unary_infer(operands: Operands<'_>) -> Result<Vec<Fact>, OpError> {
    let t = operands.tensor(0)?;
    Ok(vec![
        TensorType::new(t.dtype, t.shape.iter().cloned()).into(),
    ])
}

/// Applies `f` to every element.
pub fn unary(input: &Tensor, f: impl Fn(Scalar) -> Scalar) -> Result<Vec<Tensor>, OpError> {
    let mut out = TensorMut::zeros(input.dtype, &input.shape)?;
    (0..out.len()).for_each(|i| out.set(i, f(input.get(i))));
    Ok(vec![out.finish()])
}

/// The type of a binary operation's result, with `dtype` for its elements (`None`: the operands' kind).
pub fn binary_type(
    operands: Operands<'_>,
    align: Align,
    dtype: Option<DType>,
) -> Result<TensorType, OpError> {
    let (a, b) = (operands.tensor(0)?, operands.tensor(1)?);
    if a.dtype != b.dtype {
        return Err(OpError::Kind {
            rule: "both operands have one element kind",
            index: 1,
            got: b.dtype,
        });
    }
    if align == Align::Same && a.rank() != b.rank() {
        return Err(dims_error(
            "both operands have one shape",
            &[&a.shape, &b.shape],
        ));
    }
    let shape = broadcast(&a.shape, &b.shape)?;
    let conflict = |x: &Dim, y: &Dim| x.as_const().is_some() && y.as_const().is_some() && x != y;
    if align == Align::Same && a.shape.iter().zip(&b.shape).any(|(x, y)| conflict(x, y)) {
        return Err(dims_error(
            "both operands have one shape",
            &[&a.shape, &b.shape],
        ));
    }
    Ok(TensorType::new(dtype.unwrap_or(a.dtype), shape))
}

/// Inference of a binary operation; `fold` follows integer contents where it can.
pub fn binary_infer(
    operands: Operands<'_>,
    align: Align,
    dtype: Option<DType>,
    fold: impl Fn(&Dim, &Dim) -> Option<Dim>,
) -> Result<Vec<Fact>, OpError> {
    let ty = binary_type(operands, align, dtype)?;
    let known = fold_binary(operands, &ty, fold);
    Ok(vec![Fact::with_known(ty, known)])
}

fn fold_binary(
    operands: Operands<'_>,
    ty: &TensorType,
    fold: impl Fn(&Dim, &Dim) -> Option<Dim>,
) -> Option<Vec<Dim>> {
    let out = ty.fixed_shape()?;
    let side = |i| Some((operands.known(i)?, operands.tensor(i).ok()?.fixed_shape()?));
    let ((a, sa), (b, sb)): ((Known, Vec<usize>), (Known, Vec<usize>)) = (side(0)?, side(1)?);
    let count = ty.fixed_len()?;
    (0..count)
        .map(|i| {
            fold(
                a.get(broadcast_index(i, &out, &sa))?,
                b.get(broadcast_index(i, &out, &sb))?,
            )
        })
        .collect()
}

/// Applies `f` to every pair of elements.
pub fn binary(
    a: &Tensor,
    b: &Tensor,
    dtype: DType,
    f: impl Fn(Scalar, Scalar) -> Scalar,
) -> Result<Vec<Tensor>, OpError> {
    let shape = broadcast_fixed(&a.shape, &b.shape)?;
    let mut out = TensorMut::zeros(dtype, &shape)?;
    for i in 0..out.len() {
        let (x, y) = (
            broadcast_index(i, &shape, &a.shape),
            broadcast_index(i, &shape, &b.shape),
        );
        out.set(i, f(a.get(x), b.get(y)));
    }
    Ok(vec![out.finish()])
}

/// `f` on floats, `g` on integers; bools count as integers.
pub fn by_class(
    x: Scalar,
    y: Scalar,
    f: impl Fn(f64, f64) -> f64,
    g: impl Fn(i128, i128) -> i128,
) -> Scalar {
    match (x, y) {
        (Scalar::Float(x), Scalar::Float(y)) => Scalar::Float(f(x, y)),
        _ => Scalar::Int(g(x.int(), y.int())),
    }
}

/// Sample tensors for the cases of elementwise operations: ordinary values and edges, in several kinds.
pub fn samples(kinds: &[DType]) -> Vec<Tensor> {
    let floats = [
        0.5,
        -1.25,
        3.0,
        -0.0,
        1e-3,
        20.0,
        -7.5,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
        0.0,
        1.0,
    ];
    let ints = [0, 1, -1, 5, 100, -100, 7, 3, 2, -3, 64, 127];
    let sample = |&d: &DType| match d {
        d if d.is_float() => Tensor::from_floats(d, &[3, 4], &floats),
        d => Tensor::from_ints(d, &[3, 4], &ints),
    };
    kinds.iter().map(sample).filter_map(Result::ok).collect()
}

/// Declares an elementwise unary operation from the function of one element.
macro_rules! unary_op {
    ($(#[$doc:meta])* $name:ident, $text:literal, $summary:literal, $f:expr) => {
        unary_op! { $(#[$doc])* $name, $text, $summary, $f, [F32, F16, BF16] }
    };
    ($(#[$doc:meta])* $name:ident, $text:literal, $summary:literal, $f:expr, [$($kind:ident),*]) => {
        $crate::ops::simple_op! { $(#[$doc])* $name }

        impl $crate::ops::OpDef for $name {
            const NAME: &'static str = $text;
            const SUMMARY: &'static str = $summary;
            const ARITY: std::ops::RangeInclusive<usize> = 1..=1;

            fn from_attributes(
                _: &[(std::sync::Arc<str>, $crate::attr::Attr)],
            ) -> Result<Self, $crate::error::OpError> {
                Ok(Self)
            }

            fn infer(
                &self,
                operands: $crate::ops::Operands<'_>,
            ) -> Result<Vec<$crate::ops::Fact>, $crate::error::OpError> {
                let kinds = [$($crate::types::DType::$kind),*];
                $crate::ops::family::check_kind(&kinds, 0, operands.tensor(0)?.dtype)?;
                $crate::ops::family::unary_infer(operands)
            }

            fn reference(
                &self,
                inputs: &[$crate::tensor::Tensor],
            ) -> Result<Vec<$crate::tensor::Tensor>, $crate::error::OpError> {
                let kinds = [$($crate::types::DType::$kind),*];
                $crate::ops::family::check_kind(&kinds, 0, inputs[0].dtype)?;
                $crate::ops::family::unary(&inputs[0], $f)
            }

            fn cases() -> Vec<$crate::ops::Case<Self>> {
                $crate::ops::family::samples(&[$($crate::types::DType::$kind),*])
                    .into_iter()
                    .map(|t| $crate::ops::Case { op: Self, inputs: vec![t] })
                    .collect()
            }
        }
    };
}
pub(crate) use unary_op;

/// The cases of a binary operation: every sample with itself reversed, and with its first row where shapes may differ.
pub fn binary_cases<O: Copy>(op: O, align: Align, kinds: &[DType]) -> Vec<Case<O>> {
    let reversed = |t: &Tensor| {
        let values: Vec<Scalar> = (0..t.len()).rev().map(|i| t.get(i)).collect();
        Tensor::from_scalars(t.dtype, &t.shape, &values)
    };
    let first_row = |t: &Tensor| {
        Tensor::from_scalars(t.dtype, &[4], &(0..4).map(|i| t.get(i)).collect::<Vec<_>>())
    };
    let mut cases = Vec::new();
    for t in samples(kinds) {
        cases.extend(reversed(&t).map(|r| Case {
            op,
            inputs: vec![t.clone(), r],
        }));
        if align == Align::Broadcast {
            cases.extend(first_row(&t).map(|r| Case {
                op,
                inputs: vec![r, t.clone()],
            }));
        }
    }
    cases
}

/// Declares an elementwise binary operation whose result has the operands' kind, from the function of two elements and the
/// function that folds followed contents.
macro_rules! binary_op {
    ($(#[$doc:meta])* $name:ident, $text:literal, $summary:literal, $align:expr, $f:expr, $fold:expr) => {
        binary_op! { $(#[$doc])* $name, $text, $summary, $align, $f, $fold, None, [F32, F16, BF16, I32, I8, U8, C32] }
    };
    ($(#[$doc:meta])* $name:ident, $text:literal, $summary:literal, $align:expr, $f:expr, $fold:expr,
     $dtype:expr, [$($kind:ident),*]) => {
        $crate::ops::simple_op! { $(#[$doc])* $name }

        impl $crate::ops::OpDef for $name {
            const NAME: &'static str = $text;
            const SUMMARY: &'static str = $summary;
            const ARITY: std::ops::RangeInclusive<usize> = 2..=2;

            fn from_attributes(
                _: &[(std::sync::Arc<str>, $crate::attr::Attr)],
            ) -> Result<Self, $crate::error::OpError> {
                Ok(Self)
            }

            fn infer(
                &self,
                operands: $crate::ops::Operands<'_>,
            ) -> Result<Vec<$crate::ops::Fact>, $crate::error::OpError> {
                let kinds = [$($crate::types::DType::$kind),*];
                $crate::ops::family::check_kind(&kinds, 0, operands.tensor(0)?.dtype)?;
                $crate::ops::family::binary_infer(operands, $align, $dtype, $fold)
            }

            fn reference(
                &self,
                inputs: &[$crate::tensor::Tensor],
            ) -> Result<Vec<$crate::tensor::Tensor>, $crate::error::OpError> {
                let kinds = [$($crate::types::DType::$kind),*];
                $crate::ops::family::check_kind(&kinds, 0, inputs[0].dtype)?;
                let dtype: Option<$crate::types::DType> = $dtype;
                $crate::ops::family::binary_checked(&inputs[0], &inputs[1], $align, dtype, $f)
            }

            fn cases() -> Vec<$crate::ops::Case<Self>> {
                $crate::ops::family::binary_cases(Self, $align, &[$($crate::types::DType::$kind),*])
            }
        }
    };
}
pub(crate) use binary_op;

/// [`binary`] after checking kinds and, for [`Align::Same`], shapes. `dtype` is the result's kind, the operands' by default.
pub fn binary_checked(
    a: &Tensor,
    b: &Tensor,
    align: Align,
    dtype: Option<DType>,
    f: impl Fn(Scalar, Scalar) -> Scalar,
) -> Result<Vec<Tensor>, OpError> {
    if a.dtype != b.dtype {
        return Err(OpError::Kind {
            rule: "both operands have one element kind",
            index: 1,
            got: b.dtype,
        });
    }
    if align == Align::Same && a.shape != b.shape {
        return Err(OpError::shapes(
            "both operands have one shape",
            &[&a.shape, &b.shape],
        ));
    }
    binary(a, b, dtype.unwrap_or(a.dtype), f)
}

/// Declares an operation without attributes from its three functions: the types of its results, its meaning, its examples.
macro_rules! plain_op {
    ($(#[$doc:meta])* $name:ident, $text:literal, $summary:literal, $arity:expr, $infer:expr, $reference:expr, $cases:expr) => {
        $crate::ops::simple_op! { $(#[$doc])* $name }

        impl $crate::ops::OpDef for $name {
            const NAME: &'static str = $text;
            const SUMMARY: &'static str = $summary;
            const ARITY: std::ops::RangeInclusive<usize> = $arity;

            fn from_attributes(
                _: &[(std::sync::Arc<str>, $crate::attr::Attr)],
            ) -> Result<Self, $crate::error::OpError> {
                Ok(Self)
            }

            fn infer(
                &self,
                operands: $crate::ops::Operands<'_>,
            ) -> Result<Vec<$crate::ops::Fact>, $crate::error::OpError> {
                $infer(operands)
            }

            fn reference(
                &self,
                inputs: &[$crate::tensor::Tensor],
            ) -> Result<Vec<$crate::tensor::Tensor>, $crate::error::OpError> {
                $reference(inputs)
            }

            fn cases() -> Vec<$crate::ops::Case<Self>> {
                $cases
            }
        }
    };
}
pub(crate) use plain_op;
