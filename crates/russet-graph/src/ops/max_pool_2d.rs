//! `max_pool_2d`: largest elements of sliding windows of two axes.

use super::family::plain_op;
use super::window;

plain_op! {
    /// Operands: input `[n, c, h, w]`, window, stride, dilation, whether the number of windows rounds up.
    MaxPool2d, "max_pool_2d", "largest elements of sliding windows of two axes", 5..=5, |o| window::pool_infer(o, 4, true), |i: &_| window::pool(i, 4, window::largest),
    window::cases(Self, &[
        (&[&[1, 2, 5, 6]], &[&[2, 3], &[2, 1], &[1, 1], &[0]]),
        (&[&[1, 1, 5, 6]], &[&[2, 2], &[2, 3], &[1, 1], &[1]]),
    ])
}
