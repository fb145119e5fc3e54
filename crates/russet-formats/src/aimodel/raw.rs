//! The decoded file: tables, records and the tree of operations, as the file has them.

use super::attrs::AttrRecord;
use super::bytecode::Container;
use super::cursor::Cursor;
use super::error::{ReadError, Result, Section};
use super::ir::{self, RawOp};
use super::properties::{self, Properties};
use super::records::{AttrId, Records};

/// Everything in a `main.mlirb` except the bytes of its resources.
#[derive(Clone, Debug)]
pub struct RawModule {
    /// The tables.
    pub container: Container,
    /// Attributes and types.
    pub records: Records,
    /// The operations at the top: one `serialization.asset` that holds the graphs.
    pub ops: Vec<RawOp>,
}

impl RawModule {
    /// Decodes a file. The bytes of resources are not touched.
    pub fn read(file: &[u8]) -> Result<Self> {
        let container = Container::read(file)?;
        let records = Records::decode(
            file,
            &container.attrs,
            &container.types,
            &container.tables(),
        )?;
        let ops = ir::read(file, &container)?;
        Ok(Self {
            container,
            records,
            ops,
        })
    }

    /// The properties of an operation by name; empty where it has none.
    pub fn properties(&self, file: &[u8], op: &RawOp) -> Result<Properties> {
        let Some(place) = op
            .properties
            .and_then(|p| self.container.properties.get(p as usize))
        else {
            return Ok(Vec::new());
        };
        let cursor = Cursor::new(file, place.clone(), Section::Properties);
        properties::decode(cursor, &op.name, &self.container.tables())
    }

    /// One property of an operation that must have it.
    pub fn property(&self, file: &[u8], op: &RawOp, name: &'static str) -> Result<AttrId> {
        let all = self.properties(file, op)?;
        let found = all.iter().find(|(n, _)| *n == name).map(|(_, a)| *a);
        found.ok_or_else(|| properties::missing(&op.name, op.offset, name))
    }

    /// The version of the `aicode` language, a date such as 20250814, where the asset says it.
    pub fn dialect_date(&self, file: &[u8]) -> Option<u32> {
        let asset = self.ops.first()?;
        let id = self.property(file, asset, "version").ok()?;
        match self.records.attr(id)? {
            AttrRecord::Integer { bits, .. } => u32::try_from(*bits).ok(),
            _ => None,
        }
    }
}

/// An error at an operation.
pub(super) fn at(op: &RawOp, problem: super::error::Problem) -> ReadError {
    ReadError::new(Section::Program, op.offset, problem).in_op(&op.name)
}
