//! `max_pool_3d`: largest elements of sliding windows of three axes.

use super::family::plain_op;
use super::window;

plain_op! {
    /// Operands: input `[n, c, d, h, w]`, window, stride, dilation, whether the number of windows rounds up.
    MaxPool3d, "max_pool_3d", "largest elements of sliding windows of three axes", 5..=5, |o| window::pool_infer(o, 5, true), |i: &_| window::pool(i, 5, window::largest),
    window::cases(Self, &[
        (&[&[1, 2, 3, 4, 3]], &[&[2, 3, 1], &[1, 1, 2], &[1, 1, 1], &[0]]),
    ])
}
