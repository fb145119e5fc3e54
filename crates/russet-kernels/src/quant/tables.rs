//! Codes of 1 to 8 bits looked up in tables: palettes, small integers and small floats, scaled in blocks of any shape.
//!
//! This is `coreai.lut_to_dense` and `coreai.blockwise_shift_scale` (contract B), one after the other or alone. A row is a run of segments
//! in which neither the palette nor the scale changes. Codes of up to four bits have a table in a register, into which the segment's
//! scale has gone already; larger ones are fetched from memory, and scaled before or after, whichever is less work.

use std::ops::Range;

use super::elements::{Elements, Meaning, bytes_as};
use super::{Order, RowFormat};
use crate::elem::{Elem, Rounding};
use crate::isa::Isa;
use crate::scratch;
use crate::simd::codes::code;
use crate::simd::{Kernel, MAX_LANES, Simd};

/// Numbers that hold for blocks of a matrix.
#[derive(Clone, Copy, Debug)]
pub struct Grid<'a> {
    /// The numbers, one a block (of tables, one table a block).
    pub data: Elements<'a>,
    /// Rows and columns of a block.
    pub block: [usize; 2],
    /// How far apart the numbers of a block and of the one below it are, and of the one beside it.
    pub strides: [usize; 2],
}

impl Grid<'_> {
    /// Whether the blocks cover a matrix, with `each` numbers in every one.
    fn covers(&self, rows: usize, k: usize, each: usize) -> bool {
        let last = |axis: usize, extent: usize| {
            let blocks = extent.checked_div(self.block[axis])?;
            let whole = blocks.checked_mul(self.block[axis]) == Some(extent);
            blocks
                .checked_sub(1)
                .filter(|_| whole)?
                .checked_mul(self.strides[axis])
        };
        let count = || {
            last(0, rows)?
                .checked_add(last(1, k)?)?
                .checked_add(1)?
                .checked_mul(each)
        };
        count().is_some_and(|n| n <= self.data.len())
    }

    #[inline(always)]
    fn at(&self, row: usize, column: usize) -> usize {
        row / self.block[0] * self.strides[0] + column / self.block[1] * self.strides[1]
    }

    /// The numbers of the segments of `len` columns from column `start` on.
    #[inline(always)]
    fn read<S: Simd>(&self, s: S, row: usize, start: usize, len: usize, out: &mut [f32]) {
        let first = self.at(row, start);
        if start % self.block[1] + out.len() * len <= self.block[1] {
            out.fill(self.data.get(first));
        } else if self.block[1] == len {
            self.data.read(s, first, self.strides[1], out);
        } else {
            for (i, out) in out.iter_mut().enumerate() {
                *out = self.data.get(self.at(row, start + i * len));
            }
        }
    }
}

/// What codes are looked up in.
#[derive(Clone, Copy, Debug)]
pub struct Palette<'a> {
    /// For each block of codes `2^bits` vectors.
    pub tables: Grid<'a>,
    /// Elements of a vector: rows of the matrix that share a row of codes.
    pub vector: usize,
}

/// What becomes of the numbers that codes stand for.
#[derive(Clone, Copy, Debug)]
pub struct Scaling<'a> {
    /// What they are multiplied with.
    pub scale: Grid<'a>,
    /// What is subtracted before; `None` for zeros.
    pub zero: Option<Grid<'a>>,
    /// What is added after; `None` for zeros.
    pub shift: Option<Grid<'a>>,
    /// Whether it is done as `q * scale + (shift - zero * scale)`: where numbers are whole bytes (see `blockwise_shift_scale`).
    pub folded: bool,
}

/// A matrix of codes looked up in tables, then scaled.
#[derive(Clone, Copy, Debug)]
pub struct TableRows<'a> {
    /// The codes, row-major, from the lowest bit of every byte up, without gaps.
    pub codes: &'a [u8],
    /// Bits of a code: 1, 2, 3, 4, 6 or 8.
    pub bits: usize,
    /// What codes stand for where there is no palette.
    pub meaning: Meaning,
    /// Rows (n) of the matrix.
    pub rows: usize,
    /// Columns (k).
    pub k: usize,
    /// The tables; `None` where codes stand for themselves.
    pub palette: Option<Palette<'a>>,
    /// The scaling; `None` where there is none.
    pub scaling: Option<Scaling<'a>>,
    /// The type each step is rounded to.
    pub rounding: Rounding,
}

impl TableRows<'_> {
    /// Checks that the parts fit together; `None` if they do not.
    pub fn checked(self) -> Option<Self> {
        let (rows, k) = (self.rows, self.k);
        let vector = self.palette.map_or(1, |p| p.vector);
        let lines = rows
            .checked_div(vector)
            .filter(|l| l.checked_mul(vector) == Some(rows))?;
        let bytes = lines.checked_mul(k)?.checked_mul(self.bits)?.div_ceil(8);
        let each = vector.checked_mul(1 << self.bits.min(8))?;
        let tables = self.palette.is_none_or(|p| p.tables.covers(lines, k, each));
        let grid = |g: Option<Grid<'_>>| g.is_none_or(|g| g.covers(rows, k, 1));
        let scaling = self
            .scaling
            .is_none_or(|s| grid(Some(s.scale)) && grid(s.zero) && grid(s.shift));
        let fits = matches!(self.bits, 1..=4 | 6 | 8) && self.codes.len() >= bytes;
        (fits && tables && scaling && k > 0).then_some(self)
    }

    fn vector(&self) -> usize {
        self.palette.map_or(1, |p| p.vector)
    }

    /// The columns over which nothing changes.
    fn segment(&self) -> usize {
        let grids = [
            self.palette.map(|p| p.tables),
            self.scaling.map(|s| s.scale),
            self.scaling.and_then(|s| s.zero),
            self.scaling.and_then(|s| s.shift),
        ];
        grids
            .iter()
            .flatten()
            .fold(self.k, |a, g| gcd(a, g.block[1]))
    }

    /// Whether tables are scaled, and not what is found in them.
    fn scaled_early(&self) -> bool {
        self.bits <= 4 || self.palette.is_some() && self.segment() >= 1 << self.bits
    }
}

/// The greatest common divisor: runs of that many columns are cut by blocks of neither length.
pub fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

impl RowFormat for TableRows<'_> {
    fn rows(&self) -> usize {
        self.rows
    }
    fn k(&self) -> usize {
        self.k
    }
    fn order(&self) -> Order {
        Order::Natural
    }
    fn no_finer_than_half(&self) -> bool {
        true
    }
    fn dequantize(&self, isa: Isa, row: usize, start: usize, out: &mut [f32]) {
        isa.run(Rows {
            w: self,
            first: row,
            columns: start..start + out.len(),
            work: Write { start, out },
        });
    }
    fn dot_rows(&self, isa: Isa, first: usize, x: &[f32], out: &mut [f32]) {
        assert_eq!(x.len(), self.k, "dot_rows: k");
        isa.run(Rows {
            w: self,
            first,
            columns: 0..self.k,
            work: Dot { x, out },
        });
    }
}

/// Lays the codes of an `[n, k]` matrix out as those of `[k, n]`; `out` is zero before.
///
/// # Panics
/// If there are fewer codes, or less room.
pub fn turn_codes(codes: &[u8], bits: usize, (n, k): (usize, usize), out: &mut [u8]) {
    /// Rows that are read side by side: so many lines of a cache are filled at once.
    const BAND: usize = 64;
    for first in (0..n).step_by(BAND) {
        for column in 0..k {
            for row in first..n.min(first + BAND) {
                put(
                    out,
                    (column * n + row) * bits,
                    code(codes, bits, row * k + column),
                );
            }
        }
    }
}

/// Lays runs of codes, of 1 to 8 bits or of whole bytes, one behind the other; `out` is zero before.
///
/// # Panics
/// If there are fewer codes, or less room.
pub fn join_codes(
    codes: &[u8],
    bits: usize,
    runs: impl Iterator<Item = Range<usize>>,
    out: &mut [u8],
) {
    let mut at = 0;
    for run in runs {
        let (from, len) = (run.start * bits, run.len() * bits);
        if [at, from, len].iter().all(|b| b.is_multiple_of(8)) {
            out[at / 8..][..len / 8].copy_from_slice(&codes[from / 8..][..len / 8]);
        } else {
            let places = (at..).step_by(bits);
            run.zip(places)
                .for_each(|(i, at)| put(out, at, code(codes, bits, i)));
        }
        at += len;
    }
}

/// Writes a code that begins at bit `at`, where zeros are.
fn put(out: &mut [u8], at: usize, code: u8) {
    let value = u16::from(code) << (at % 8);
    out[at / 8] |= value as u8;
    if value > 255 {
        out[at / 8 + 1] |= (value >> 8) as u8;
    }
}

/// Sums that are under way at once.
const SUMS: usize = 4;

/// What is done with the values of rows.
trait Work {
    /// Rows.
    fn rows(&self) -> usize;
    /// `len` values from column `at` on; what `sums` are is for each work to know.
    fn put<S: Simd>(&mut self, s: S, at: usize, v: S::V, len: usize, sum: &mut S::V);
    /// The end of a row.
    fn end<S: Simd>(&mut self, s: S, row: usize, sums: [S::V; SUMS]);
}

struct Write<'a> {
    start: usize,
    out: &'a mut [f32],
}

impl Work for Write<'_> {
    #[inline(always)]
    fn rows(&self) -> usize {
        1
    }
    #[inline(always)]
    fn put<S: Simd>(&mut self, s: S, at: usize, v: S::V, len: usize, _: &mut S::V) {
        f32::store_part(s, v, &mut self.out[at - self.start..], len);
    }
    #[inline(always)]
    fn end<S: Simd>(&mut self, _: S, _: usize, _: [S::V; SUMS]) {}
}

struct Dot<'a> {
    x: &'a [f32],
    out: &'a mut [f32],
}

impl Work for Dot<'_> {
    #[inline(always)]
    fn rows(&self) -> usize {
        self.out.len()
    }
    #[inline(always)]
    fn put<S: Simd>(&mut self, s: S, at: usize, v: S::V, len: usize, sum: &mut S::V) {
        *sum = s.fma(v, f32::load_part(s, &self.x[at..], len), *sum);
    }
    #[inline(always)]
    fn end<S: Simd>(&mut self, s: S, row: usize, sums: [S::V; SUMS]) {
        let [a, b, c, d] = sums;
        self.out[row] = s.sum(s.add(s.add(a, b), s.add(c, d)));
    }
}

/// Some rows, from `first` on, some of their columns.
struct Rows<'a, W> {
    w: &'a TableRows<'a>,
    first: usize,
    columns: Range<usize>,
    work: W,
}

impl<W: Work> Kernel for Rows<'_, W> {
    type Out = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        match (self.w.bits, self.w.palette.is_some()) {
            (1, _) => self.all::<S, Small<1>>(s),
            (2, _) => self.all::<S, Small<2>>(s),
            (3, _) => self.all::<S, Small<3>>(s),
            (4, _) => self.all::<S, Small<4>>(s),
            (6, _) => self.all::<S, Large<6>>(s),
            (_, true) => self.all::<S, Large<8>>(s),
            (_, false) => self.all::<S, Bytes>(s),
        }
    }
}

/// The numbers of a segment's scaling.
#[derive(Clone, Copy)]
struct Affine<V> {
    scale: V,
    zero: V,
    shift: V,
}

/// The tables at work: the palette as it is, and as it is scaled.
struct Tables {
    /// Which palette, and which element of its vectors.
    which: (usize, usize),
    plain: [f32; 256],
    scaled: [f32; 256],
}

impl<W: Work> Rows<'_, W> {
    #[inline(always)]
    fn all<S: Simd, L: Lookup>(mut self, s: S) {
        let (w, len, early) = (self.w, self.w.segment(), self.w.scaled_early());
        let first = self.columns.start / len;
        let count = self.columns.end.div_ceil(len) - first;
        let parameters = &mut *scratch::floats(3 * count);
        let mut tables = Tables {
            which: (usize::MAX, 0),
            plain: [0.0; 256],
            scaled: [0.0; 256],
        };
        for i in 0..self.work.rows() {
            let row = self.first + i;
            read_parameters(s, w, row, (first * len, len), parameters);
            let mut sums = [s.splat(0.0); SUMS];
            let mut segment = 0;
            while segment < count {
                let from = (first + segment) * len;
                let columns = self.columns.start.max(from)..self.columns.end.min(from + len);
                let affine = Affine {
                    scale: s.splat(parameters[segment]),
                    zero: s.splat(parameters[count + segment]),
                    shift: s.splat(parameters[2 * count + segment]),
                };
                // Without a scaling the tables stay as they are for as long as the palette does.
                let fresh = tables.choose(s, w, row, from) || w.scaling.is_some();
                if fresh && early {
                    tables.scale::<S>(s, w, affine);
                }
                let lookup = L::new(s, &tables.scaled);
                let run = Segment::<S, L> {
                    w,
                    row,
                    columns,
                    lookup,
                    affine,
                };
                if w.scaling.is_some() && !early {
                    run.each::<W, true>(s, &mut sums, &mut self.work);
                } else {
                    run.each::<W, false>(s, &mut sums, &mut self.work);
                }
                segment += 1;
            }
            self.work.end(s, i, sums);
        }
    }
}

/// Scales, zeros and what is added of a row's segments, one kind after the other.
#[inline(always)]
fn read_parameters<S: Simd>(
    s: S,
    w: &TableRows<'_>,
    row: usize,
    (start, len): (usize, usize),
    out: &mut [f32],
) {
    let Some(scaling) = w.scaling else { return };
    let count = out.len() / 3;
    let (scales, rest) = out.split_at_mut(count);
    let (zeros, shifts) = rest.split_at_mut(count);
    scaling.scale.read(s, row, start, len, scales);
    match scaling.zero {
        Some(zero) => zero.read(s, row, start, len, zeros),
        None => zeros.fill(0.0),
    }
    match scaling.shift {
        Some(shift) => shift.read(s, row, start, len, shifts),
        None => shifts.fill(0.0),
    }
    if scaling.folded && scaling.zero.is_some() {
        let round = |x| w.rounding.scalar(x);
        for i in 0..count {
            shifts[i] = round(shifts[i] - round(zeros[i] * scales[i]));
            zeros[i] = 0.0;
        }
    }
}

impl Tables {
    /// Takes up the palette of a row's segment at a column; whether that is another one than before.
    #[inline(always)]
    fn choose<S: Simd>(&mut self, s: S, w: &TableRows<'_>, row: usize, column: usize) -> bool {
        let which = match w.palette {
            Some(p) => (p.tables.at(row / p.vector, column), row % p.vector),
            None => (0, 0),
        };
        if which == self.which {
            return false;
        }
        self.which = which;
        let plain = &mut self.plain[..1 << w.bits];
        match w.palette {
            Some(p) => {
                let first = (which.0 * plain.len()) * p.vector + which.1;
                p.tables.data.read(s, first, p.vector, plain);
            }
            None => (0..plain.len()).for_each(|i| plain[i] = w.meaning.value(i as u8, w.bits)),
        }
        // Above a code there may be bits of the next ones.
        for i in 1 << w.bits..MAX_LANES {
            self.plain[i] = self.plain[i - (1 << w.bits)];
        }
        let used = (1 << w.bits).max(MAX_LANES);
        self.scaled[..used].copy_from_slice(&self.plain[..used]);
        true
    }

    #[inline(always)]
    fn scale<S: Simd>(&mut self, s: S, w: &TableRows<'_>, affine: Affine<S::V>) {
        if w.scaling.is_none() {
            return;
        }
        let mut i = 0;
        while i < (1 << w.bits).max(MAX_LANES) {
            let v = scaled(s, w.rounding, s.load(&self.plain[i..]), affine);
            s.store(v, &mut self.scaled[i..]);
            i += S::LANES;
        }
    }
}

/// `(q - zero) * scale + shift`, rounded at every step.
#[inline(always)]
fn scaled<S: Simd>(s: S, rounding: Rounding, q: S::V, a: Affine<S::V>) -> S::V {
    let v = rounding.apply(s, s.mul(s.sub(q, a.zero), a.scale));
    rounding.apply(s, s.add(v, a.shift))
}

/// A segment of a row, and what its codes are looked up in.
struct Segment<'a, S: Simd, L: Lookup> {
    w: &'a TableRows<'a>,
    row: usize,
    columns: Range<usize>,
    lookup: L::Table<'a, S>,
    affine: Affine<S::V>,
}

impl<S: Simd, L: Lookup> Segment<'_, S, L> {
    /// Gives all values to `work`, by sixteen: [`SUMS`] times sixteen at a time, then one by one, and in the end those that cannot
    /// be read as they lie.
    #[inline(always)]
    fn each<W: Work, const LATE: bool>(&self, s: S, sums: &mut [S::V; SUMS], work: &mut W) {
        let (start, len) = (self.columns.start, self.columns.len());
        let code = self.row / self.w.vector() * self.w.k + start;
        let bit = code * L::BITS;
        let data = &self.w.codes[bit / 8..];
        let readable = (data.len() + 2 * L::BITS).saturating_sub(16) / (2 * L::BITS);
        let whole = if bit.is_multiple_of(8) {
            readable.min(len / 16)
        } else {
            0
        };
        let mut i = 0;
        while i + SUMS <= whole {
            let mut n = 0;
            while n < SUMS {
                let bytes = &data[2 * L::BITS * (i + n)..];
                self.ready::<W, LATE>(s, bytes, (start + 16 * (i + n), n), sums, work);
                n += 1;
            }
            i += SUMS;
        }
        while i < whole {
            let bytes = &data[2 * L::BITS * i..];
            self.ready::<W, LATE>(s, bytes, (start + 16 * i, 0), sums, work);
            i += 1;
        }
        while 16 * i < len {
            let count = (len - 16 * i).min(16);
            let spread = one_a_byte::<L>(self.w, code + 16 * i, count);
            self.sixteen::<W, LATE, true>(s, &spread, (start + 16 * i, count, 0), sums, work);
            i += 1;
        }
    }

    #[inline(always)]
    fn ready<W: Work, const LATE: bool>(
        &self,
        s: S,
        bytes: &[u8],
        (at, sum): (usize, usize),
        sums: &mut [S::V; SUMS],
        work: &mut W,
    ) {
        if let Some(bytes) = bytes.first_chunk::<16>() {
            self.sixteen::<W, LATE, false>(s, bytes, (at, 16, sum), sums, work);
        }
    }

    /// `count` values for the columns from `at` on; one after the other they go to the sums from `sum` on.
    #[inline(always)]
    fn sixteen<W: Work, const LATE: bool, const SPREAD: bool>(
        &self,
        s: S,
        bytes: &[u8; 16],
        (at, count, sum): (usize, usize, usize),
        sums: &mut [S::V; SUMS],
        work: &mut W,
    ) {
        let (mut first, mut n) = (0, sum);
        while first < count {
            let v = L::values::<S, SPREAD>(s, &self.lookup, self.w.meaning, bytes, first);
            let v = if LATE {
                scaled(s, self.w.rounding, v, self.affine)
            } else {
                v
            };
            let len = if SPREAD {
                S::LANES.min(count - first)
            } else {
                S::LANES
            };
            work.put(s, at + first, v, len, &mut sums[n % SUMS]);
            n += 1;
            first += S::LANES;
        }
    }
}

/// Some codes, one in each byte: where they do not begin with a byte, or the data ends.
#[inline(always)]
fn one_a_byte<L: Lookup>(w: &TableRows<'_>, first: usize, count: usize) -> [u8; 16] {
    let mut out = [0; 16];
    let mut i = 0;
    while i < count {
        out[i] = code(w.codes, L::BITS, first + i);
        i += 1;
    }
    out
}

/// A way from sixteen codes to values.
trait Lookup {
    const BITS: usize;
    type Table<'t, S: Simd>;
    fn new<S: Simd>(s: S, table: &[f32; 256]) -> Self::Table<'_, S>;
    /// Values of codes `first..`, which are one in each byte if `SPREAD`.
    fn values<S: Simd, const SPREAD: bool>(
        s: S,
        table: &Self::Table<'_, S>,
        meaning: Meaning,
        bytes: &[u8; 16],
        first: usize,
    ) -> S::V;
}

/// Up to four bits: a table of sixteen.
struct Small<const BITS: usize>;

impl<const BITS: usize> Lookup for Small<BITS> {
    const BITS: usize = BITS;
    type Table<'t, S: Simd> = S::Table;
    #[inline(always)]
    fn new<S: Simd>(s: S, table: &[f32; 256]) -> S::Table {
        s.table(|i| s.load(&table[i..]))
    }
    #[inline(always)]
    fn values<S: Simd, const SPREAD: bool>(
        s: S,
        table: &S::Table,
        _: Meaning,
        bytes: &[u8; 16],
        first: usize,
    ) -> S::V {
        let codes = if SPREAD {
            s.codes::<8>(bytes, first)
        } else {
            s.codes::<BITS>(bytes, first)
        };
        s.pick(*table, codes)
    }
}

/// More bits: a table in memory.
struct Large<const BITS: usize>;

impl<const BITS: usize> Lookup for Large<BITS> {
    const BITS: usize = BITS;
    type Table<'t, S: Simd> = &'t [f32; 256];
    #[inline(always)]
    fn new<S: Simd>(_: S, table: &[f32; 256]) -> &[f32; 256] {
        table
    }
    #[inline(always)]
    fn values<S: Simd, const SPREAD: bool>(
        s: S,
        table: &&[f32; 256],
        _: Meaning,
        bytes: &[u8; 16],
        first: usize,
    ) -> S::V {
        let codes = if SPREAD {
            s.codes::<8>(bytes, first)
        } else {
            s.codes::<BITS>(bytes, first)
        };
        s.fetch::<BITS>(table, codes)
    }
}

/// Bytes that stand for themselves.
struct Bytes;

impl Lookup for Bytes {
    const BITS: usize = 8;
    type Table<'t, S: Simd> = ();
    #[inline(always)]
    fn new<S: Simd>(_: S, _: &[f32; 256]) {}
    #[inline(always)]
    fn values<S: Simd, const SPREAD: bool>(
        s: S,
        (): &(),
        meaning: Meaning,
        bytes: &[u8; 16],
        first: usize,
    ) -> S::V {
        bytes_as(s, meaning, bytes, first)
    }
}

#[cfg(test)]
mod tests;
