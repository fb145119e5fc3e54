//! `conv_transpose3d`: the transpose of a convolution over three axes.

use super::family::plain_op;
use super::window;

plain_op! {
    /// Operands as those of [`conv_transpose2d`](super::conv_transpose2d), with three axes.
    ConvTranspose3d, "conv_transpose3d", "the transpose of a convolution over three axes", 7..=7, |o| window::transposed_infer(o, 5), |i: &_| window::transposed(i, 5),
    window::cases(Self, &[
        (&[&[1, 2, 2, 3, 2], &[2, 1, 2, 2, 2]], &[&[1, 2, 1], &[0, 1, 0], &[1, 1, 2], &[0, 0, 0], &[1]]),
    ])
}
