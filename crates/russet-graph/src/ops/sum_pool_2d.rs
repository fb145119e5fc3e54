//! `sum_pool_2d`: sums of sliding windows of two axes.

use super::family::plain_op;
use super::window;

plain_op! {
    /// Operands: input `[n, c, h, w]`, window, stride, dilation.
    SumPool2d, "sum_pool_2d", "sums of sliding windows of two axes", 4..=4, |o| window::pool_infer(o, 4, false), |i: &_| window::pool(i, 4, window::total),
    window::cases(Self, &[
        (&[&[1, 2, 5, 6]], &[&[2, 3], &[2, 1], &[1, 1]]),
        (&[&[1, 1, 5, 6]], &[&[2, 2], &[1, 1], &[3, 2]]),
    ])
}
