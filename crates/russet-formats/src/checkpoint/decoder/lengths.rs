//! What the lengths of a call are, and shapes made of them.

use russet_graph::graph::ValueId;
use russet_graph::ops::broadcasting_sub::BroadcastingSub;
use russet_graph::ops::cast::Cast;
use russet_graph::ops::concat::Concat;
use russet_graph::ops::get_shape::GetShape;
use russet_graph::ops::reshape::Reshape;
use russet_graph::ops::slice::Slice;
use russet_graph::ops::transpose::Transpose;
use russet_graph::types::DType;

use super::{Builder, Decoder, END, Result, extent};

/// Integers that every layer needs.
#[derive(Clone, Copy)]
pub(super) struct Lengths {
    /// `[q]`.
    pub(super) query: ValueId,
    /// `[total - q]`.
    pub(super) past: ValueId,
    /// `[total]`.
    pub(super) total: ValueId,
    /// The positions of the tokens of this call, `[1, q]`.
    pub(super) positions: ValueId,
    /// All positions, `[1, total]`.
    pub(super) all: ValueId,
}

impl Lengths {
    pub(super) fn new(b: &mut Builder, input_ids: ValueId, position_ids: ValueId) -> Result<Self> {
        let (query, total) = (length(b, input_ids)?, length(b, position_ids)?);
        let past = b.op(BroadcastingSub, &[total, query])?;
        let parts = [b.int(0)?, b.ints(&[0])?, past];
        let begin = b.op(Concat, &parts)?;
        let (end, steps) = (b.ints(&[END; 2])?, b.ints(&[1; 2])?);
        let positions = b.op(Slice, &[position_ids, begin, end, steps])?;
        Ok(Self {
            query,
            past,
            total,
            positions,
            all: position_ids,
        })
    }
}

/// The second extent of `[1, n]` as `[n]`.
fn length(b: &mut Builder, x: ValueId) -> Result<ValueId> {
    let shape = b.op(GetShape, &[x])?;
    let (one, two) = (b.ints(&[1])?, b.ints(&[2])?);
    let extent = b.op(Slice, &[shape, one, two, one])?;
    b.op(Cast { to: DType::I32 }, &[extent])
}

impl Decoder<'_> {
    /// The shape where `None` is q.
    pub(super) fn shape(&mut self, extents: &[Option<usize>]) -> Result<ValueId> {
        let mut parts = vec![self.b.int(0)?];
        for n in extents {
            parts.push(match n {
                None => self.lengths.query,
                Some(n) => self.b.ints(&[extent(*n)])?,
            });
        }
        self.b.op(Concat, &parts)
    }

    pub(super) fn reshape(&mut self, x: ValueId, extents: &[Option<usize>]) -> Result<ValueId> {
        let shape = self.shape(extents)?;
        self.b.op(Reshape, &[x, shape])
    }

    pub(super) fn transpose(&mut self, x: ValueId, order: &[i32]) -> Result<ValueId> {
        let order = self.b.ints(order)?;
        self.b.op(Transpose, &[x, order])
    }

    /// Elements `from..to` of the last of `rank` axes.
    pub(super) fn columns(
        &mut self,
        x: ValueId,
        rank: usize,
        from: usize,
        to: usize,
    ) -> Result<ValueId> {
        let (mut begin, mut end) = (vec![0; rank], vec![END; rank]);
        if let (Some(first), Some(last)) = (begin.last_mut(), end.last_mut()) {
            (*first, *last) = (extent(from), extent(to));
        }
        let bounds = [
            self.b.ints(&begin)?,
            self.b.ints(&end)?,
            self.b.ints(&vec![1; rank])?,
        ];
        self.b.op(Slice, &[&[x], &bounds[..]].concat())
    }

    /// `[1, q, h · d]` to `[1, h, q, d]`.
    pub(super) fn split(&mut self, x: ValueId, heads: usize, width: usize) -> Result<ValueId> {
        let x = self.reshape(x, &[Some(1), None, Some(heads), Some(width)])?;
        self.transpose(x, &[0, 2, 1, 3])
    }

    /// `[1, h, q, d]` to `[1, q, h · d]`.
    pub(super) fn join(&mut self, x: ValueId, wide: usize) -> Result<ValueId> {
        let x = self.transpose(x, &[0, 2, 1, 3])?;
        self.reshape(x, &[Some(1), None, Some(wide)])
    }
}
