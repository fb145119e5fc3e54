//! Sorting along an axis.

use std::cmp::Ordering;

use russet_kernels::scratch;

use super::{Cx, Kernel};
use crate::error::OpError;
use crate::exec::view::{View, store_int};

/// Sorts along an axis: gives the values in order, or with `indices` their positions, or with `both` first the values, then the
/// positions. Stable; NaN comes last in either direction.
#[derive(Clone, Debug)]
pub(crate) struct Sort {
    pub(crate) axis: usize,
    pub(crate) descending: bool,
    pub(crate) indices: bool,
    pub(crate) both: bool,
    /// How many are wanted; what comes after them is not written.
    pub(crate) first: usize,
}

impl Sort {
    fn order(&self, order: Option<Ordering>, nan: impl Fn() -> Ordering) -> Ordering {
        match order {
            Some(order) if self.descending => order.reverse(),
            Some(order) => order,
            None => nan(),
        }
    }

    /// Puts the positions of a line in order, as far as they are wanted.
    fn sort(&self, order: &mut [u32], compare: impl Fn(u32, u32) -> Ordering) {
        let (first, n) = (self.first, order.len());
        order.iter_mut().zip(0..).for_each(|(place, i)| *place = i);
        let compare = |a: &u32, b: &u32| compare(*a, *b).then(a.cmp(b));
        if first > 0 && first < n {
            order.select_nth_unstable_by(first - 1, compare);
        }
        order[..first.min(n)].sort_unstable_by(compare);
    }

    /// The order of the line of `x` from element `from` on.
    fn line(&self, x: &View<'_>, from: usize, order: &mut [u32]) {
        let stride = x.geometry.strides[self.axis];
        if !x.dtype.is_float() {
            let value = |i: u32| x.int(from + i as usize * stride);
            return self.sort(order, |a, b| {
                self.order(Some(value(a).cmp(&value(b))), || Ordering::Equal)
            });
        }
        let values = &mut *scratch::floats(order.len());
        x.load(from, stride, values);
        let value = |i: u32| values[i as usize];
        self.sort(order, |a, b| {
            let (a, b) = (value(a), value(b));
            self.order(a.partial_cmp(&b), || a.is_nan().cmp(&b.is_nan()))
        });
    }
}

impl Kernel for Sort {
    fn run(&self, cx: &mut Cx<'_, '_, '_>) -> Result<(), OpError> {
        let x = cx.inputs[0];
        let mut lines = x.geometry;
        let (n, stride) = (lines.shape[self.axis], lines.strides[self.axis]);
        lines.shape[self.axis] = 1;
        let order = &mut *scratch::of::<u32>(n);
        for line in 0..lines.len() {
            let from = lines.element_offset(line);
            self.line(&x, from, order);
            for (i, out) in cx.outputs.iter_mut().enumerate() {
                let (dtype, size, mut to) =
                    (out.dtype, out.dtype.size().unwrap_or(1), out.geometry);
                let step = to.strides[self.axis];
                to.shape[self.axis] = 1;
                let base = to.element_offset(line);
                let indices = if self.both { i == 1 } else { self.indices };
                for (k, i) in order.iter().take(self.first).enumerate() {
                    let o = (base + k * step) * size;
                    if indices {
                        store_int(dtype, (*i).into(), &mut out.data[o..o + size]);
                    } else {
                        let i = (from + *i as usize * stride) * size;
                        out.data[o..o + size].copy_from_slice(&x.data[i..i + size]);
                    }
                }
            }
        }
        Ok(())
    }
}
