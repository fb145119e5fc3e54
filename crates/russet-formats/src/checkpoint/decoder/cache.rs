//! States: rows of keys and values for every position, and of the delta rule's running values.

use std::sync::Arc;

use russet_graph::attr::Attr;
use russet_graph::error::OpError;
use russet_graph::graph::ValueId;
use russet_graph::ops::concat::Concat;
use russet_graph::ops::create_token::CreateToken;
use russet_graph::ops::expand_dims::ExpandDims;
use russet_graph::ops::read_handle::ReadHandle;
use russet_graph::ops::shrink_dims::ShrinkDims;
use russet_graph::ops::slice::Slice;
use russet_graph::ops::slice_update::SliceUpdate;
use russet_graph::ops::write_handle::WriteHandle;
use russet_graph::types::{TensorType, Type};

use super::{Builder, Decoder, DecoderConfig, END, Result, extent};
use crate::builder::BuildError;

/// Names of the caches of keys and values, as bundles have them; the second pair is of layers with heads of another shape.
const CACHES: [[&str; 2]; 2] = [
    ["keyCache", "valueCache"],
    ["globalKeyCache", "globalValueCache"],
];
/// Names of the states of the delta rule, alike.
const RUNNING: [&str; 2] = ["convStates", "recurrentStates"];

/// A state: its handle, its present value and the token after which that is so.
#[derive(Clone, Copy)]
pub(super) struct State {
    name: &'static str,
    handle: ValueId,
    value: ValueId,
    token: ValueId,
}

/// All states of the decoder.
pub(super) struct States {
    /// Keys, values, keys, values …
    caches: Vec<State>,
    /// Inputs of the convolutions, states of the delta rules; empty where there are none.
    running: Vec<State>,
}

/// Which state.
#[derive(Clone, Copy)]
pub(super) enum Which {
    Keys(usize),
    Values(usize),
    Convolution,
    Recurrent,
}

impl States {
    pub(super) fn new(b: &mut Builder, config: &DecoderConfig) -> Result<Self> {
        let caches: Vec<_> = caches(b, config);
        let running: Vec<_> = running(b, config);
        let start = b.op(CreateToken, &[])?;
        let mut read_all = |handles: Vec<(&'static str, ValueId)>| {
            let each = handles.into_iter();
            each.map(|(name, handle)| read(b, name, handle, start))
                .collect::<Result<Vec<State>>>()
        };
        Ok(Self {
            caches: read_all(caches)?,
            running: read_all(running)?,
        })
    }

    /// The state, where the config has it.
    fn find(&mut self, which: Which) -> Option<&mut State> {
        match which {
            Which::Keys(i) => self.caches.get_mut(2 * i),
            Which::Values(i) => self.caches.get_mut(2 * i + 1),
            Which::Convolution => self.running.get_mut(0),
            Which::Recurrent => self.running.get_mut(1),
        }
    }

    /// Names and last tokens.
    pub(super) fn outputs(&self) -> Vec<(&'static str, ValueId)> {
        let all = self.caches.iter().chain(&self.running);
        all.map(|s| (s.name, s.token)).collect()
    }
}

/// Handles of keys and values, `[rows, 1, h, context, d]`.
fn caches(b: &mut Builder, config: &DecoderConfig) -> Vec<(&'static str, ValueId)> {
    let shapes = config.caches.iter().zip(CACHES);
    let mut handles = Vec::new();
    for (shape, names) in shapes {
        let shape = [
            shape.rows,
            1,
            shape.kv_heads,
            config.context,
            shape.head_dim,
        ];
        handles.extend(names.map(|name| (name, handle(b, config, name, &shape))));
    }
    handles
}

/// Handles of the delta rules' states: `[rows, 1, kernel - 1, channels]` and `[rows, 1, h, dk, dv]`.
fn running(b: &mut Builder, config: &DecoderConfig) -> Vec<(&'static str, ValueId)> {
    let Some(delta) = config.deltas().next() else {
        return Vec::new();
    };
    let rows = config.deltas().count();
    let past = [rows, 1, delta.kernel - 1, delta.channels()];
    let state = [rows, 1, delta.value_heads, delta.key_dim, delta.value_dim];
    let shapes: [&[usize]; 2] = [&past, &state];
    let each = RUNNING.into_iter().zip(shapes);
    each.map(|(name, shape)| (name, handle(b, config, name, shape)))
        .collect()
}

fn handle(b: &mut Builder, config: &DecoderConfig, name: &str, shape: &[usize]) -> ValueId {
    let mutated = (Arc::from("MutableBuffers.buffer_mutation"), Attr::str(name));
    let ty = Type::Handle(TensorType::fixed(config.dtype, shape));
    b.input(name, ty, vec![mutated])
}

/// The value of a state after `token`.
fn read(b: &mut Builder, name: &'static str, handle: ValueId, token: ValueId) -> Result<State> {
    let [value, token] = b.ops(ReadHandle, &[handle, token])?;
    Ok(State {
        name,
        handle,
        value,
        token,
    })
}

impl Decoder<'_> {
    fn state(&mut self, which: Which) -> Result<State> {
        let missing = BuildError {
            op: "read_handle",
            error: OpError::Unknown("a state"),
        };
        let state = self.states.find(which).copied();
        state.ok_or_else(|| missing.into())
    }

    /// Writes `[1, h, q, d]` to the positions of this call in a row of a cache.
    pub(super) fn store(&mut self, which: Which, row: usize, x: ValueId) -> Result<()> {
        let begin = self.bounds(&[extent(row), 0, 0], self.lengths.past, 0)?;
        let end = self.bounds(&[extent(row + 1), END, END], self.lengths.total, END)?;
        self.write(which, x, begin, end, 5)
    }

    /// The positions so far of a row of a cache: `[1, h, total, d]`.
    pub(super) fn recall(&mut self, which: Which, row: usize) -> Result<ValueId> {
        let begin = self.b.ints(&[extent(row), 0, 0, 0, 0])?;
        let end = self.bounds(&[extent(row + 1), END, END], self.lengths.total, END)?;
        self.part(which, begin, end, 5)
    }

    /// A row of a running state of `rank` axes, without the first.
    pub(super) fn running(&mut self, which: Which, row: usize, rank: usize) -> Result<ValueId> {
        let (begin, end) = self.whole(row, rank)?;
        self.part(which, begin, end, rank)
    }

    /// Replaces a row of a running state of `rank` axes.
    pub(super) fn run(&mut self, which: Which, row: usize, x: ValueId, rank: usize) -> Result<()> {
        let (begin, end) = self.whole(row, rank)?;
        self.write(which, x, begin, end, rank)
    }

    fn part(&mut self, which: Which, begin: ValueId, end: ValueId, rank: usize) -> Result<ValueId> {
        let state = self.state(which)?;
        let steps = self.b.ints(&vec![1; rank])?;
        let part = self.b.op(Slice, &[state.value, begin, end, steps])?;
        let zero = self.b.ints(&[0])?;
        self.b.op(ShrinkDims, &[part, zero])
    }

    fn write(
        &mut self,
        which: Which,
        x: ValueId,
        begin: ValueId,
        end: ValueId,
        rank: usize,
    ) -> Result<()> {
        let state = self.state(which)?;
        let zero = self.b.ints(&[0])?;
        let x = self.b.op(ExpandDims, &[x, zero])?;
        let steps = self.b.ints(&vec![1; rank])?;
        let updated = self
            .b
            .op(SliceUpdate, &[state.value, begin, end, steps, x])?;
        let token = self
            .b
            .op(WriteHandle, &[state.handle, updated, state.token])?;
        let after = read(&mut self.b, state.name, state.handle, token)?;
        if let Some(place) = self.states.find(which) {
            *place = after;
        }
        Ok(())
    }

    /// Bounds of five axes: three integers, a length, an integer.
    fn bounds(&mut self, first: &[i32; 3], length: ValueId, last: i32) -> Result<ValueId> {
        let parts = [
            self.b.int(0)?,
            self.b.ints(first)?,
            length,
            self.b.ints(&[last])?,
        ];
        self.b.op(Concat, &parts)
    }

    /// Bounds of a row.
    fn whole(&mut self, row: usize, rank: usize) -> Result<(ValueId, ValueId)> {
        let (mut begin, mut end) = (vec![0; rank], vec![END; rank]);
        if let (Some(first), Some(last)) = (begin.first_mut(), end.first_mut()) {
            (*first, *last) = (extent(row), extent(row + 1));
        }
        Ok((self.b.ints(&begin)?, self.b.ints(&end)?))
    }
}
