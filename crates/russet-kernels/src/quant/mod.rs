//! Weight matrices [n, k] as rows in their stored format, dequantised on the way to the multiplier.
//!
//! [`RowFormat`] is the one thing matrix products know of a weight. A format gives its values in an [`Order`] that suits its
//! packing; activations are put in the same order once per product, which costs less than unpacking every weight.

mod blocks;
mod dense;
mod elements;
mod gguf;
mod tables;

use crate::isa::Isa;
use crate::scratch;

pub use blocks::{BlockRows, Code, Floats};
pub use dense::DenseRows;
pub use elements::{Elements, Meaning};
pub use gguf::{BlockFormat, GgufRows};
pub use tables::{Grid, Palette, Scaling, TableRows, gcd, join_codes, turn_codes};

/// A weight matrix [n, k] in some storage format.
pub trait RowFormat: Sync {
    /// Rows: n, the outputs.
    fn rows(&self) -> usize;
    /// Columns: k, the inputs.
    fn k(&self) -> usize;
    /// The order in which columns are given.
    fn order(&self) -> Order {
        Order::Natural
    }
    /// Whether the values are no finer than half precision, relative to the largest around them.
    fn no_finer_than_half(&self) -> bool;
    /// Writes columns `start..start + out.len()` of `row`, in this format's order, rounded to the compute type.
    /// `start` is a multiple of [`COLUMN_STEP`], and so is the length unless the row ends there.
    fn dequantize(&self, isa: Isa, row: usize, start: usize, out: &mut [f32]);
    /// out[i] = the product of row `first + i` with `x`, which has `k` elements in this format's order.
    fn dot_rows(&self, isa: Isa, first: usize, x: &[f32], out: &mut [f32]) {
        let row = &mut *scratch::floats(self.k());
        for (i, y) in out.iter_mut().enumerate() {
            self.dequantize(isa, first + i, 0, row);
            *y = dense::dot(isa, row, x);
        }
    }
}

/// Where a product may cut rows: a multiple of every block size of every format whose blocks matter.
pub const COLUMN_STEP: usize = 512;

/// The order of columns within a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// As in the matrix.
    Natural,
    /// In each group of 32 the even columns, then the odd ones: how low-nibble-first bytes unpack.
    EvenOdd,
}

impl Order {
    /// Puts `x`, in matrix order, into this order. For [`Order::EvenOdd`] the length is a multiple of 32.
    pub fn arrange(self, x: &[f32], out: &mut [f32]) {
        match self {
            Order::Natural => out.copy_from_slice(x),
            Order::EvenOdd => groups(x, out, |i| (i / 2 + 16 * (i % 2), i)),
        }
    }

    /// The inverse of [`Order::arrange`].
    pub fn restore(self, x: &[f32], out: &mut [f32]) {
        match self {
            Order::Natural => out.copy_from_slice(x),
            Order::EvenOdd => groups(x, out, |i| (i, i / 2 + 16 * (i % 2))),
        }
    }
}

/// out[to] = x[from] within each group of 32, `(to, from)` given by `places`.
#[inline(always)]
fn groups(x: &[f32], out: &mut [f32], places: impl Fn(usize) -> (usize, usize)) {
    assert_eq!(x.len(), out.len(), "order: lengths");
    for (x, out) in x.chunks_exact(32).zip(out.chunks_exact_mut(32)) {
        for i in 0..32 {
            let (to, from) = places(i);
            out[to] = x[from];
        }
    }
}

/// Writes row `row` of `weights` in matrix order, rounded to the compute type: what an embedding lookup reads.
///
/// # Panics
/// If `out` does not have k elements or the row is out of range.
pub fn dequantize_row(weights: &dyn RowFormat, row: usize, out: &mut [f32]) {
    assert_eq!(out.len(), weights.k(), "dequantize_row: length");
    if weights.order() == Order::Natural {
        return weights.dequantize(Isa::best(), row, 0, out);
    }
    let ordered = &mut *scratch::floats(out.len());
    weights.dequantize(Isa::best(), row, 0, ordered);
    weights.order().restore(ordered, out);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_odd_unpacks_bytes_in_order() {
        let x: Vec<f32> = (0..64).map(|i| i as f32).collect();
        let (mut there, mut back) = (vec![0.0; 64], vec![0.0; 64]);
        Order::EvenOdd.arrange(&x, &mut there);
        assert_eq!(there[..4], [0.0, 2.0, 4.0, 6.0]);
        assert_eq!(there[16..18], [1.0, 3.0]);
        assert_eq!(there[32], 32.0);
        Order::EvenOdd.restore(&there, &mut back);
        assert_eq!(back, x);
    }
}
