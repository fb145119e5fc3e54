//! `conv3d`: weighted sums over sliding windows of three axes.

use super::family::plain_op;
use super::window;

plain_op! {
    /// Operands: input `[n, c, d, h, w]`, weight `[made, c / groups, kd, kh, kw]`, stride, dilation, groups. See
    /// [`conv2d`](super::conv2d).
    Conv3d, "conv3d", "weighted sums over sliding windows of three axes", 5..=5, |o| window::conv_infer(o, 5), |i: &_| window::conv(i, 5),
    window::cases(Self, &[
        (&[&[1, 2, 3, 4, 5], &[3, 2, 2, 3, 1]], &[&[1, 1, 2], &[1, 1, 1], &[1]]),
        (&[&[1, 2, 3, 4, 5], &[2, 1, 2, 1, 2]], &[&[1, 2, 1], &[2, 1, 1], &[2]]),
    ])
}
