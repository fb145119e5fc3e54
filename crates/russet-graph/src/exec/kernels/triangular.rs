//! Inverses of unit lower triangular matrices: matrices are shared out, widened, inverted in f32 and rounded once.

use russet_kernels::scratch;
use russet_kernels::triangular::unit_lower_inverse;

use super::gated_delta::widen;
use super::{Cx, Kernel, Touched, Work};
use crate::error::OpError;
use crate::exec::view::store;

/// Input and output: matrices `[…, n, n]`.
#[derive(Debug)]
pub(crate) struct UnitLowerInverse;

impl Kernel for UnitLowerInverse {
    fn run(&self, cx: &mut Cx<'_, '_, '_>) -> Result<(), OpError> {
        let (matrices, out) = (cx.inputs[0], &mut cx.outputs[0]);
        let n = matrices.shape().last().copied().unwrap_or(0);
        let (dtype, size) = (out.dtype, out.dtype.size().unwrap_or(1));
        let each = n * n;
        cx.pool.for_chunks_mut(out.bytes(), each * size, &|i, out| {
            let (matrix, inverse) = (&mut *scratch::floats(each), &mut *scratch::floats(each));
            widen(&matrices, i * n, matrix);
            unit_lower_inverse(matrix, n, inverse);
            store(dtype, inverse, out);
        });
        Ok(())
    }

    /// A row is the sum of those above it, as far as they are not zero.
    fn work(&self, inputs: &[Touched], outputs: &[Touched]) -> Work {
        let elements = inputs.first().map_or(0, Touched::elements);
        let shape = inputs.first().map_or(&[][..], |x| x.geometry.shape());
        let n = shape.last().copied().unwrap_or(0) as u64;
        Work::of_elements(inputs, outputs).with_operations(elements * n / 3)
    }
}
