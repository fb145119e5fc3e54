//! Attribute records of the `aicode` dialect.
//!
//! Like types, attributes refer to one another by index. Integers are stored as an arbitrary-width integer: one byte up to
//! 8 bits, a zigzag varint up to 64, a list of zigzag words above. Floats store their bits the same way. The bytes of
//! constants are never touched here: a record knows only where they lie.

use std::ops::Range;
use std::sync::Arc;

use super::cursor::Cursor;
use super::error::{Problem, Result};
use super::records::{AttrId, ResourceId, Tables, TypeId};

macro_rules! enums {
    ($($(#[$doc:meta])* $code:literal $name:ident [$($value:literal $text:literal),*];)*) => {
        /// The enumerations of the dialect.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum EnumKind { $($(#[$doc])* $name,)* }

        impl EnumKind {
            /// Every enumeration with its record kind.
            pub const ALL: &'static [(u64, EnumKind)] = &[$(($code, EnumKind::$name),)*];

            /// The cases: value and name.
            pub const fn cases(self) -> &'static [(u64, &'static str)] {
                match self { $(Self::$name => &[$(($value, $text)),*],)* }
            }
        }
    };
}

enums! {
    /// How `pad` fills.
    17 Padding [0 "circular", 1 "constant", 2 "reflect", 3 "replicate", 4 "symmetric"];
    /// Phases in which a delegate runs.
    18 Lifecycle [0 "stateless", 1 "init", 3 "init_reshape", 5 "init_prepare"];
    /// Which approximation `gelu` uses.
    19 Approximation [0 "none", 1 "tanh", 2 "sigmoid"];
    /// How `scatter_*` combines.
    20 Scatter [0 "update", 1 "add", 2 "sub", 3 "mul", 4 "div", 5 "max", 6 "min"];
    /// How `scan` combines.
    25 Combiner [0 "sum", 1 "product", 2 "min", 3 "max"];
    /// How far an asset is compiled.
    28 Compilation [0 "full", 1 "partial", 2 "finalized"];
    /// How `interpolate` reads between points.
    43 Interpolation [0 "linear", 1 "nearest_neighbor"];
    /// What an argument is for.
    44 Intent [0 "out", 1 "inout", 2 "return", 3 "in", 4 "param", 5 "metadata"];
}

/// The memory kinds of a hardware constraint, by value.
pub const ALLOCATIONS: [(u64, &str); 3] = [(1, "IOSurface"), (2, "MTLBuffer"), (3, "Heap")];
/// The memory kinds of an image constraint, by value.
pub const CONTAINERS: [(u64, &str); 2] = [(1, "CVPixelBuffer"), (2, "MTLTexture")];
/// The compression schemes of a sparse encoding, by value.
pub const COMPRESSIONS: [(u64, &str); 4] = [(0, "bitmask"), (1, "coo"), (2, "csr"), (3, "csc")];

/// One decoded attribute record.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum AttrRecord {
    /// Text.
    String(Arc<str>),
    /// An integer of at most 128 bits.
    Integer {
        /// Bits.
        width: u32,
        /// Whether they are two's complement. A boolean is one bit.
        signed: bool,
        /// The bits, zero-extended.
        bits: u128,
    },
    /// An IEEE float of 16, 32 or 64 bits.
    Float {
        /// Bits.
        width: u32,
        /// The bits, zero-extended.
        bits: u64,
    },
    /// A type.
    Type(TypeId),
    /// A sequence.
    Array(Vec<AttrId>),
    /// Opaque (named) attributes.
    Dictionary(Vec<AttrId>),
    /// Elements of a constant, inside the record. The type is that of the operation's result.
    Dense {
        /// One element that stands for all.
        splat: bool,
        /// Where the bytes lie in the file.
        bytes: Range<usize>,
    },
    /// Elements of a constant, in the resource section.
    Resource(ResourceId),
    /// A name with parameters: an entry of a dictionary, or an attribute of another dialect.
    Opaque {
        /// The name.
        name: Arc<str>,
        /// The parameters; one for dictionary entries.
        parameters: Vec<AttrId>,
    },
    /// Present, without a value.
    Unit,
    /// The path of a symbol.
    Symbol(Vec<Arc<str>>),
    /// The declaration of a parameter.
    ParameterDecl {
        /// Name.
        name: Arc<str>,
        /// Type.
        ty: TypeId,
        /// Default.
        value: Option<AttrId>,
    },
    /// A parameterised reference bound to values.
    ParameterBind {
        /// What is bound.
        reference: AttrId,
        /// Its type.
        ty: TypeId,
        /// The values.
        values: Vec<AttrId>,
    },
    /// A constant seen as a parameter; the callee of an invoke.
    ParameterConstant {
        /// The constant.
        value: AttrId,
        /// Its type.
        ty: TypeId,
    },
    /// A case of an enumeration.
    Enum(EnumKind, &'static str),
    /// Layout that hardware asks for.
    HardwareConstraints {
        /// Per dimension, from innermost stride outwards as the producer gives them; -1 where free.
        alignments: Vec<i64>,
        /// Interleave factors.
        interleave: Vec<i64>,
        /// Memory kind.
        allocation: &'static str,
        /// The encoding below this one.
        base: Option<AttrId>,
    },
    /// Storage of an image.
    ImageConstraints {
        /// Memory kind.
        container: &'static str,
        /// Row alignment of each plane.
        row_alignments: Vec<i64>,
    },
    /// A pixel format code.
    FourCc(u64),
    /// Sparse storage of a tensor.
    Sparse {
        /// Compression scheme.
        scheme: &'static str,
        /// Bits of a position and of a coordinate.
        widths: [u64; 2],
        /// Stored elements.
        stored: Option<u64>,
        /// Extents of a block.
        block: Option<Vec<u64>>,
    },
    /// A compilation target: triple, chip, delegate options.
    TargetSpec([AttrId; 3]),
    /// Debug information.
    Debug(DebugAttr),
}

/// Attributes of debug information and locations.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum DebugAttr {
    /// A source file.
    File {
        /// Name.
        name: Arc<str>,
        /// Directory.
        directory: Arc<str>,
        /// SHA-256 in hexadecimal, or empty.
        sha256: Arc<str>,
    },
    /// A range in a file.
    Source {
        /// The file.
        file: AttrId,
        /// Start line, start column, end line, end column.
        range: [u64; 4],
    },
    /// A compiled file.
    CompileUnit {
        /// Source language.
        language: Arc<str>,
        /// The file.
        file: AttrId,
        /// Producer.
        producer: Arc<str>,
        /// Whether optimised.
        optimized: bool,
        /// Flags of the compiler.
        flags: Arc<str>,
        /// Every file.
        files: Vec<AttrId>,
    },
    /// A function.
    Subprogram {
        /// Its type.
        ty: TypeId,
        /// The compile unit.
        unit: AttrId,
        /// The file.
        file: AttrId,
        /// Name and linkage name.
        names: [Arc<str>; 2],
        /// DWARF flags.
        flags: u64,
    },
    /// A variable.
    LocalVariable {
        /// Its type.
        ty: TypeId,
        /// Name.
        name: Arc<str>,
        /// Source location and scope.
        place: [AttrId; 2],
        /// Alignment in bits.
        alignment: u64,
        /// DWARF flags.
        flags: u64,
    },
    /// Bounds of an array: count, lower, upper, stride.
    Bounds([i64; 4]),
    /// An element of a composite type.
    Element(AttrId),
    /// A value attached to a location.
    MetadataValue(AttrId),
    /// A named value attached to a location.
    Metadata {
        /// Name.
        name: Arc<str>,
        /// Value.
        value: AttrId,
    },
    /// A location in source.
    Location {
        /// The range.
        source: AttrId,
        /// The scope it is in.
        scope: AttrId,
        /// The call it was inlined at.
        inlined_at: Option<AttrId>,
        /// Other locations merged into this one.
        fused: Vec<AttrId>,
        /// Named values.
        metadata: Vec<AttrId>,
    },
    /// A location that is only named values.
    MetadataLocation(Vec<AttrId>),
    /// A location of another dialect.
    OpaqueLocation(AttrId),
}

impl AttrRecord {
    /// Decodes one record.
    pub fn decode(c: &mut Cursor<'_>, t: &Tables<'_>) -> Result<Self> {
        let (at, kind) = (c.offset(), c.varint("an attribute kind")?);
        if let Some((_, e)) = EnumKind::ALL.iter().find(|(code, _)| *code == kind) {
            return Ok(Self::Enum(*e, case(c, e.cases())?));
        }
        Ok(match kind {
            1 => Self::String(t.string(c)?),
            2 => integer(c)?,
            3 => float(c)?,
            4 => Self::Type(t.ty(c)?),
            5 => Self::Array(t.attrs(c)?),
            6 => dense(c)?,
            7 => Self::Resource(t.resource(c)?),
            9 => Self::Opaque {
                name: t.string(c)?,
                parameters: t.attrs(c)?,
            },
            10 => Self::ParameterDecl {
                name: t.string(c)?,
                ty: t.ty(c)?,
                value: None,
            },
            11 => Self::ParameterDecl {
                name: t.string(c)?,
                ty: t.ty(c)?,
                value: Some(t.attr(c)?),
            },
            12 | 13 => hardware(c, t, kind == 13)?,
            14 => Self::Symbol(c.list("a symbol path", |c| t.string(c))?),
            15 => Self::ParameterBind {
                reference: t.attr(c)?,
                ty: t.ty(c)?,
                values: t.attrs(c)?,
            },
            16 => Self::ParameterConstant {
                value: t.attr(c)?,
                ty: t.ty(c)?,
            },
            21 | 23 => sparse(c, kind == 23)?,
            26 => Self::ImageConstraints {
                container: case(c, &CONTAINERS)?,
                row_alignments: signed_list(c)?,
            },
            27 => Self::FourCc(c.varint("a pixel format")?),
            29 => Self::TargetSpec([t.attr(c)?, t.attr(c)?, t.attr(c)?]),
            30..=33 | 35..=42 | 47 => Self::Debug(DebugAttr::decode(c, t, kind)?),
            45 => Self::Dictionary(t.attrs(c)?),
            46 => Self::Unit,
            code => return Err(c.error_at(at, unknown_kind(code))),
        })
    }

    /// Calls `visit` with every attribute this one refers to.
    pub fn attrs(&self, visit: &mut dyn FnMut(AttrId)) {
        match self {
            Self::Array(list)
            | Self::Dictionary(list)
            | Self::Opaque {
                parameters: list, ..
            } => {
                list.iter().for_each(|a| visit(*a));
            }
            Self::ParameterDecl { value, .. } => value.iter().for_each(|a| visit(*a)),
            Self::ParameterBind {
                reference, values, ..
            } => std::iter::once(reference)
                .chain(values)
                .for_each(|a| visit(*a)),
            Self::ParameterConstant { value, .. } => visit(*value),
            Self::HardwareConstraints { base, .. } => base.iter().for_each(|a| visit(*a)),
            Self::TargetSpec(parts) => parts.iter().for_each(|a| visit(*a)),
            Self::Debug(d) => d.attrs(visit),
            _ => {}
        }
    }

    /// Calls `visit` with every type this attribute refers to.
    pub fn types(&self, visit: &mut dyn FnMut(TypeId)) {
        match self {
            Self::Type(ty)
            | Self::ParameterDecl { ty, .. }
            | Self::ParameterBind { ty, .. }
            | Self::ParameterConstant { ty, .. }
            | Self::Debug(DebugAttr::Subprogram { ty, .. } | DebugAttr::LocalVariable { ty, .. }) =>
            {
                visit(*ty);
            }
            _ => {}
        }
    }
}

impl DebugAttr {
    fn decode(c: &mut Cursor<'_>, t: &Tables<'_>, kind: u64) -> Result<Self> {
        const WHAT: &str = "a debug attribute";
        Ok(match kind {
            30 => Self::File {
                name: t.string(c)?,
                directory: t.string(c)?,
                sha256: t.string(c)?,
            },
            31 => {
                let file = t.attr(c)?;
                Self::Source {
                    file,
                    range: [
                        c.varint(WHAT)?,
                        c.varint(WHAT)?,
                        c.varint(WHAT)?,
                        c.varint(WHAT)?,
                    ],
                }
            }
            32 => Self::CompileUnit {
                language: t.string(c)?,
                file: t.attr(c)?,
                producer: t.string(c)?,
                optimized: c.varint(WHAT)? != 0,
                flags: t.string(c)?,
                files: t.attrs(c)?,
            },
            33 => Self::MetadataValue(t.attr(c)?),
            35 => Self::Metadata {
                name: t.string(c)?,
                value: t.attr(c)?,
            },
            36 | 37 => Self::entity(c, t, kind)?,
            38 => Self::Bounds([
                c.signed(WHAT)?,
                c.signed(WHAT)?,
                c.signed(WHAT)?,
                c.signed(WHAT)?,
            ]),
            39 => Self::Element(t.attr(c)?),
            40 | 41 => Self::place(c, t, kind == 41)?,
            42 => Self::MetadataLocation(t.attrs(c)?),
            47 => Self::OpaqueLocation(t.attr(c)?),
            code => return Err(c.error(unknown_kind(code))),
        })
    }

    /// A function or a variable.
    fn entity(c: &mut Cursor<'_>, t: &Tables<'_>, kind: u64) -> Result<Self> {
        const WHAT: &str = "a debug attribute";
        let ty = t.ty(c)?;
        Ok(match kind {
            36 => Self::Subprogram {
                ty,
                unit: t.attr(c)?,
                file: t.attr(c)?,
                names: [t.string(c)?, t.string(c)?],
                flags: c.varint(WHAT)?,
            },
            _ => Self::LocalVariable {
                ty,
                name: t.string(c)?,
                place: [t.attr(c)?, t.attr(c)?],
                alignment: c.varint(WHAT)?,
                flags: c.varint(WHAT)?,
            },
        })
    }

    fn place(c: &mut Cursor<'_>, t: &Tables<'_>, inlined: bool) -> Result<Self> {
        let (source, scope) = (t.attr(c)?, t.attr(c)?);
        let inlined_at = if inlined { Some(t.attr(c)?) } else { None };
        Ok(Self::Location {
            source,
            scope,
            inlined_at,
            fused: t.attrs(c)?,
            metadata: t.attrs(c)?,
        })
    }

    fn attrs(&self, visit: &mut dyn FnMut(AttrId)) {
        match self {
            Self::File { .. } | Self::Bounds(_) => {}
            Self::Source { file: a, .. }
            | Self::Element(a)
            | Self::MetadataValue(a)
            | Self::Metadata { value: a, .. }
            | Self::OpaqueLocation(a) => visit(*a),
            Self::CompileUnit { file, files, .. } => {
                std::iter::once(file).chain(files).for_each(|a| visit(*a));
            }
            Self::Subprogram { unit, file, .. } => [unit, file].into_iter().for_each(|a| visit(*a)),
            Self::LocalVariable { place, .. } => place.iter().for_each(|a| visit(*a)),
            Self::Location {
                source,
                scope,
                inlined_at,
                fused,
                metadata,
            } => {
                [source, scope]
                    .into_iter()
                    .chain(inlined_at)
                    .chain(fused)
                    .chain(metadata)
                    .for_each(|a| visit(*a));
            }
            Self::MetadataLocation(list) => list.iter().for_each(|a| visit(*a)),
        }
    }
}

fn unknown_kind(code: u64) -> Problem {
    Problem::Unknown {
        what: "attribute kind",
        code,
    }
}

fn case(c: &mut Cursor<'_>, cases: &[(u64, &'static str)]) -> Result<&'static str> {
    let (at, code) = (c.offset(), c.varint("an enumeration")?);
    let found = cases.iter().find(|(value, _)| *value == code);
    let unknown = || Problem::Unknown {
        what: "case of an enumeration",
        code,
    };
    found
        .map(|(_, name)| *name)
        .ok_or_else(|| c.error_at(at, unknown()))
}

fn signed_list(c: &mut Cursor<'_>) -> Result<Vec<i64>> {
    c.list("a list of integers", |c| c.signed("an integer"))
}

/// An integer of `width` bits, zero-extended.
fn bits(c: &mut Cursor<'_>, width: u32) -> Result<u128> {
    const WHAT: &str = "an integer";
    let at = c.offset();
    let raw = match width {
        0..=8 => u128::from(c.byte(WHAT)?),
        9..=64 => u128::from(c.signed(WHAT)?.cast_unsigned()),
        _ => {
            let words = c.list(WHAT, |c| c.signed(WHAT))?;
            let (low, high) = match words.as_slice() {
                [low] => (*low, 0),
                [low, high] => (*low, *high),
                _ => {
                    let (what, value) = ("words of an integer", words.len() as u64);
                    let limit = 2;
                    return Err(c.error_at(at, Problem::Limit { what, value, limit }));
                }
            };
            u128::from(high.cast_unsigned()) << 64 | u128::from(low.cast_unsigned())
        }
    };
    match 1u128.checked_shl(width) {
        Some(end) if raw >= end => {
            let (what, expected) = ("an integer", "within its width");
            Err(c.error_at(at, Problem::Kind { what, expected }))
        }
        _ => Ok(raw),
    }
}

fn width(c: &mut Cursor<'_>, limit: u64) -> Result<u32> {
    let (at, value) = (c.offset(), c.varint("a bit width")?);
    let ok = u32::try_from(value).ok().filter(|_| value <= limit);
    let what = "a bit width";
    ok.ok_or_else(|| c.error_at(at, Problem::Limit { what, value, limit }))
}

fn integer(c: &mut Cursor<'_>) -> Result<AttrRecord> {
    let width = width(c, 128)?;
    let signed = c.byte("a signedness")? == 0;
    Ok(AttrRecord::Integer {
        width,
        signed,
        bits: bits(c, width)?,
    })
}

fn float(c: &mut Cursor<'_>) -> Result<AttrRecord> {
    let (at, width) = (c.offset(), width(c, 64)?);
    if !matches!(width, 16 | 32 | 64) {
        let (what, code) = ("float width", width.into());
        return Err(c.error_at(at, Problem::Unknown { what, code }));
    }
    let bits = bits(c, width)?;
    Ok(AttrRecord::Float {
        width,
        bits: u64::try_from(bits).unwrap_or(u64::MAX),
    })
}

fn dense(c: &mut Cursor<'_>) -> Result<AttrRecord> {
    let splat = c.byte("a splat flag")? != 0;
    let size = c.size("the elements of a constant")?;
    Ok(AttrRecord::Dense {
        splat,
        bytes: c.span(size, "the elements of a constant")?,
    })
}

fn hardware(c: &mut Cursor<'_>, t: &Tables<'_>, based: bool) -> Result<AttrRecord> {
    let (alignments, interleave) = (signed_list(c)?, signed_list(c)?);
    let allocation = case(c, &ALLOCATIONS)?;
    let base = if based { Some(t.attr(c)?) } else { None };
    Ok(AttrRecord::HardwareConstraints {
        alignments,
        interleave,
        allocation,
        base,
    })
}

fn sparse(c: &mut Cursor<'_>, blocked: bool) -> Result<AttrRecord> {
    const WHAT: &str = "a sparse encoding";
    let scheme = case(c, &COMPRESSIONS)?;
    let widths = [c.varint(WHAT)?, c.varint(WHAT)?];
    let stored = if c.byte(WHAT)? != 0 {
        Some(c.varint(WHAT)?)
    } else {
        None
    };
    let block = if blocked {
        Some(c.list(WHAT, |c| c.varint(WHAT))?)
    } else {
        None
    };
    Ok(AttrRecord::Sparse {
        scheme,
        widths,
        stored,
        block,
    })
}
