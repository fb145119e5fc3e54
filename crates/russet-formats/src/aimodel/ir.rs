//! The program: operations, blocks and regions.
//!
//! Operands are numbers that count the values visible at a point: those of the enclosing regions first, then those of the
//! region itself, each region announcing how many it defines. Regions that are isolated from above start again at zero, and
//! those of one operation lie in a section of their own. This module turns the numbers into identities that are unique within an isolated region.

use std::sync::Arc;

use super::bytecode::{Container, section};
use super::cursor::Cursor;
use super::error::{Problem, ReadError, Result, Section};
use super::records::{AttrId, Tables, TypeId};

/// Regions may be nested this deep.
const MAX_DEPTH: usize = 64;

/// A value, unique within the isolated region that defines it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(pub u32);

/// One operation.
#[derive(Clone, Debug, PartialEq)]
pub struct RawOp {
    /// Its name without the dialect, such as `primitive.slice_v1`.
    pub name: Arc<str>,
    /// Where it starts in the file.
    pub offset: usize,
    /// Where the exporter says it came from.
    pub location: AttrId,
    /// Attributes that are not part of the operation's definition: a dictionary.
    pub dictionary: Option<AttrId>,
    /// Which properties, that is attributes of the operation's definition, it has.
    pub properties: Option<u32>,
    /// Results with their types.
    pub results: Vec<(ValueId, TypeId)>,
    /// Operands.
    pub operands: Vec<ValueId>,
    /// Blocks it may branch to, by their position in the region.
    pub successors: Vec<u32>,
    /// Nested regions.
    pub regions: Vec<RawRegion>,
}

/// A region of an operation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RawRegion {
    /// It sees no value from outside; its values count from zero.
    pub isolated: bool,
    /// Blocks, entry first.
    pub blocks: Vec<RawBlock>,
}

/// A block.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RawBlock {
    /// Arguments: value, type, location.
    pub args: Vec<(ValueId, TypeId, Option<AttrId>)>,
    /// Operations in order.
    pub ops: Vec<RawOp>,
}

/// Reads the operations at the top of a file.
pub fn read(file: &[u8], container: &Container) -> Result<Vec<RawOp>> {
    let mut reader = Reader {
        container,
        tables: container.tables(),
        claimed: 0,
    };
    let mut c = Cursor::new(file, container.program.clone(), Section::Program);
    let mut scope = Scope::default();
    let block = reader.block(&mut c, &mut scope, 0)?;
    c.finish("the program")?;
    if block.args.is_empty() {
        Ok(block.ops)
    } else {
        Err(c.error(Problem::Structure("the program itself takes arguments")))
    }
}

/// The values visible at a point.
#[derive(Default)]
struct Scope {
    /// Open regions: the number of their first value, its identity, how many are announced, how many are defined.
    regions: Vec<Open>,
    /// Identities given away so far.
    next: u32,
}

#[derive(Clone, Copy)]
struct Open {
    first: u64,
    identity: u32,
    announced: u32,
    defined: u32,
}

impl Scope {
    fn visible(&self) -> u64 {
        self.regions
            .last()
            .map_or(0, |r| r.first + u64::from(r.announced))
    }

    fn open(&mut self, values: u32) {
        let open = Open {
            first: self.visible(),
            identity: self.next,
            announced: values,
            defined: 0,
        };
        self.next = self.next.saturating_add(values);
        self.regions.push(open);
    }

    fn define(&mut self) -> Option<ValueId> {
        let region = self
            .regions
            .last_mut()
            .filter(|r| r.defined < r.announced)?;
        let id = ValueId(region.identity + region.defined);
        region.defined += 1;
        Some(id)
    }

    fn lookup(&self, number: u64) -> Option<ValueId> {
        let region = self.regions.iter().rev().find(|r| r.first <= number)?;
        let within = u32::try_from(number - region.first)
            .ok()
            .filter(|w| *w < region.announced)?;
        Some(ValueId(region.identity + within))
    }

    /// Whether every announced value of the innermost region was defined.
    fn close(&mut self) -> bool {
        self.regions.pop().is_some_and(|r| r.defined == r.announced)
    }
}

/// What an operation has, by the bits of its mask.
mod has {
    pub(super) const ATTRIBUTES: u8 = 1;
    pub(super) const RESULTS: u8 = 2;
    pub(super) const OPERANDS: u8 = 4;
    pub(super) const SUCCESSORS: u8 = 8;
    pub(super) const REGIONS: u8 = 16;
    pub(super) const USE_ORDERS: u8 = 32;
    pub(super) const PROPERTIES: u8 = 64;
    pub(super) const KNOWN: u8 = 127;
}

struct Reader<'a> {
    container: &'a Container,
    tables: Tables<'a>,
    /// Values announced by all regions so far. Each takes a byte of the program somewhere.
    claimed: usize,
}

impl Reader<'_> {
    fn block(&mut self, c: &mut Cursor<'_>, scope: &mut Scope, depth: usize) -> Result<RawBlock> {
        let (ops, has_args) = c.flagged("a block")?;
        let mut block = RawBlock::default();
        if has_args {
            block.args = c.list("the arguments of a block", |c| self.argument(c, scope))?;
            if c.byte("the use orders of block arguments")? != 0 {
                use_orders(c, block.args.len())?;
            }
        }
        // An operation takes at least a name, a mask and a location.
        let count = c.checked_count("the operations of a block", ops, 3)?;
        block.ops.reserve_exact(count);
        for _ in 0..count {
            block.ops.push(self.op(c, scope, depth)?);
        }
        Ok(block)
    }

    fn argument(
        &self,
        c: &mut Cursor<'_>,
        scope: &mut Scope,
    ) -> Result<(ValueId, TypeId, Option<AttrId>)> {
        let (ty, has_location) = c.flagged("a block argument")?;
        let ty = c.checked_index("type", ty, self.tables.types).map(TypeId)?;
        let location = if has_location {
            Some(self.tables.attr(c)?)
        } else {
            None
        };
        let value = scope.define().ok_or_else(|| undefined(c))?;
        Ok((value, ty, location))
    }

    fn op(&mut self, c: &mut Cursor<'_>, scope: &mut Scope, depth: usize) -> Result<RawOp> {
        let offset = c.offset();
        let name = c.index("operation name", self.container.op_names.len())?;
        let name = self
            .container
            .op_names
            .get(name as usize)
            .cloned()
            .unwrap_or_default();
        let read = self.op_body(c, scope, depth, offset, &name);
        read.map_err(|e| e.in_op(&name))
    }

    fn op_body(
        &mut self,
        c: &mut Cursor<'_>,
        scope: &mut Scope,
        depth: usize,
        offset: usize,
        name: &Arc<str>,
    ) -> Result<RawOp> {
        let mask = c.byte("an operation")?;
        if mask & !has::KNOWN != 0 {
            return Err(c.error(Problem::Unknown {
                what: "operation mask",
                code: mask.into(),
            }));
        }
        let when = |bit: u8| mask & bit != 0;
        let location = self.tables.attr(c)?;
        let dictionary = if when(has::ATTRIBUTES) {
            Some(self.tables.attr(c)?)
        } else {
            None
        };
        let properties = match when(has::PROPERTIES) {
            true => Some(c.index("properties", self.container.properties.len())?),
            false => None,
        };
        let mut op = RawOp {
            name: name.clone(),
            offset,
            location,
            dictionary,
            properties,
            results: Vec::new(),
            operands: Vec::new(),
            successors: Vec::new(),
            regions: Vec::new(),
        };
        if when(has::RESULTS) {
            op.results = c.list("the results of an operation", |c| {
                let ty = self.tables.ty(c)?;
                Ok((scope.define().ok_or_else(|| undefined(c))?, ty))
            })?;
        }
        if when(has::OPERANDS) {
            op.operands = c.list("the operands of an operation", |c| operand(c, scope))?;
        }
        if when(has::SUCCESSORS) {
            op.successors = c.list("the successors of an operation", |c| {
                c.index("block", u32::MAX as usize)
            })?;
        }
        if when(has::USE_ORDERS) {
            use_orders(c, op.results.len())?;
        }
        if when(has::REGIONS) {
            op.regions = self.regions(c, scope, depth)?;
        }
        Ok(op)
    }

    fn regions(
        &mut self,
        c: &mut Cursor<'_>,
        scope: &mut Scope,
        depth: usize,
    ) -> Result<Vec<RawRegion>> {
        if depth >= MAX_DEPTH {
            let (value, limit) = (depth as u64 + 1, MAX_DEPTH as u64);
            return Err(c.error(Problem::Limit {
                what: "the nesting of regions",
                value,
                limit,
            }));
        }
        let (count, isolated) = c.flagged("regions")?;
        let count = c.checked_count("regions", count, 1)?;
        let mut regions = Vec::with_capacity(count);
        if !isolated {
            for _ in 0..count {
                regions.push(self.region(c, scope, depth + 1, false)?);
            }
            return Ok(regions);
        }
        let at = c.offset();
        let (number, range) = section(c)?;
        if number != 4 {
            let problem = Problem::Unknown {
                what: "section",
                code: number as u64,
            };
            return Err(ReadError::new(Section::Program, at, problem));
        }
        let mut inner = c.at(range);
        for _ in 0..count {
            regions.push(self.region(&mut inner, &mut Scope::default(), depth + 1, true)?);
        }
        inner.finish("isolated regions")?;
        Ok(regions)
    }

    fn region(
        &mut self,
        c: &mut Cursor<'_>,
        scope: &mut Scope,
        depth: usize,
        isolated: bool,
    ) -> Result<RawRegion> {
        let blocks = c.count("the blocks of a region", 1)?;
        if blocks == 0 {
            return Ok(RawRegion {
                isolated,
                blocks: Vec::new(),
            });
        }
        scope.open(self.claim(c)?);
        let mut region = RawRegion {
            isolated,
            blocks: Vec::with_capacity(blocks),
        };
        for _ in 0..blocks {
            region.blocks.push(self.block(c, scope, depth)?);
        }
        if !scope.close() {
            return Err(c.error(Problem::Structure(
                "a region defines fewer values than it announces",
            )));
        }
        for op in region.blocks.iter().flat_map(|b| &b.ops) {
            if op.successors.iter().any(|s| *s as usize >= blocks) {
                let place = ReadError::new(
                    Section::Program,
                    op.offset,
                    Problem::Structure("a branch to a block that is not there"),
                );
                return Err(place.in_op(&op.name));
            }
        }
        Ok(region)
    }

    /// Reads how many values a region announces.
    fn claim(&mut self, c: &mut Cursor<'_>) -> Result<u32> {
        let at = c.offset();
        let values = c.count("the values of a region", 1)?;
        self.claimed = self.claimed.saturating_add(values);
        let limit = self.container.program.len();
        if self.claimed > limit {
            let problem = Problem::Limit {
                what: "the values of all regions",
                value: self.claimed as u64,
                limit: limit as u64,
            };
            return Err(ReadError::new(Section::Program, at, problem));
        }
        u32::try_from(values).map_err(|_| undefined(c))
    }
}

fn undefined(c: &Cursor<'_>) -> ReadError {
    c.error(Problem::Structure(
        "a region defines more values than it announces",
    ))
}

fn operand(c: &mut Cursor<'_>, scope: &Scope) -> Result<ValueId> {
    let number = c.varint("an operand")?;
    let len = usize::try_from(scope.visible()).unwrap_or(usize::MAX);
    scope.lookup(number).ok_or_else(|| {
        c.error(Problem::Index {
            what: "value",
            index: number,
            len,
        })
    })
}

/// Passes over the order in which the uses of values are kept in memory. Nothing depends on it.
fn use_orders(c: &mut Cursor<'_>, values: usize) -> Result<()> {
    const WHAT: &str = "use orders";
    let count = if values > 1 { c.count(WHAT, 1)? } else { 1 };
    for _ in 0..count {
        if values > 1 {
            c.index("value", values)?;
        }
        let (indices, _pairs) = c.flagged(WHAT)?;
        for _ in 0..c.checked_count(WHAT, indices, 1)? {
            c.varint(WHAT)?;
        }
    }
    Ok(())
}
