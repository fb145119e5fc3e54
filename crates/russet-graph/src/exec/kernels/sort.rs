//! Sorting along an axis.

use std::cmp::Ordering;

use super::{Cx, Kernel};
use crate::error::OpError;
use crate::exec::view::{View, store_int};

/// Sorts along an axis; `indices` gives positions instead of values. Stable; NaN comes last in either direction.
#[derive(Debug)]
pub(crate) struct Sort {
    pub(crate) axis: usize,
    pub(crate) descending: bool,
    pub(crate) indices: bool,
}

impl Sort {
    fn order(&self, x: &View<'_>, a: usize, b: usize) -> Ordering {
        let order = if x.dtype.is_float() {
            let value = |at| {
                let mut v = [0f32];
                x.load(at, 1, &mut v);
                v[0]
            };
            let (a, b) = (value(a), value(b));
            match a.partial_cmp(&b) {
                Some(order) => order,
                None => return a.is_nan().cmp(&b.is_nan()),
            }
        } else {
            x.int(a).cmp(&x.int(b))
        };
        if self.descending {
            order.reverse()
        } else {
            order
        }
    }
}

impl Kernel for Sort {
    fn run(&self, cx: &mut Cx<'_, '_, '_>) -> Result<(), OpError> {
        let x = cx.inputs[0];
        let g = x.geometry;
        let (n, stride) = (g.shape[self.axis], g.strides[self.axis]);
        let out = &mut cx.outputs[0];
        let (dtype, size, to) = (out.dtype, out.dtype.size().unwrap_or(1), out.geometry);
        let mut lines = g;
        lines.shape[self.axis] = 1;
        let mut lines_to = to;
        lines_to.shape[self.axis] = 1;
        cx.scratch.resize(cx.scratch.len().max(n), 0.0);
        let order = &mut cx.scratch[..n];
        for line in 0..lines.len() {
            let (from, base) = (lines.element_offset(line), lines_to.element_offset(line));
            order
                .iter_mut()
                .enumerate()
                .for_each(|(i, o)| *o = f32::from_bits(i as u32));
            let at = |i: &f32| from + i.to_bits() as usize * stride;
            order.sort_unstable_by(|a, b| {
                self.order(&x, at(a), at(b))
                    .then(a.to_bits().cmp(&b.to_bits()))
            });
            for (k, i) in order.iter().enumerate() {
                let o = (base + k * to.strides[self.axis]) * size;
                if self.indices {
                    store_int(dtype, i.to_bits().into(), &mut out.data[o..o + size]);
                } else {
                    let i = at(i) * size;
                    out.data[o..o + size].copy_from_slice(&x.data[i..i + size]);
                }
            }
        }
        Ok(())
    }
}
