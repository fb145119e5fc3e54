//! `unit_lower_inverse`: inverses of unit lower triangular matrices.

use super::family::{check_kind, plain_op};
use super::shape::{agree, dims_error};
use super::{Case, Fact, Operands};
use crate::error::OpError;
use crate::tensor::Tensor;
use crate::types::{DType, TensorType};

plain_op! {
    /// `(I + L)⁻¹` for every matrix of the last two axes, L what lies below its diagonal; the rest of it counts for nothing.
    ///
    /// Operand: matrices `[…, n, n]` of floats. The chunked delta rule has one for every chunk and head (Yang et al., "Parallelizing
    /// Linear Transformers with the Delta Rule over Sequence Length", arXiv 2406.06484). No file holds the operation: fast plans find
    /// it where a program spells it out by products.
    UnitLowerInverse, "unit_lower_inverse", "inverses of unit lower triangular matrices", 1..=1, infer, reference, cases()
}

const KINDS: [DType; 3] = [DType::F32, DType::F16, DType::BF16];

fn infer(operands: Operands<'_>) -> Result<Vec<Fact>, OpError> {
    let x = operands.tensor(0)?;
    check_kind(&KINDS, 0, x.dtype)?;
    match &x.shape[..] {
        [.., rows, columns] if agree(rows, columns) => {
            Ok(vec![TensorType::new(x.dtype, x.shape.iter().cloned()).into()])
        }
        _ => Err(dims_error("matrices have as many rows as columns", &[&x.shape])),
    }
}

fn reference(inputs: &[Tensor]) -> Result<Vec<Tensor>, OpError> {
    let x = &inputs[0];
    let &[.., n, columns] = &x.shape[..] else {
        return Err(misfit(x));
    };
    if n != columns {
        return Err(misfit(x));
    }
    let (matrices, mut out) = (x.floats(), vec![0.0; x.len()]);
    let each = (n * n).max(1);
    for (matrix, inverse) in matrices.chunks(each).zip(out.chunks_mut(each)) {
        for (row, column) in (0..n).flat_map(|r| (0..=r).map(move |c| (r, c))) {
            let terms = (column..row).map(|j| matrix[row * n + j] * inverse[j * n + column]);
            let unit = if row == column { 1.0 } else { 0.0 };
            inverse[row * n + column] = unit - terms.sum::<f64>();
        }
    }
    Ok(vec![Tensor::from_floats(x.dtype, &x.shape, &out)?])
}

fn misfit(x: &Tensor) -> OpError {
    OpError::shapes("matrices have as many rows as columns", &[&x.shape])
}

fn cases() -> Vec<Case<UnitLowerInverse>> {
    let examples: [(DType, &[usize]); 7] = [
        (DType::F32, &[3, 3]),
        (DType::F32, &[2, 2, 20, 20]),
        (DType::F16, &[3, 16, 16]),
        (DType::F16, &[1, 35, 35]),
        (DType::BF16, &[2, 8, 8]),
        (DType::BF16, &[1, 1, 1]),
        (DType::F32, &[0, 4, 4]),
    ];
    let case = |(dtype, shape): &(DType, &[usize])| {
        let n: usize = shape.iter().product();
        let values: Vec<f64> = (0..n).map(|i| (i * 7 % 13) as f64 / 16.0 - 0.375).collect();
        let x = Tensor::from_floats(*dtype, shape, &values).ok()?;
        Some(Case { op: UnitLowerInverse, inputs: vec![x] })
    };
    examples.iter().filter_map(case).collect()
}
