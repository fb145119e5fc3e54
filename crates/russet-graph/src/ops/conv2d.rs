//! `conv2d`: weighted sums over sliding windows of two axes.

use super::family::plain_op;
use super::window;

plain_op! {
    /// Operands: input `[n, c, h, w]`, weight `[made, c / groups, kh, kw]`, stride, dilation, groups. No padding; sums are taken wide and
    /// rounded once.
    Conv2d, "conv2d", "weighted sums over sliding windows of two axes", 5..=5, |o| window::conv_infer(o, 4), |i: &_| window::conv(i, 4),
    window::cases(Self, &[
        (&[&[2, 4, 5, 6], &[6, 4, 3, 2]], &[&[1, 1], &[1, 1], &[1]]),
        (&[&[1, 4, 5, 6], &[6, 2, 3, 2]], &[&[2, 1], &[1, 2], &[2]]),
        (&[&[1, 3, 1, 4], &[2, 3, 1, 1]], &[&[1, 1], &[1, 1], &[1]]),
    ])
}
