//! `conv_transpose2d`: the transpose of a convolution over two axes.

use super::family::plain_op;
use super::window;

plain_op! {
    /// Operands: input `[n, c, h, w]`, weight `[c, made / groups, kh, kw]`, stride, padding (cut from both ends), dilation, output padding
    /// (added at the end), groups.
    ConvTranspose2d, "conv_transpose2d", "the transpose of a convolution over two axes", 7..=7, |o| window::transposed_infer(o, 4), |i: &_| window::transposed(i, 4),
    window::cases(Self, &[
        (&[&[1, 4, 5, 6], &[4, 3, 3, 2]], &[&[2, 2], &[1, 0], &[1, 1], &[0, 0], &[1]]),
        (&[&[2, 4, 3, 2], &[4, 3, 2, 2]], &[&[1, 3], &[0, 1], &[2, 1], &[0, 1], &[2]]),
    ])
}
