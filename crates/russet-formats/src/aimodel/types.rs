//! Type records of the `aicode` dialect.
//!
//! A type record starts with its kind. Types refer to other types and to attributes by index, so decoding one record
//! never recurses; [`super::records::Records`] checks once that no record contains itself.

use std::sync::Arc;

use super::cursor::Cursor;
use super::error::{Problem, Result};
use super::records::{AttrId, Tables, TypeId};

/// An extent that is not known until run time is written as the smallest 64-bit integer.
pub const DYNAMIC: i64 = i64::MIN;

/// More dimensions than any tensor has; keeps copies of a type small.
const MAX_RANK: usize = 16;

macro_rules! scalars {
    ($($code:literal $name:ident $text:literal;)*) => {
        /// The scalar kinds of the dialect.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Scalar { $(#[doc = concat!("`", $text, "`, record kind ", $code, ".")] $name,)* }

        impl Scalar {
            /// Every kind with its record kind.
            pub const ALL: &'static [(u64, Scalar)] = &[$(($code, Scalar::$name),)*];

            /// The name, as the producer prints it.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

scalars! {
    4 Bool "i1";
    5 F64 "f64";
    6 F32 "f32";
    7 F16 "f16";
    8 BF16 "bf16";
    9 F8E5M2 "f8E5M2";
    10 F8E4M3FN "f8E4M3FN";
    11 ComplexF64 "complex<f64>";
    12 ComplexF32 "complex<f32>";
    13 ComplexF16 "complex<f16>";
    14 ComplexBF16 "complex<bf16>";
    15 ComplexF8E5M2 "complex<f8E5M2>";
    16 ComplexF8E4M3FN "complex<f8E4M3FN>";
    17 SInt64 "si64";
    18 SInt32 "si32";
    19 SInt16 "si16";
    20 SInt8 "si8";
    21 SInt4 "si4";
    22 SInt2 "si2";
    23 UInt64 "ui64";
    24 UInt32 "ui32";
    25 UInt16 "ui16";
    26 UInt8 "ui8";
    27 UInt4 "ui4";
    28 UInt2 "ui2";
    29 UInt1 "ui1";
    36 UInt6 "ui6";
    37 UInt3 "ui3";
    38 TF32 "tf32";
    46 F4E2M1FN "f4E2M1FN";
    47 F8E8M0FNU "f8E8M0FNU";
}

/// One decoded type record.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum TypeRecord {
    /// A scalar.
    Scalar(Scalar),
    /// A type of another dialect, by name.
    Opaque {
        /// The type's name.
        name: Arc<str>,
        /// Its parameters, each an opaque (named) attribute.
        parameters: Vec<AttrId>,
    },
    /// A ranked tensor.
    Tensor {
        /// Extents, outermost first; [`DYNAMIC`] where unknown.
        shape: Vec<i64>,
        /// The element type.
        element: TypeId,
        /// Layout or sparsity of the storage.
        encoding: Option<AttrId>,
    },
    /// A function type.
    Function {
        /// Types of the arguments.
        inputs: Vec<TypeId>,
        /// Types of the results.
        results: Vec<TypeId>,
    },
    /// A reference to a tensor that outlives a call.
    Handle(TypeId),
    /// Orders effects; no data.
    Token,
    /// The type of a symbol parameter.
    Symbol,
    /// The type of a type parameter.
    TypeOfTypes,
    /// A reference to a parameter that stands for a type.
    Parameter {
        /// The parameter's name.
        name: Arc<str>,
        /// Its type.
        ty: TypeId,
    },
    /// An image.
    Image {
        /// Pixel format, a four-character code attribute.
        four_cc: AttrId,
        /// Pixels per row; 0 where not known.
        width: u64,
        /// Rows; 0 where not known.
        height: u64,
        /// Storage constraints.
        constraints: Option<AttrId>,
    },
    /// A type that only debug information uses.
    Debug(DebugType),
}

/// Types of debug information, after DWARF.
#[derive(Clone, Debug, PartialEq)]
pub enum DebugType {
    /// A type of the program itself.
    Unresolved(TypeId),
    /// A base type.
    Basic {
        /// DWARF tag.
        tag: u64,
        /// DWARF encoding.
        encoding: u64,
        /// Name.
        name: Arc<str>,
        /// Size in bits.
        size: u64,
    },
    /// A type made from another.
    Derived {
        /// DWARF tag.
        tag: u64,
        /// Name.
        name: Arc<str>,
        /// Size, alignment and offset in bits.
        layout: [u64; 3],
        /// The type it is made from.
        base: TypeId,
    },
    /// A structure, array or the like.
    Composite {
        /// DWARF tag.
        tag: u64,
        /// Name.
        name: Arc<str>,
        /// Where it is declared: a symbol reference and a source location.
        place: [AttrId; 2],
        /// Size and alignment in bits.
        layout: [u64; 2],
        /// Element type.
        base: Option<TypeId>,
        /// DWARF flags.
        flags: u64,
        /// Elements.
        elements: Vec<AttrId>,
    },
}

impl TypeRecord {
    /// Decodes one record.
    pub fn decode(c: &mut Cursor<'_>, t: &Tables<'_>) -> Result<Self> {
        let (at, kind) = (c.offset(), c.varint("a type kind")?);
        if let Some((_, scalar)) = Scalar::ALL.iter().find(|(code, _)| *code == kind) {
            return Ok(Self::Scalar(*scalar));
        }
        Ok(match kind {
            1 => Self::Opaque {
                name: t.string(c)?,
                parameters: t.attrs(c)?,
            },
            2 | 3 => tensor(c, t, kind == 3)?,
            // Results come first.
            30 => {
                let results = t.types(c)?;
                Self::Function {
                    inputs: t.types(c)?,
                    results,
                }
            }
            31 => Self::Handle(t.ty(c)?),
            32 => Self::Token,
            33 => Self::Symbol,
            34 => Self::TypeOfTypes,
            35 => Self::Parameter {
                name: t.string(c)?,
                ty: t.ty(c)?,
            },
            39 | 40 => image(c, t, kind == 40)?,
            41..=45 => Self::Debug(debug(c, t, kind)?),
            code => {
                let what = "type kind";
                return Err(c.error_at(at, Problem::Unknown { what, code }));
            }
        })
    }

    /// Calls `visit` with every type this one refers to.
    pub fn types(&self, visit: &mut dyn FnMut(TypeId)) {
        match self {
            Self::Tensor { element: ty, .. }
            | Self::Handle(ty)
            | Self::Parameter { ty, .. }
            | Self::Debug(DebugType::Unresolved(ty) | DebugType::Derived { base: ty, .. }) => {
                visit(*ty);
            }
            Self::Function { inputs, results } => {
                inputs.iter().chain(results).for_each(|t| visit(*t));
            }
            Self::Debug(DebugType::Composite { base, .. }) => base.iter().for_each(|t| visit(*t)),
            _ => {}
        }
    }

    /// Calls `visit` with every attribute this type refers to.
    pub fn attrs(&self, visit: &mut dyn FnMut(AttrId)) {
        match self {
            Self::Opaque {
                parameters: list, ..
            } => list.iter().for_each(|a| visit(*a)),
            Self::Tensor {
                encoding: Some(a), ..
            } => visit(*a),
            Self::Image {
                four_cc,
                constraints,
                ..
            } => [Some(*four_cc), *constraints]
                .into_iter()
                .flatten()
                .for_each(visit),
            Self::Debug(DebugType::Composite {
                place, elements, ..
            }) => place.iter().chain(elements).for_each(|a| visit(*a)),
            _ => {}
        }
    }
}

fn tensor(c: &mut Cursor<'_>, t: &Tables<'_>, encoded: bool) -> Result<TypeRecord> {
    let at = c.offset();
    let shape = c.list("the extents of a tensor type", |c| c.signed("an extent"))?;
    if shape.len() > MAX_RANK {
        let (value, limit) = (shape.len() as u64, MAX_RANK as u64);
        let what = "the rank of a tensor";
        return Err(c.error_at(at, Problem::Limit { what, value, limit }));
    }
    let element = t.ty(c)?;
    let encoding = if encoded { Some(t.attr(c)?) } else { None };
    Ok(TypeRecord::Tensor {
        shape,
        element,
        encoding,
    })
}

fn image(c: &mut Cursor<'_>, t: &Tables<'_>, constrained: bool) -> Result<TypeRecord> {
    let four_cc = t.attr(c)?;
    let (height, width) = (
        c.varint("the height of an image")?,
        c.varint("the width of an image")?,
    );
    let constraints = if constrained { Some(t.attr(c)?) } else { None };
    Ok(TypeRecord::Image {
        four_cc,
        width,
        height,
        constraints,
    })
}

fn debug(c: &mut Cursor<'_>, t: &Tables<'_>, kind: u64) -> Result<DebugType> {
    const WHAT: &str = "a debug type";
    if kind == 41 {
        return Ok(DebugType::Unresolved(t.ty(c)?));
    }
    let tag = c.varint(WHAT)?;
    Ok(match kind {
        42 => DebugType::Basic {
            tag,
            encoding: c.varint(WHAT)?,
            name: t.string(c)?,
            size: c.varint(WHAT)?,
        },
        43 => {
            let name = t.string(c)?;
            let layout = [c.varint(WHAT)?, c.varint(WHAT)?, c.varint(WHAT)?];
            DebugType::Derived {
                tag,
                name,
                layout,
                base: t.ty(c)?,
            }
        }
        _ => {
            let (name, place) = (t.string(c)?, [t.attr(c)?, t.attr(c)?]);
            let layout = [c.varint(WHAT)?, c.varint(WHAT)?];
            let base = if kind == 45 { Some(t.ty(c)?) } else { None };
            DebugType::Composite {
                tag,
                name,
                place,
                layout,
                base,
                flags: c.varint(WHAT)?,
                elements: t.attrs(c)?,
            }
        }
    })
}
