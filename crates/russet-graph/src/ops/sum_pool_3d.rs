//! `sum_pool_3d`: sums of sliding windows of three axes.

use super::family::plain_op;
use super::window;

plain_op! {
    /// Operands: input `[n, c, d, h, w]`, window, stride, dilation.
    SumPool3d, "sum_pool_3d", "sums of sliding windows of three axes", 4..=4, |o| window::pool_infer(o, 5, false), |i: &_| window::pool(i, 5, window::total),
    window::cases(Self, &[
        (&[&[1, 2, 3, 4, 3]], &[&[2, 3, 1], &[1, 1, 2], &[1, 1, 1]]),
    ])
}
