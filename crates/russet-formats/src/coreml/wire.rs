//! What a message would cost to decode, told before it is: small bytes can stand for many structures.
//!
//! Two bytes are an empty operation, which takes sixty times as much in memory. The walk follows the messages of [`super::proto`] without
//! keeping anything; what it does not know is one structure less.

use super::error::{Place, Problem, Result};

/// The most bytes of structures for every byte of the file; what compilers write takes less than half of it.
const PER_BYTE: usize = 32;
/// What a small file may always take.
const AT_LEAST: usize = 1 << 16;
/// Messages in messages; prost goes no deeper than 100.
const DEPTH: usize = 100;

/// The messages, as far as they differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Model,
    Description,
    FunctionDescription,
    Metadata,
    Feature,
    FeatureType,
    Array,
    Shapes,
    Numbers,
    Program,
    FunctionEntry,
    Function,
    BlockEntry,
    Block,
    Operation,
    ArgumentEntry,
    Argument,
    Binding,
    ValueEntry,
    Named,
    ValueType,
    State,
    Tensor,
    Dimension,
    Value,
    Immediate,
    Elements,
    Texts,
    Text,
}

use Kind::{
    Argument, ArgumentEntry, Array, Binding, Block, BlockEntry, Description, Dimension, Elements,
    Feature, FeatureType, Function, FunctionDescription, FunctionEntry, Immediate, Metadata, Model,
    Named, Numbers, Operation, Program, Shapes, State, Tensor, Text, Texts, Value, ValueEntry,
    ValueType,
};

/// Which field of which message holds messages of which kind.
const FIELDS: &[(Kind, u64, Kind)] = &[
    (Model, 2, Description),
    (Model, 502, Program),
    (Description, 1, Feature),
    (Description, 10, Feature),
    (Description, 13, Feature),
    (Description, 20, FunctionDescription),
    (Description, 100, Metadata),
    (FunctionDescription, 2, Feature),
    (FunctionDescription, 3, Feature),
    (FunctionDescription, 6, Feature),
    (Metadata, 100, Text),
    (Feature, 3, FeatureType),
    (FeatureType, 5, Array),
    (FeatureType, 8, FeatureType),
    (FeatureType, 1, Array),
    (Array, 1, Numbers),
    (Array, 21, Shapes),
    (Array, 31, Shapes),
    (Shapes, 1, Array),
    (Program, 2, FunctionEntry),
    (FunctionEntry, 2, Function),
    (Function, 1, Named),
    (Function, 3, BlockEntry),
    (BlockEntry, 2, Block),
    (Block, 1, Named),
    (Block, 2, Text),
    (Block, 3, Operation),
    (Operation, 2, ArgumentEntry),
    (Operation, 3, Named),
    (Operation, 4, Block),
    (Operation, 5, ValueEntry),
    (ArgumentEntry, 2, Argument),
    (Argument, 1, Binding),
    (Binding, 1, Text),
    (Binding, 2, Value),
    (ValueEntry, 2, Value),
    (Named, 2, ValueType),
    (ValueType, 1, Tensor),
    (ValueType, 5, State),
    (State, 1, ValueType),
    (Tensor, 3, Dimension),
    (Value, 2, ValueType),
    (Value, 3, Immediate),
    (Immediate, 1, Elements),
    (Elements, 4, Texts),
    (Texts, 1, Text),
];

/// Bytes of the structure of a message.
fn cost(kind: Kind) -> usize {
    match kind {
        Operation => 128,
        Function | FunctionDescription | Description | Metadata => 160,
        Value | ValueEntry => 128,
        Feature | FeatureType | Array | Named => 112,
        Block => 80,
        Dimension | State => 16,
        _ => 32,
    }
}

/// Checks that a specification does not ask for much more memory than it has bytes, and that its fields end where they should.
///
/// # Errors
/// [`Problem::Wire`] with the byte.
pub(super) fn check(bytes: &[u8]) -> Result<()> {
    let mut walk = Walk {
        bytes,
        left: bytes.len().saturating_mul(PER_BYTE).max(AT_LEAST),
    };
    walk.message(Model, 0, bytes.len(), 0)
}

struct Walk<'a> {
    bytes: &'a [u8],
    left: usize,
}

impl Walk<'_> {
    fn wrong(at: usize, reason: &str) -> super::error::CoremlError {
        let place = Place::File {
            name: "model.mlmodel".into(),
            offset: at as u64,
        };
        Problem::Wire(reason.into()).at(place)
    }

    /// A message between two places.
    fn message(&mut self, kind: Kind, start: usize, end: usize, depth: usize) -> Result<()> {
        let left = self.left.checked_sub(cost(kind)).filter(|_| depth <= DEPTH);
        self.left =
            left.ok_or_else(|| Self::wrong(start, "more messages than the file justifies"))?;
        let mut at = start;
        while at < end {
            let tag = self.varint(&mut at, end)?;
            let field = tag >> 3;
            match tag & 7 {
                0 => drop(self.varint(&mut at, end)?),
                1 => at += 8,
                2 => {
                    let length = self.varint(&mut at, end)?;
                    let inner = usize::try_from(length).ok().and_then(|n| at.checked_add(n));
                    let inner = inner.filter(|to| *to <= end);
                    let to =
                        inner.ok_or_else(|| Self::wrong(at, "a field ends behind its message"))?;
                    let child = FIELDS.iter().find(|(k, f, _)| (*k, *f) == (kind, field));
                    match child {
                        Some((_, _, Text | Numbers)) => self.leaf(at)?,
                        Some((_, _, child)) => self.message(*child, at, to, depth + 1)?,
                        None => {}
                    }
                    at = to;
                }
                5 => at += 4,
                _ => return Err(Self::wrong(at, "a field of a kind that is not used")),
            }
        }
        match at == end {
            true => Ok(()),
            false => Err(Self::wrong(end, "a field ends behind its message")),
        }
    }

    /// Something that holds no messages.
    fn leaf(&mut self, at: usize) -> Result<()> {
        let left = self.left.checked_sub(cost(Text));
        self.left = left.ok_or_else(|| Self::wrong(at, "more texts than the file justifies"))?;
        Ok(())
    }

    fn varint(&self, at: &mut usize, end: usize) -> Result<u64> {
        let start = *at;
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.bytes.get(*at).filter(|_| *at < end);
            let byte = *byte.ok_or_else(|| Self::wrong(start, "a number does not end"))?;
            *at += 1;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Self::wrong(start, "a number does not end"))
    }
}
