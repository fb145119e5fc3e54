//! The table of attribute and type records.
//!
//! Records refer to each other by index, forwards and backwards. They are decoded one by one without recursion and then
//! checked once to be free of cycles and not deeply nested, so that whoever follows the indices need not be careful.

use std::ops::Range;
use std::sync::Arc;

use super::attrs::AttrRecord;
use super::cursor::Cursor;
use super::error::{Problem, ReadError, Result, Section};
use super::types::TypeRecord;

/// Names an attribute record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AttrId(pub u32);

/// Names a type record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TypeId(pub u32);

/// Names an entry of the resource section.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ResourceId(pub u32);

/// Records may be nested this deep.
pub const MAX_DEPTH: usize = 128;

/// What a record may refer to while it is decoded.
#[derive(Clone, Copy, Debug)]
pub struct Tables<'a> {
    /// The string section.
    pub strings: &'a [Arc<str>],
    /// Number of attribute records.
    pub attrs: usize,
    /// Number of type records.
    pub types: usize,
    /// Number of resources.
    pub resources: usize,
}

impl Tables<'_> {
    /// A string, by index.
    pub fn string(&self, c: &mut Cursor<'_>) -> Result<Arc<str>> {
        let (at, raw) = (c.offset(), c.varint("a string index")?);
        let found = usize::try_from(raw).ok().and_then(|i| self.strings.get(i));
        found.cloned().ok_or_else(|| {
            let problem = Problem::Index {
                what: "string",
                index: raw,
                len: self.strings.len(),
            };
            ReadError::new(c.section(), at, problem)
        })
    }

    /// A reference to an attribute.
    pub fn attr(&self, c: &mut Cursor<'_>) -> Result<AttrId> {
        c.index("attribute", self.attrs).map(AttrId)
    }

    /// A reference to an attribute that may be absent.
    pub fn optional_attr(&self, c: &mut Cursor<'_>) -> Result<Option<AttrId>> {
        let at = c.offset();
        let (code, present) = c.flagged("an optional attribute")?;
        let what = "optional attribute";
        match (present, code) {
            (false, 0) => Ok(None),
            (false, _) => Err(c.error_at(at, Problem::Unknown { what, code })),
            (true, index) => c
                .checked_index("attribute", index, self.attrs)
                .map(|i| Some(AttrId(i)))
                .map_err(|e| ReadError { offset: at, ..e }),
        }
    }

    /// A reference to a type.
    pub fn ty(&self, c: &mut Cursor<'_>) -> Result<TypeId> {
        c.index("type", self.types).map(TypeId)
    }

    /// A reference to a resource.
    pub fn resource(&self, c: &mut Cursor<'_>) -> Result<ResourceId> {
        c.index("resource", self.resources).map(ResourceId)
    }

    /// A list of references to attributes.
    pub fn attrs(&self, c: &mut Cursor<'_>) -> Result<Vec<AttrId>> {
        c.list("a list of attributes", |c| self.attr(c))
    }

    /// A list of references to types.
    pub fn types(&self, c: &mut Cursor<'_>) -> Result<Vec<TypeId>> {
        c.list("a list of types", |c| self.ty(c))
    }
}

/// Every decoded record.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Records {
    attrs: Vec<AttrRecord>,
    types: Vec<TypeRecord>,
}

impl Records {
    /// Decodes the records that lie at `attrs` and `types`, and checks that they are nested soundly.
    pub fn decode(
        file: &[u8],
        attrs: &[Range<usize>],
        types: &[Range<usize>],
        tables: &Tables<'_>,
    ) -> Result<Self> {
        let mut records = Self {
            attrs: Vec::with_capacity(attrs.len()),
            types: Vec::with_capacity(types.len()),
        };
        for range in attrs {
            let mut c = Cursor::new(file, range.clone(), Section::Records);
            records.attrs.push(AttrRecord::decode(&mut c, tables)?);
            c.finish("an attribute record")?;
        }
        for range in types {
            let mut c = Cursor::new(file, range.clone(), Section::Records);
            records.types.push(TypeRecord::decode(&mut c, tables)?);
            c.finish("a type record")?;
        }
        let place = |record: usize| attrs.iter().chain(types).nth(record).map_or(0, |r| r.start);
        records
            .check_nesting()
            .map_err(|(record, p)| ReadError::new(Section::Records, place(record), p))?;
        Ok(records)
    }

    /// An attribute.
    pub fn attr(&self, id: AttrId) -> Option<&AttrRecord> {
        self.attrs.get(id.0 as usize)
    }

    /// A type.
    pub fn ty(&self, id: TypeId) -> Option<&TypeRecord> {
        self.types.get(id.0 as usize)
    }

    /// Every attribute record, in order.
    pub fn attrs(&self) -> &[AttrRecord] {
        &self.attrs
    }

    /// Every type record, in order.
    pub fn types(&self) -> &[TypeRecord] {
        &self.types
    }

    /// The records that record `i` refers to; types count on after the attributes.
    fn children(&self, i: usize, out: &mut Vec<usize>) {
        let types = self.attrs.len();
        let mut found = Vec::new();
        let mut attr = |id: AttrId| found.push(id.0 as usize);
        let mut more = Vec::new();
        let mut ty = |id: TypeId| more.push(types + id.0 as usize);
        if let Some(a) = self.attrs.get(i) {
            a.attrs(&mut attr);
            a.types(&mut ty);
        } else if let Some(t) = i.checked_sub(types).and_then(|i| self.types.get(i)) {
            t.attrs(&mut attr);
            t.types(&mut ty);
        }
        out.append(&mut found);
        out.append(&mut more);
    }

    /// Visits the records depth first with a stack of its own; each record and each reference once.
    fn check_nesting(&self) -> std::result::Result<(), (usize, Problem)> {
        const OPEN: usize = usize::MAX;
        let total = self.attrs.len() + self.types.len();
        // The height of each record once known; 0 before, OPEN while on the stack.
        let mut heights = vec![0usize; total];
        let mut stack: Vec<(usize, Vec<usize>, usize)> = Vec::new();
        for root in 0..total {
            self.open(root, &mut heights, &mut stack);
            while let Some((record, children, below)) = stack.last_mut() {
                let Some(child) = children.pop() else {
                    let (record, height) = (*record, *below + 1);
                    if height > MAX_DEPTH {
                        let (value, limit) = (height as u64, MAX_DEPTH as u64);
                        return Err((
                            record,
                            Problem::Limit {
                                what: "the nesting of records",
                                value,
                                limit,
                            },
                        ));
                    }
                    if let Some(h) = heights.get_mut(record) {
                        *h = height;
                    }
                    stack.pop();
                    if let Some((_, _, parent)) = stack.last_mut() {
                        *parent = (*parent).max(height);
                    }
                    continue;
                };
                match heights.get(child).copied() {
                    Some(OPEN) => return Err((*record, Problem::Cycle(*record))),
                    Some(height @ 1..) => *below = (*below).max(height),
                    _ => self.open(child, &mut heights, &mut stack),
                }
            }
        }
        Ok(())
    }

    fn open(
        &self,
        record: usize,
        heights: &mut [usize],
        stack: &mut Vec<(usize, Vec<usize>, usize)>,
    ) {
        let Some(height) = heights.get_mut(record).filter(|h| **h == 0) else {
            return;
        };
        *height = usize::MAX;
        let mut children = Vec::new();
        self.children(record, &mut children);
        stack.push((record, children, 0));
    }
}
