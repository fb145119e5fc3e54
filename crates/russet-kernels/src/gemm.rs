//! The matrix micro-kernel: a tile of weight rows times a panel of tokens, all in registers.
//!
//! Tokens lie along the lanes. Activations are packed once into panels [k][tokens]; weights are read a scalar at a time
//! from rows of any stride and broadcast, so they need no transposing after dequantisation. The tile of
//! [`Simd::TILE_ROWS`] rows by two registers keeps two multiply-add units busy.

use crate::elem::Elem;
use crate::simd::{Kernel, Simd};

/// Registers of tokens per panel.
pub(crate) const PANEL_REGISTERS: usize = 2;

/// Tokens per panel.
pub(crate) const fn panel_width<S: Simd>() -> usize {
    PANEL_REGISTERS * S::LANES
}

/// Asks for the panel width of an instruction set.
pub(crate) struct Width;

impl Kernel for Width {
    type Out = usize;
    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> usize {
        panel_width::<S>()
    }
}

/// A weight tile: element (row, column) is `data[row * row_stride + column * column_stride]`.
#[derive(Clone, Copy)]
pub(crate) struct Tile<'a> {
    pub(crate) data: &'a [f32],
    pub(crate) row_stride: usize,
    pub(crate) column_stride: usize,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
}

impl Tile<'_> {
    /// Whether every element lies in `data`.
    fn fits(&self) -> bool {
        let last = |n: usize, stride: usize| n.saturating_sub(1).saturating_mul(stride);
        let end =
            last(self.rows, self.row_stride).saturating_add(last(self.columns, self.column_stride));
        self.rows == 0 || self.columns == 0 || end < self.data.len()
    }
}

/// Whether the result replaces or adds to what is there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Store {
    Replace,
    Add,
}

/// out[row * out_stride + token] (=, +=) sum over columns of tile(row, column) * panel[column * width + token].
///
/// `tile.rows` is a multiple of [`Simd::TILE_ROWS`]; `panel` holds `tile.columns` groups of [`panel_width`] tokens, of
/// which the first `tokens` are wanted (more may be written, up to the panel's width).
///
/// Products and sums are fused, or else rounded one after the other to `R`.
#[inline(always)]
pub(crate) fn multiply<S: Simd, R: Elem, const FUSED: bool>(
    s: S,
    tile: Tile<'_>,
    panel: &[f32],
    tokens: usize,
    (out, out_stride): (&mut [f32], usize),
    store: Store,
) {
    assert!(
        tile.fits() && panel.len() == tile.columns * panel_width::<S>(),
        "multiply: tile and panel"
    );
    let mut row = 0;
    while row < tile.rows {
        let out = &mut out[row * out_stride..];
        let narrow = tokens <= S::LANES;
        match (S::TILE_ROWS, narrow) {
            (12, false) => {
                micro::<S, R, FUSED, 12, 2>(s, tile, row, panel, (out, out_stride), store);
            }
            (12, true) => {
                micro::<S, R, FUSED, 12, 1>(s, tile, row, panel, (out, out_stride), store);
            }
            (6, false) => micro::<S, R, FUSED, 6, 2>(s, tile, row, panel, (out, out_stride), store),
            (6, true) => micro::<S, R, FUSED, 6, 1>(s, tile, row, panel, (out, out_stride), store),
            (_, false) => micro::<S, R, FUSED, 4, 2>(s, tile, row, panel, (out, out_stride), store),
            (_, true) => micro::<S, R, FUSED, 4, 1>(s, tile, row, panel, (out, out_stride), store),
        }
        row += S::TILE_ROWS;
    }
}

/// `R` rows by `N` registers. `multiply` has checked that the tile fits.
#[inline(always)]
fn micro<S: Simd, T: Elem, const FUSED: bool, const R: usize, const N: usize>(
    s: S,
    tile: Tile<'_>,
    first: usize,
    panel: &[f32],
    (out, out_stride): (&mut [f32], usize),
    store: Store,
) {
    assert!(first + R <= tile.rows, "micro: whole tiles");
    let mut sums = [[s.splat(0.0); N]; R];
    if store == Store::Add {
        for (row, sums) in sums.iter_mut().enumerate() {
            for (i, sum) in sums.iter_mut().enumerate() {
                *sum = s.load(&out[row * out_stride + i * S::LANES..]);
            }
        }
    }
    let base = first * tile.row_stride;
    for (column, tokens) in panel.chunks_exact(panel_width::<S>()).enumerate() {
        let mut x = [s.splat(0.0); N];
        for i in 0..N {
            x[i] = s.load(&tokens[i * S::LANES..]);
        }
        let at = base + column * tile.column_stride;
        for (r, sums) in sums.iter_mut().enumerate() {
            // SAFETY: `first + r` < rows and `column` < columns, so the index is at most the one `Tile::fits` checked.
            let w = s.splat(unsafe { *tile.data.get_unchecked(at + r * tile.row_stride) });
            for i in 0..N {
                sums[i] = if FUSED {
                    s.fma(w, x[i], sums[i])
                } else {
                    T::round(s, s.add(sums[i], T::round(s, s.mul(w, x[i]))))
                };
            }
        }
    }
    for (row, sums) in sums.iter().enumerate() {
        for (i, sum) in sums.iter().enumerate() {
            s.store(*sum, &mut out[row * out_stride + i * S::LANES..]);
        }
    }
}

/// Packs rows of tokens, `x[token * stride..][..k]`, into one panel [k][width]; missing tokens are zero.
#[inline(always)]
pub(crate) fn pack<S: Simd>(_: S, x: &[f32], stride: usize, tokens: usize, panel: &mut [f32]) {
    let width = panel_width::<S>();
    if tokens < width {
        panel.fill(0.0);
    }
    // Sixteen columns at a time: their cache lines stay near while every token fills its place in them.
    for (block, columns) in panel.chunks_mut(16 * width).enumerate() {
        for token in 0..tokens.min(width) {
            let from = token * stride + block * 16;
            for (column, x) in columns.chunks_exact_mut(width).zip(&x[from..]) {
                column[token] = *x;
            }
        }
    }
}
