//! A box of a state that moves along an axis where a condition holds, and stays as it is where not.

use super::copy::copy;
use super::{Cx, Kernel, Out, Touched, Work};
use crate::error::OpError;
use crate::exec::view::Geometry;

/// Where the condition holds, the elements from `by` on along an axis, which is not the last, come to its start, and the tail
/// takes their place. Inputs: condition, of one element, tail. Output: the box, whose rows have no gaps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShiftIf {
    pub(crate) axis: usize,
    pub(crate) by: usize,
}

impl Kernel for ShiftIf {
    fn run(&self, cx: &mut Cx<'_, '_, '_>) -> Result<(), OpError> {
        if cx.inputs[0].int_at(0) == 0 {
            return Ok(());
        }
        let (tail, out) = (cx.inputs[1], &mut cx.outputs[0]);
        let whole = out.geometry;
        let kept = whole.shape[self.axis].saturating_sub(self.by);
        let mut to = whole;
        to.shape[self.axis] = kept;
        let from = Geometry {
            offset: to.offset + self.by * to.strides[self.axis],
            ..to
        };
        let size = out.dtype.size().unwrap_or(1);
        let (width, _, rows) = to.rows();
        // In order: what is written over has been moved before.
        for row in 0..rows {
            let (x, y) = (from.row_offset(row) * size, to.row_offset(row) * size);
            out.data.copy_within(x..x + width * size, y);
        }
        let mut rest = whole;
        rest.offset += kept * whole.strides[self.axis];
        rest.shape[self.axis] -= kept;
        let geometry = rest;
        copy(
            &tail,
            &mut Out {
                dtype: out.dtype,
                geometry,
                data: out.data,
            },
        );
        Ok(())
    }

    /// Nothing, as a rule.
    fn work(&self, inputs: &[Touched], _: &[Touched]) -> Work {
        Work::of_elements(&inputs[..1], &[])
    }
}
