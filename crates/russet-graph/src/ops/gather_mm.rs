//! `gather_mm`: matrix products whose operands are picked from stacks, such as the experts of a mixture.

use std::sync::Arc;

use super::batch_matmul::{product, product_type};
use super::shape::{dims_error, position};
use super::{Case, Fact, OpDef, Operand, Operands};
use crate::attr::{Attr, Attributes, only, roles, texts, value_or};
use crate::error::OpError;
use crate::tensor::{Tensor, TensorMut};
use crate::types::{DType, TensorType, Type};

/// The product of the last two axes, leading axes broadcasting, of operands gathered first.
///
/// Operands: lhs, rhs, then where declared `lhs_indices` and `rhs_indices`, integers of any shape. An operand with indices has
/// the axis after the first `batch_axes` replaced by the axes of its indices: `lhs[b…, indices[i…], …]`. Negative indices count
/// from the end. Sums are taken wide and rounded once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GatherMm {
    /// Leading axes before the one that indices pick from.
    pub batch_axes: usize,
    /// Whether the left operand is gathered.
    pub left: bool,
    /// Whether the right operand is gathered.
    pub right: bool,
}

const ROLES: [&str; 4] = ["lhs", "rhs", "lhs_indices", "rhs_indices"];

impl GatherMm {
    fn roles(&self) -> Vec<&'static str> {
        let optional = [(self.left, ROLES[2]), (self.right, ROLES[3])];
        let given = optional.into_iter().filter(|(there, _)| *there);
        ROLES[..2]
            .iter()
            .copied()
            .chain(given.map(|(_, r)| r))
            .collect()
    }

    /// The numbers of the operands that hold the indices of the left and of the right.
    pub(crate) fn indices(&self) -> [Option<usize>; 2] {
        [
            self.left.then_some(2),
            self.right.then_some(2 + usize::from(self.left)),
        ]
    }

    /// The type of a gathered operand.
    fn gathered(&self, x: &TensorType, ids: &TensorType) -> Result<TensorType, OpError> {
        let at = self.batch_axes;
        if at >= x.rank() {
            return Err(dims_error(
                "an axis to pick from follows the batch axes",
                &[&x.shape, &ids.shape],
            ));
        }
        if !ids.dtype.is_int() {
            return Err(OpError::Kind {
                rule: "indices are integers",
                index: 2,
                got: ids.dtype,
            });
        }
        let shape = [&x.shape[..at], &ids.shape[..], &x.shape[at + 1..]].concat();
        Ok(TensorType::new(x.dtype, shape))
    }

    fn gather(&self, x: &Tensor, ids: &Tensor) -> Result<Tensor, OpError> {
        let ty = self.gathered(&x.ty(), &ids.ty())?;
        let shape = ty.fixed_shape().ok_or(OpError::Unknown("a shape"))?;
        let at = self.batch_axes;
        let (n, cell) = (x.shape[at], x.shape[at + 1..].iter().product::<usize>());
        let mut out = TensorMut::zeros(x.dtype, &shape)?;
        for batch in 0..x.shape[..at].iter().product() {
            for i in 0..ids.len() {
                let from = (batch * n + position(ids.get(i).int() as i64, n)?) * cell;
                let to = (batch * ids.len() + i) * cell;
                (0..cell).for_each(|k| out.set(to + k, x.get(from + k)));
            }
        }
        Ok(out.finish())
    }
}

impl OpDef for GatherMm {
    const NAME: &'static str = "gather_mm";
    const SUMMARY: &'static str = "matrix products of operands that are picked from stacks";
    const ARITY: std::ops::RangeInclusive<usize> = 2..=4;

    fn attributes(&self) -> Attributes {
        vec![
            ("num_batch_axes".into(), Attr::Int(self.batch_axes as i64)),
            ("inputs".into(), texts(&self.roles())),
        ]
    }

    fn from_attributes(attributes: &[(Arc<str>, Attr)]) -> Result<Self, OpError> {
        only(attributes, &["num_batch_axes"])?;
        let given = roles(attributes);
        let [left, right] = [2, 3].map(|i| given.contains(&ROLES[i]));
        let count = |a: &Attr| a.as_int().and_then(|n| usize::try_from(n).ok());
        let axes = value_or(attributes, "num_batch_axes", 0, (count, "a number of axes"))?;
        let op = Self {
            batch_axes: axes,
            left,
            right,
        };
        if given != op.roles() {
            return Err(OpError::Attribute {
                name: "inputs",
                expected: "lhs and rhs, then lhs_indices and rhs_indices where they are there",
            });
        }
        Ok(op)
    }

    fn infer(&self, operands: Operands<'_>) -> Result<Vec<Fact>, OpError> {
        let mut types = Vec::with_capacity(2);
        for (i, ids) in self.indices().into_iter().enumerate() {
            let x = operands.tensor(i)?;
            types.push(Type::Tensor(match ids {
                Some(at) => self.gathered(x, operands.tensor(at)?)?,
                None => x.clone(),
            }));
        }
        let known = |ty| Operand {
            ty,
            known: None,
            constant: None,
        };
        let gathered: Vec<Operand<'_>> = types.iter().map(known).collect();
        Ok(vec![product_type(Operands(&gathered))?.into()])
    }

    fn reference(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, OpError> {
        let operand = |i: usize, ids: Option<usize>| match ids {
            Some(at) => self.gather(&inputs[i], &inputs[at]),
            None => Ok(inputs[i].clone()),
        };
        let [left, right] = self.indices();
        product(&operand(0, left)?, &operand(1, right)?)
    }

    fn cases() -> Vec<Case<Self>> {
        let op = |batch_axes, left, right| Self {
            batch_axes,
            left,
            right,
        };
        let (experts, none): ([&[usize]; 2], &[usize]) = ([&[3, 1, 1, 4], &[5, 4, 2]], &[]);
        let picks: &[usize] = &[3, 2];
        [
            case(op(0, false, true), DType::F16, experts, [none, picks]),
            case(op(0, false, true), DType::BF16, experts, [none, picks]),
            case(op(0, true, true), DType::F32, [&[4, 3, 4], &[5, 4, 2]], [&[2, 1], &[1, 3]]),
            case(op(1, false, true), DType::F16, [&[2, 3, 3, 4], &[2, 5, 4, 2]], [none, &[3]]),
            case(op(0, true, false), DType::F32, [&[4, 3, 4], &[4, 2]], [&[2], none]),
            case(op(0, false, false), DType::F16, [&[2, 3, 4], &[4, 2]], [none, none]),
            case(op(0, false, true), DType::F16, [&[0, 1, 1, 4], &[5, 4, 2]], [none, &[0, 2]]),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

/// A case with operands and indices of these shapes.
fn case(
    op: GatherMm,
    dtype: DType,
    operands: [&[usize]; 2],
    indices: [&[usize]; 2],
) -> Option<Case<GatherMm>> {
    let ramp = |shape: &[usize]| {
        let n = shape.iter().product::<usize>();
        let values: Vec<f64> = (0..n).map(|i| (i % 7) as f64 * 0.5 - 1.0).collect();
        Tensor::from_floats(dtype, shape, &values).ok()
    };
    let mut inputs = vec![ramp(operands[0])?, ramp(operands[1])?];
    for (there, shape) in [op.left, op.right].into_iter().zip(indices) {
        if there {
            let picks: Vec<i64> = (0..shape.iter().product::<usize>())
                .map(|i| (i as i64 * 3 + 1) % 4 - 1)
                .collect();
            inputs.push(Tensor::from_ints(DType::I32, shape, &picks).ok()?);
        }
    }
    Some(Case { op, inputs })
}
