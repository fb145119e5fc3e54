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
#[inline(always)]
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
    #[inline(always)]
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

/// Rows that the micro-kernel takes where fewer than [`Simd::TILE_ROWS`] are left.
#[inline(always)]
pub(crate) const fn rest_rows<S: Simd>() -> usize {
    if S::TILE_ROWS.is_multiple_of(4) { 4 } else { 2 }
}

/// out[row * out_stride + token] (=, +=) sum over columns of tile(row, column) * panel[column * width + token].
///
/// `tile.rows` is a multiple of [`rest_rows`]; `panel` holds `tile.columns` groups of [`panel_width`] tokens, of
/// which the first `tokens` are wanted (more may be written, up to the panel's width).
///
/// Products and sums are fused, or else rounded one after the other to `R`.
#[inline(always)]
pub(crate) fn multiply<S: Simd, R: Elem, const FUSED: bool>(
    s: S,
    tile: Tile<'_>,
    panel: &[f32],
    tokens: usize,
    out: (&mut [f32], usize),
    store: Store,
) {
    assert!(
        tile.fits() && panel.len() == tile.columns * panel_width::<S>(),
        "multiply: tile and panel"
    );
    if tokens <= S::LANES {
        strips::<S, R, FUSED, 1>(s, tile, panel, out, store);
    } else {
        strips::<S, R, FUSED, 2>(s, tile, panel, out, store);
    }
}

/// Whole tiles of rows, then the rest.
#[inline(always)]
fn strips<S: Simd, R: Elem, const FUSED: bool, const N: usize>(
    s: S,
    tile: Tile<'_>,
    panel: &[f32],
    (out, stride): (&mut [f32], usize),
    store: Store,
) {
    let mut row = 0;
    while row < tile.rows {
        let out = (&mut out[row * stride..], stride);
        let whole = tile.rows - row >= S::TILE_ROWS;
        let rows = if whole {
            S::TILE_ROWS
        } else {
            rest_rows::<S>()
        };
        match rows {
            12 => micro::<S, R, FUSED, 12, N>(s, tile, row, panel, out, store),
            8 => micro::<S, R, FUSED, 8, N>(s, tile, row, panel, out, store),
            6 => micro::<S, R, FUSED, 6, N>(s, tile, row, panel, out, store),
            4 => micro::<S, R, FUSED, 4, N>(s, tile, row, panel, out, store),
            _ => micro::<S, R, FUSED, 2, N>(s, tile, row, panel, out, store),
        }
        row += rows;
    }
}

/// `R` rows by `N` registers. `multiply` has checked that the tile fits. Loops over indices, which keep the sums in registers.
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
        let mut r = 0;
        while r < R {
            for i in 0..N {
                sums[r][i] = s.load(&out[r * out_stride + i * S::LANES..]);
            }
            r += 1;
        }
    }
    let (mut column, mut at) = (0, first * tile.row_stride);
    while column < tile.columns {
        let tokens = &panel[column * panel_width::<S>()..(column + 1) * panel_width::<S>()];
        let mut x = [s.splat(0.0); N];
        for i in 0..N {
            x[i] = s.load(&tokens[i * S::LANES..]);
        }
        let mut r = 0;
        while r < R {
            // SAFETY: `first + r` < rows and `column` < columns, so the index is at most the one `Tile::fits` checked.
            let w = s.splat(unsafe { *tile.data.get_unchecked(at + r * tile.row_stride) });
            for i in 0..N {
                sums[r][i] = if FUSED {
                    s.fma(w, x[i], sums[r][i])
                } else {
                    T::round(s, s.add(sums[r][i], T::round(s, s.mul(w, x[i]))))
                };
            }
            r += 1;
        }
        column += 1;
        at += tile.column_stride;
    }
    let mut r = 0;
    while r < R {
        for i in 0..N {
            s.store(sums[r][i], &mut out[r * out_stride + i * S::LANES..]);
        }
        r += 1;
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
    let (mut first, k) = (0, panel.len() / width);
    while first < k {
        let count = 16.min(k - first);
        let columns = &mut panel[first * width..(first + count) * width];
        let mut token = 0;
        while token < tokens.min(width) {
            let x = &x[token * stride + first..][..count];
            let mut c = 0;
            while c < count {
                columns[c * width + token] = x[c];
                c += 1;
            }
            token += 1;
        }
        first += count;
    }
}
