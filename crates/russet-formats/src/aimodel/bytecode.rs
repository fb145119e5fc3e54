//! The container: MLIR bytecode.
//!
//! A file is a magic number, a version, a producer and a sequence of sections. This module finds the sections and reads the
//! tables: strings, dialect and operation names, the places of the attribute and type records, of the operations'
//! properties and of the resources. It touches the bytes of no resource.

use std::ops::Range;
use std::sync::Arc;

use super::cursor::Cursor;
use super::error::{Problem, ReadError, Result, Section};
use super::records::{ResourceId, Tables};

/// The bytecode versions whose layout of operations and properties this reader knows.
pub const BYTECODE_VERSIONS: std::ops::RangeInclusive<u64> = 5..=6;
/// The encodings of the `aicode` dialect this reader knows. (Its language has dates as versions, see [`super::raw::RawModule::dialect_date`].)
pub const DIALECT_VERSIONS: std::ops::RangeInclusive<u64> = 2..=2;
/// The only dialect of an asset.
pub const DIALECT: &str = "aicode";

/// Section identifiers in the file, in the order of their numbers.
const SECTIONS: [Section; 9] = [
    Section::Strings,
    Section::Dialects,
    Section::Records,
    Section::RecordSizes,
    Section::Program,
    Section::Resources,
    Section::ResourceTable,
    // Number 7 holds the versions of dialects and only occurs inside the dialect section.
    Section::Dialects,
    Section::Properties,
];

/// An entry of the resource section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// Its name.
    pub key: Arc<str>,
    /// Where its bytes lie in the file.
    pub bytes: Range<usize>,
    /// The alignment its writer asked for, in bytes.
    pub alignment: usize,
}

/// The tables of a file.
#[derive(Clone, Debug)]
pub struct Container {
    /// Version of the bytecode.
    pub version: u64,
    /// Version of the `aicode` dialect.
    pub dialect_version: u64,
    /// Who wrote the file.
    pub producer: String,
    /// The strings.
    pub strings: Vec<Arc<str>>,
    /// The operation names, without the dialect.
    pub op_names: Vec<Arc<str>>,
    /// Where the attribute records lie.
    pub attrs: Vec<Range<usize>>,
    /// Where the type records lie.
    pub types: Vec<Range<usize>>,
    /// The resources of the dialect, which attributes refer to.
    pub resources: Vec<Resource>,
    /// Where the properties of operations lie.
    pub properties: Vec<Range<usize>>,
    /// Where the operations lie.
    pub program: Range<usize>,
}

/// Where each section lies.
struct Sections {
    ranges: [Option<Range<usize>>; 9],
}

impl Sections {
    fn find(c: &mut Cursor<'_>) -> Result<Self> {
        let mut ranges = [const { None }; 9];
        while c.left() > 0 {
            let at = c.offset();
            let (number, range) = section(c)?;
            let known = ranges.get_mut(number).filter(|_| number != 7);
            let Some(slot) = known else {
                let problem = Problem::Unknown {
                    what: "section",
                    code: number as u64,
                };
                return Err(ReadError::new(Section::Header, at, problem));
            };
            if slot.replace(range).is_some() {
                let name = SECTIONS.get(number).copied().unwrap_or(Section::Header);
                return Err(ReadError::new(
                    Section::Header,
                    at,
                    Problem::SectionSet(name, "there twice"),
                ));
            }
        }
        Ok(Self { ranges })
    }

    fn optional(&self, section: Section) -> Option<Range<usize>> {
        let number = SECTIONS.iter().position(|s| *s == section)?;
        self.ranges.get(number).cloned().flatten()
    }

    fn required(&self, section: Section, end: usize) -> Result<Range<usize>> {
        let missing = || {
            ReadError::new(
                Section::Header,
                end,
                Problem::SectionSet(section, "missing"),
            )
        };
        self.optional(section).ok_or_else(missing)
    }
}

/// Reads a section header and passes over the section: its number and the place of its content.
pub(super) fn section(c: &mut Cursor<'_>) -> Result<(usize, Range<usize>)> {
    let id = c.byte("a section header")?;
    let length = c.size("a section header")?;
    if id & 0x80 != 0 {
        let alignment = c.size("a section alignment")?;
        c.align(alignment)?;
    }
    Ok((usize::from(id & 0x7f), c.span(length, "a section")?))
}

impl Container {
    /// Reads the tables of a file.
    pub fn read(file: &[u8]) -> Result<Self> {
        let mut c = Cursor::new(file, 0..file.len(), Section::Header);
        if c.take(4, "the magic number")? != b"ML\xefR" {
            return Err(ReadError::new(Section::Header, 0, Problem::Magic));
        }
        let (at, version) = (c.offset(), c.varint("the version")?);
        if !BYTECODE_VERSIONS.contains(&version) {
            return Err(c.error_at(at, Problem::BytecodeVersion(version)));
        }
        let producer = c.text("the producer")?.to_owned();
        let sections = Sections::find(&mut c)?;
        let at = |section| {
            sections
                .required(section, file.len())
                .map(|range| Cursor::new(file, range, section))
        };
        let strings = strings(&mut at(Section::Strings)?)?;
        let (dialect_version, op_names) = dialects(&mut at(Section::Dialects)?, &strings)?;
        let (attrs, types) = records(
            &mut at(Section::RecordSizes)?,
            sections.required(Section::Records, file.len())?,
        )?;
        let resources = match sections.optional(Section::ResourceTable) {
            Some(_) => resources(
                &mut at(Section::ResourceTable)?,
                &mut at(Section::Resources)?,
                &strings,
            )?,
            None => Vec::new(),
        };
        let properties = match sections.optional(Section::Properties) {
            Some(_) => properties(&mut at(Section::Properties)?)?,
            None => Vec::new(),
        };
        let program = sections.required(Section::Program, file.len())?;
        Ok(Self {
            version,
            dialect_version,
            producer,
            strings,
            op_names,
            attrs,
            types,
            resources,
            properties,
            program,
        })
    }

    /// What records may refer to.
    pub fn tables(&self) -> Tables<'_> {
        Tables {
            strings: &self.strings,
            attrs: self.attrs.len(),
            types: self.types.len(),
            resources: self.resources.len(),
        }
    }

    /// Bytes of everything that describes the program: strings, records and operations, without the resources.
    pub fn structure_len(&self) -> usize {
        let places = self.attrs.iter().chain(&self.types).chain(&self.properties);
        let records: usize = places.map(ExactSizeIterator::len).sum();
        let strings: usize = self.strings.iter().map(|s| s.len()).sum();
        records + strings + self.program.len()
    }

    /// A resource.
    pub fn resource(&self, id: ResourceId) -> Option<&Resource> {
        self.resources.get(id.0 as usize)
    }
}

/// The string section: the lengths (with the final zero byte) last to first, then the strings first to last.
fn strings(c: &mut Cursor<'_>) -> Result<Vec<Arc<str>>> {
    let lengths = c.list("the lengths of strings", |c| {
        c.size("the length of a string")
    })?;
    let mut strings = Vec::with_capacity(lengths.len());
    for length in lengths.into_iter().rev() {
        let at = c.offset();
        let bytes = c.take(length, "a string")?;
        let Some((0, text)) = bytes.split_last() else {
            return Err(ReadError::new(
                Section::Strings,
                at,
                Problem::Truncated("a string"),
            ));
        };
        let text = std::str::from_utf8(text)
            .map_err(|_| ReadError::new(Section::Strings, at, Problem::Text("a string")))?;
        strings.push(text.into());
    }
    c.finish("the strings")?;
    Ok(strings)
}

fn string(c: &Cursor<'_>, index: u64, strings: &[Arc<str>]) -> Result<Arc<str>> {
    let found = usize::try_from(index)
        .ok()
        .and_then(|i| strings.get(i))
        .cloned();
    found.ok_or_else(|| {
        c.error(Problem::Index {
            what: "string",
            index,
            len: strings.len(),
        })
    })
}

/// The dialect section: the dialects, then the operation names grouped by dialect.
fn dialects(c: &mut Cursor<'_>, strings: &[Arc<str>]) -> Result<(u64, Vec<Arc<str>>)> {
    let dialects = c.list("the dialects", |c| dialect(c, strings))?;
    let [version] = dialects.as_slice() else {
        return Err(c.error(Problem::Structure("an asset has one dialect, aicode")));
    };
    let total = c.count("the operation names", 1)?;
    let mut names = Vec::with_capacity(total);
    while names.len() < total {
        c.index("dialect", dialects.len())?;
        let group = c.count("a group of operation names", 1)?;
        for _ in 0..group {
            let (name, _registered) = c.flagged("an operation name")?;
            names.push(string(c, name, strings)?);
        }
    }
    c.finish("the operation names")?;
    match names.len() == total {
        true => Ok((*version, names)),
        false => Err(c.error(Problem::Structure(
            "there are more operation names than announced",
        ))),
    }
}

/// A dialect: its name, and a nested section with its version.
fn dialect(c: &mut Cursor<'_>, strings: &[Arc<str>]) -> Result<u64> {
    let (name, versioned) = c.flagged("a dialect")?;
    let name = string(c, name, strings)?;
    if &*name != DIALECT {
        return Err(c.error(Problem::Dialect(name.to_string())));
    }
    if !versioned {
        return Err(c.error(Problem::DialectVersion(0)));
    }
    let (number, range) = section(c)?;
    if number != 7 {
        return Err(c.error(Problem::Unknown {
            what: "section",
            code: number as u64,
        }));
    }
    let start = range.start;
    let at_version = |problem| ReadError::new(Section::Dialects, start, problem);
    let bytes = c.at(range);
    let version =
        version(bytes).map_err(|_| at_version(Problem::Truncated("a dialect version")))?;
    if DIALECT_VERSIONS.contains(&version) {
        Ok(version)
    } else {
        Err(at_version(Problem::DialectVersion(version)))
    }
}

fn version(mut c: Cursor<'_>) -> Result<u64> {
    let version = c.varint("a dialect version")?;
    c.finish("a dialect version")?;
    Ok(version)
}

/// Where records lie.
type Places = Vec<Range<usize>>;

/// The offset section: the number of attributes and types, then their sizes grouped by dialect. The records themselves lie
/// one behind the other in `content`.
fn records(c: &mut Cursor<'_>, content: Range<usize>) -> Result<(Places, Places)> {
    let attrs = c.count("the attributes", 1)?;
    let types = c.count("the types", 1)?;
    let mut at = content.start;
    let mut group = |c: &mut Cursor<'_>, total: usize| -> Result<Vec<Range<usize>>> {
        let mut places = Vec::with_capacity(total);
        while places.len() < total {
            c.index("dialect", 1)?;
            let count = c.count("a group of records", 1)?;
            for _ in 0..count {
                let (size, binary) = c.flagged("the size of a record")?;
                let end = usize::try_from(size)
                    .ok()
                    .and_then(|size| at.checked_add(size))
                    .filter(|end| *end <= content.end);
                let Some(end) = end else {
                    return Err(c.error(Problem::Truncated("a record")));
                };
                if !binary {
                    return Err(c.error(Problem::Unsupported("a record in text form".into())));
                }
                places.push(at..end);
                at = end;
            }
        }
        match places.len() == total {
            true => Ok(places),
            false => Err(c.error(Problem::Structure("there are more records than announced"))),
        }
    };
    let places = (group(c, attrs)?, group(c, types)?);
    c.finish("the sizes of records")?;
    if at != content.end {
        let problem = Problem::Trailing {
            what: "the records",
            left: content.end - at,
        };
        return Err(ReadError::new(Section::Records, at, problem));
    }
    Ok(places)
}

/// The resource table: groups that belong to no dialect, which are passed over, then those of the dialect.
fn resources(
    table: &mut Cursor<'_>,
    content: &mut Cursor<'_>,
    strings: &[Arc<str>],
) -> Result<Vec<Resource>> {
    let external = table.count("the external resource groups", 2)?;
    for _ in 0..external {
        let key = table.varint("a resource group")?;
        string(table, key, strings)?;
        group(table, content, strings)?;
    }
    let mut all = Vec::new();
    while table.left() > 0 {
        table.index("dialect", 1)?;
        all.append(&mut group(table, content, strings)?);
    }
    content.finish("the resources")?;
    Ok(all)
}

fn group(
    table: &mut Cursor<'_>,
    content: &mut Cursor<'_>,
    strings: &[Arc<str>],
) -> Result<Vec<Resource>> {
    let count = table.count("the resources of a group", 3)?;
    let mut all = Vec::with_capacity(count);
    for _ in 0..count {
        let key = table.varint("the key of a resource")?;
        let key = string(table, key, strings)?;
        let size = table.size("the size of a resource")?;
        let kind = table.byte("the kind of a resource")?;
        let place = content.span(size, "a resource")?;
        let end = place.end;
        let (bytes, alignment) = if kind == 0 && size > 0 {
            blob(content.at(place))?
        } else {
            (end..end, 1)
        };
        all.push(Resource {
            key,
            bytes,
            alignment,
        });
    }
    Ok(all)
}

/// A blob: alignment, size, padding, bytes.
fn blob(mut c: Cursor<'_>) -> Result<(Range<usize>, usize)> {
    let alignment = c.size("the alignment of a blob")?;
    let size = c.size("the size of a blob")?;
    c.align(alignment)?;
    let bytes = c.span(size, "a blob")?;
    c.finish("a blob")?;
    Ok((bytes, alignment))
}

/// The properties section: a count, then the size and the bytes of each.
fn properties(c: &mut Cursor<'_>) -> Result<Vec<Range<usize>>> {
    let places = c.list("the properties", |c| {
        let size = c.size("the size of properties")?;
        c.span(size, "properties")
    })?;
    c.finish("the properties")?;
    Ok(places)
}
