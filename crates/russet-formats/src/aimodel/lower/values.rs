//! Types, attributes, constants and locations of the file as those of the graph.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use russet_graph::attr::{Attr, Attributes};
use russet_graph::graph::{ConstantData, Storage};
use russet_graph::types::{DType, Dim, TensorType, Type};
use russet_kernels::mem::SharedBytes;

use super::super::attrs::{AttrRecord, DebugAttr};
use super::super::error::Problem;
use super::super::raw::RawModule;
use super::super::records::{AttrId, TypeId};
use super::super::types::{DYNAMIC, Scalar, TypeRecord};

type Outcome<T> = Result<T, Problem>;

/// What a small file may always cost.
const PARTS_AT_LEAST: usize = 1 << 14;
/// As much text, or as many raw bytes, as one part of an attribute takes.
const BYTES_PER_PART: usize = 64;
/// As many extents as one part of an attribute takes.
const EXTENTS_PER_PART: usize = 4;
/// Source lines kept for one operation.
const MAX_FRAMES: usize = 8;

/// How the bytes of an image lie.
#[derive(Clone, Copy, Debug)]
enum Pixels {
    /// This many channels, interleaved.
    Channels(i64),
    /// A plane of brightness and two of colour with a quarter of the pixels each.
    Quartered,
}

/// Pixel formats by their code (those of Core Video).
const PIXELS: [(u32, Pixels); 4] = [
    (24, Pixels::Channels(3)),
    (32, Pixels::Channels(4)),
    (u32::from_be_bytes(*b"BGRA"), Pixels::Channels(4)),
    (u32::from_be_bytes(*b"y420"), Pixels::Quartered),
];

const SCALARS: &[(Scalar, DType)] = &[
    (Scalar::Bool, DType::Bool),
    (Scalar::F64, DType::F64),
    (Scalar::F32, DType::F32),
    (Scalar::F16, DType::F16),
    (Scalar::BF16, DType::BF16),
    (Scalar::F8E5M2, DType::F8E5M2),
    (Scalar::F8E4M3FN, DType::F8E4M3),
    (Scalar::F8E8M0FNU, DType::F8E8M0),
    (Scalar::F4E2M1FN, DType::F4E2M1),
    (Scalar::ComplexF32, DType::C32),
    (Scalar::ComplexF16, DType::C16),
    (Scalar::SInt64, DType::I64),
    (Scalar::SInt32, DType::I32),
    (Scalar::SInt16, DType::I16),
    (Scalar::SInt8, DType::I8),
    (Scalar::SInt4, DType::I4),
    (Scalar::SInt2, DType::I2),
    (Scalar::UInt64, DType::U64),
    (Scalar::UInt32, DType::U32),
    (Scalar::UInt16, DType::U16),
    (Scalar::UInt8, DType::U8),
    (Scalar::UInt6, DType::U6),
    (Scalar::UInt4, DType::U4),
    (Scalar::UInt3, DType::U3),
    (Scalar::UInt2, DType::U2),
    (Scalar::UInt1, DType::U1),
];

/// Translates values, remembering those that are asked for often.
pub(super) struct Values<'a> {
    file: &'a SharedBytes,
    raw: &'a RawModule,
    /// Types that were made, with the parts that their encodings have when written out.
    types: HashMap<TypeId, (Type, usize)>,
    locations: HashMap<AttrId, (Option<Arc<Attr>>, usize)>,
    /// Elements that had to be packed, by their place in the file: many constants may share them.
    packed: HashMap<(Range<usize>, DType), SharedBytes>,
    /// Source lines as text, by the record they come from.
    lines: HashMap<AttrId, Option<Arc<str>>>,
    /// Parts of attributes and types that may still be made. Records share parts, so a small file could ask for very many.
    parts: usize,
}

impl<'a> Values<'a> {
    pub(super) fn new(file: &'a SharedBytes, raw: &'a RawModule) -> Self {
        let parts = raw.container.structure_len().max(PARTS_AT_LEAST);
        Self {
            file,
            raw,
            types: HashMap::new(),
            locations: HashMap::new(),
            packed: HashMap::new(),
            lines: HashMap::new(),
            parts,
        }
    }

    /// A type. Every use of it costs what its encoding and its extents cost.
    pub(super) fn ty(&mut self, id: TypeId) -> Outcome<Type> {
        if let Some((ty, cost)) = self.types.get(&id) {
            let (ty, cost) = (ty.clone(), *cost);
            self.spend(cost)?;
            return Ok(ty);
        }
        let before = self.parts;
        let ty = self.new_type(id)?;
        self.spend(match &ty {
            Type::Tensor(t) | Type::Handle(t) => 1 + t.rank() / EXTENTS_PER_PART,
            Type::Opaque(name) => 1 + name.len() / BYTES_PER_PART,
            _ => 1,
        })?;
        let cost = before - self.parts;
        self.types.insert(id, (ty.clone(), cost));
        Ok(ty)
    }

    fn new_type(&mut self, id: TypeId) -> Outcome<Type> {
        let raw = self.raw;
        Ok(match raw.records.ty(id) {
            Some(TypeRecord::Tensor {
                shape,
                element,
                encoding,
            }) => self.tensor(shape, *element, *encoding)?,
            Some(TypeRecord::Token) => Type::Token,
            Some(TypeRecord::Handle(inner)) => match self.ty(*inner)? {
                Type::Tensor(t) => Type::Handle(t),
                other => Type::Opaque(format!("handle<{other}>").into()),
            },
            Some(TypeRecord::Scalar(s)) => Type::Opaque(s.name().into()),
            Some(TypeRecord::Image {
                four_cc,
                width,
                height,
                ..
            }) => self.image(*four_cc, *width, *height)?,
            Some(TypeRecord::Opaque { name, .. } | TypeRecord::Parameter { name, .. }) => {
                Type::Opaque(name.clone())
            }
            _ => {
                return Err(Problem::Unsupported(
                    "a value of a type that is not a tensor, handle, token or image".into(),
                ));
            }
        })
    }

    fn tensor(
        &mut self,
        shape: &[i64],
        element: TypeId,
        encoding: Option<AttrId>,
    ) -> Outcome<Type> {
        let Some(TypeRecord::Scalar(scalar)) = self.raw.records.ty(element) else {
            return Err(Problem::Unsupported(
                "a tensor whose elements are not scalars".into(),
            ));
        };
        let Some((_, dtype)) = SCALARS.iter().find(|(s, _)| s == scalar) else {
            return Err(Problem::Unsupported(format!(
                "a tensor of {}",
                scalar.name()
            )));
        };
        let mut dims = Vec::with_capacity(shape.len());
        for extent in shape {
            dims.push(match *extent {
                DYNAMIC => Dim::Unknown,
                0.. => Dim::Const(*extent),
                _ => {
                    return Err(Problem::Kind {
                        what: "an extent",
                        expected: "not negative",
                    });
                }
            });
        }
        let mut ty = TensorType::new(*dtype, dims);
        if let Some(id) = encoding {
            ty.encoding = Some(Arc::new(self.attr(id)?));
        }
        Ok(Type::Tensor(ty))
    }

    /// An image is the tensor of its bytes: interleaved channels `[height, width, channels]`, or planes one after another.
    fn image(&mut self, format: AttrId, width: u64, height: u64) -> Outcome<Type> {
        let name = match self.raw.records.attr(format) {
            Some(AttrRecord::FourCc(code)) => *code,
            _ => 0,
        };
        let extent = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        let (w, h) = (extent(width), extent(height));
        let flat = |n: Option<i64>| n.map(|n| vec![Dim::Const(n)]);
        let shape = match PIXELS.iter().find(|(code, _)| u64::from(*code) == name) {
            Some((_, Pixels::Channels(n))) => {
                Some(vec![Dim::Const(h), Dim::Const(w), Dim::Const(*n)])
            }
            Some((_, Pixels::Quartered)) => flat((|| {
                h.checked_mul(w)?
                    .checked_add((h / 2).checked_mul(w / 2)?.checked_mul(2)?)
            })()),
            None => flat(h.checked_mul(w)),
        };
        let shape = shape.ok_or(Problem::Structure("the size of an image overflows"))?;
        let mut ty = TensorType::new(DType::U8, shape);
        let hint = vec![("image".into(), self.attr(format)?)];
        ty.encoding = Some(Arc::new(Attr::Dict(hint)));
        Ok(Type::Tensor(ty))
    }

    /// The text of an attribute that is text.
    pub(super) fn text(&self, id: AttrId) -> Option<Arc<str>> {
        match self.raw.records.attr(id)? {
            AttrRecord::String(s) => Some(s.clone()),
            _ => None,
        }
    }

    /// Whether an attribute is the boolean true.
    pub(super) fn flag(&self, id: AttrId) -> bool {
        matches!(
            self.raw.records.attr(id),
            Some(AttrRecord::Integer { bits: 1.., .. })
        )
    }

    /// Named attributes. The prefix that names the dialect is dropped.
    pub(super) fn entries(&mut self, ids: &[AttrId]) -> Outcome<Attributes> {
        let raw = self.raw;
        let mut out = Vec::with_capacity(ids.len());
        for id in ids {
            let Some(AttrRecord::Opaque { name, parameters }) = raw.records.attr(*id) else {
                return Err(Problem::Kind {
                    what: "an entry of a dictionary",
                    expected: "a named attribute",
                });
            };
            self.spend_text(name)?;
            let name: Arc<str> = name
                .strip_prefix("aicode.")
                .map_or_else(|| name.clone(), Into::into);
            out.push((name, self.parameters(parameters)?));
        }
        Ok(out)
    }

    fn parameters(&mut self, ids: &[AttrId]) -> Outcome<Attr> {
        match ids {
            [] => Ok(Attr::Unit),
            [one] => self.attr(*one),
            many => self.list(many).map(Attr::List),
        }
    }

    fn list(&mut self, ids: &[AttrId]) -> Outcome<Vec<Attr>> {
        ids.iter().map(|id| self.attr(*id)).collect()
    }

    /// Takes from what attributes may still cost.
    fn spend(&mut self, parts: usize) -> Outcome<()> {
        self.parts = self.parts.checked_sub(parts).ok_or(Problem::Limit {
            what: "the parts of all attributes, types and names",
            value: parts as u64,
            limit: self.parts as u64,
        })?;
        Ok(())
    }

    /// The same for a copy of a text.
    pub(super) fn spend_text(&mut self, text: &str) -> Outcome<()> {
        self.spend(text.len() / BYTES_PER_PART)
    }

    /// An attribute with everything in it.
    pub(super) fn attr(&mut self, id: AttrId) -> Outcome<Attr> {
        self.spend(1)?;
        let raw: &'a RawModule = self.raw;
        let Some(record) = raw.records.attr(id) else {
            return Err(Problem::Structure("an attribute that is not there"));
        };
        Ok(match record {
            AttrRecord::String(s) => {
                self.spend_text(s)?;
                Attr::Str(s.clone())
            }
            AttrRecord::Integer { width: 1, bits, .. } => Attr::Bool(*bits != 0),
            AttrRecord::Integer {
                width,
                signed,
                bits,
            } => Attr::Int(integer(*width, *signed, *bits)?),
            AttrRecord::Float { width, bits } => Attr::float(float(*width, *bits)),
            AttrRecord::Type(ty) => Attr::Type(self.ty(*ty)?),
            AttrRecord::Array(ids) => Attr::List(self.list(ids)?),
            AttrRecord::Dictionary(ids) => Attr::Dict(self.entries(ids)?),
            AttrRecord::Opaque { name, parameters } => {
                self.spend_text(name)?;
                Attr::Dict(vec![(name.clone(), self.parameters(parameters)?)])
            }
            AttrRecord::Unit => Attr::Unit,
            AttrRecord::Symbol(path) => {
                self.spend(path.iter().map(|p| 1 + p.len() / BYTES_PER_PART).sum())?;
                Attr::Graph(path.join(".").into())
            }
            AttrRecord::ParameterConstant { value, .. } => self.attr(*value)?,
            AttrRecord::Enum(_, case) => Attr::str(case),
            AttrRecord::Dense { bytes, .. } => {
                self.spend(bytes.len() / BYTES_PER_PART)?;
                Attr::Bytes(self.file.get(bytes.clone()).unwrap_or_default().into())
            }
            AttrRecord::TargetSpec(parts) => {
                let names = ["triple", "soc", "delegate_options"].map(Arc::from);
                let values = self.list(parts)?;
                Attr::Dict(names.into_iter().zip(values).collect())
            }
            AttrRecord::FourCc(code) => {
                // Four characters, the first in the highest byte, or a small number.
                let text = String::from_utf8_lossy(&code.to_be_bytes()).replace('\0', "");
                match *code {
                    ..256 => Attr::str(&code.to_string()),
                    _ => Attr::str(&text),
                }
            }
            AttrRecord::HardwareConstraints { .. } | AttrRecord::ImageConstraints { .. } => {
                self.constraints(record)?
            }
            other => simple(other)?,
        })
    }

    /// What hardware asks of the storage of a tensor or an image.
    fn constraints(&mut self, record: &AttrRecord) -> Outcome<Attr> {
        let mut parts: Attributes = Vec::new();
        match record {
            AttrRecord::HardwareConstraints {
                alignments,
                interleave,
                allocation,
                base,
            } => {
                self.spend(alignments.len().saturating_add(interleave.len()))?;
                parts.push(("allocation".into(), Attr::str(allocation)));
                let ints = |list: &[i64]| Attr::ints(list.iter().copied());
                parts.push(("alignments".into(), ints(alignments)));
                parts.push(("interleave".into(), ints(interleave)));
                if let Some(id) = base {
                    parts.push(("base".into(), self.attr(*id)?));
                }
            }
            AttrRecord::ImageConstraints {
                container,
                row_alignments,
            } => {
                self.spend(row_alignments.len())?;
                parts.push(("container".into(), Attr::str(container)));
                let rows = Attr::ints(row_alignments.iter().copied());
                parts.push(("row_alignments".into(), rows));
            }
            _ => {}
        }
        Ok(Attr::Dict(parts))
    }

    /// The elements of a constant of this type.
    pub(super) fn constant(&mut self, ty: &TensorType, id: AttrId) -> Outcome<ConstantData> {
        let (splat, inline, place) = match self.raw.records.attr(id) {
            Some(AttrRecord::Dense { splat, bytes }) => (*splat, true, bytes.clone()),
            Some(AttrRecord::Resource(id)) => match self.raw.container.resource(*id) {
                Some(resource) => (false, false, resource.bytes.clone()),
                None => return Err(Problem::Structure("a resource that is not there")),
            },
            _ => {
                return Err(Problem::Kind {
                    what: "value",
                    expected: "the elements of a constant",
                });
            }
        };
        let len = if splat { Some(1) } else { ty.fixed_len() };
        let Some(len) = len else {
            return Err(Problem::Structure(
                "the type of a constant has fixed extents",
            ));
        };
        let bytes = match inline {
            true => self.elements(place, ty.dtype, len)?,
            false => self.leading(&place, ty.dtype, len)?,
        };
        let storage = if splat {
            Storage::Splat(bytes)
        } else {
            Storage::Dense(bytes)
        };
        Ok(ConstantData {
            ty: ty.clone(),
            storage,
        })
    }

    /// The bytes of a resource. Elements below a byte are packed from its start; what follows them is nobody's (the authoring
    /// API stores one element a byte and the runtime still reads them packed).
    fn leading(&self, place: &Range<usize>, dtype: DType, len: usize) -> Outcome<SharedBytes> {
        let need = packed_len(dtype, len)?;
        let surplus = dtype.bits() < 8 && place.len() > need;
        if !surplus && place.len() != need {
            return Err(wrong_size(place.len(), need));
        }
        self.file
            .slice(place.start..place.start + need)
            .ok_or(Problem::Truncated("the elements of a constant"))
    }

    /// The elements at a place of the file, packed as the graph packs them. Files keep elements below a byte either packed
    /// already, or one to a byte.
    fn elements(&mut self, place: Range<usize>, dtype: DType, len: usize) -> Outcome<SharedBytes> {
        let need = packed_len(dtype, len)?;
        let bytes = self
            .file
            .slice(place.clone())
            .ok_or(Problem::Truncated("the elements of a constant"))?;
        if bytes.len() == need {
            return Ok(bytes);
        }
        if dtype.bits() >= 8 || bytes.len() != len {
            return Err(wrong_size(bytes.len(), need));
        }
        let pack = || SharedBytes::from_vec(packed(dtype.bits(), &bytes, need));
        Ok(self
            .packed
            .entry((place, dtype))
            .or_insert_with(pack)
            .clone())
    }

    /// Where an operation came from: source lines, innermost first; nothing where the exporter kept none.
    pub(super) fn location(&mut self, id: AttrId) -> Outcome<Option<Arc<Attr>>> {
        if let Some((known, cost)) = self.locations.get(&id) {
            let (known, cost) = (known.clone(), *cost);
            self.spend(cost)?;
            return Ok(known);
        }
        let mut frames = Vec::new();
        self.frames(id, &mut frames, MAX_FRAMES)?;
        let cost = frames.iter().map(|f| 1 + f.len() / BYTES_PER_PART).sum();
        self.spend(cost)?;
        let found = match frames.len() {
            0 => None,
            1 => frames.pop().map(|f| Arc::new(Attr::Str(f))),
            _ => Some(Arc::new(Attr::List(
                frames.into_iter().map(Attr::Str).collect(),
            ))),
        };
        self.locations.insert(id, (found.clone(), cost));
        Ok(found)
    }

    fn frames(&mut self, id: AttrId, out: &mut Vec<Arc<str>>, depth: usize) -> Outcome<()> {
        let raw = self.raw;
        let Some(AttrRecord::Debug(DebugAttr::Location {
            source,
            inlined_at,
            fused,
            ..
        })) = raw.records.attr(id)
        else {
            return Ok(());
        };
        if depth == 0 || out.len() >= MAX_FRAMES {
            return Ok(());
        }
        if let Some(frame) = self.line(*source)?.filter(|f| !out.contains(f)) {
            out.push(frame);
        }
        for next in inlined_at.iter().chain(fused).take(MAX_FRAMES) {
            self.frames(*next, out, depth / 2)?;
        }
        Ok(())
    }

    /// A source line as text, made once.
    fn line(&mut self, id: AttrId) -> Outcome<Option<Arc<str>>> {
        if let Some(known) = self.lines.get(&id) {
            return Ok(known.clone());
        }
        let line = self.frame(id);
        self.spend(line.as_ref().map_or(0, |l| l.len() / BYTES_PER_PART))?;
        self.lines.insert(id, line.clone());
        Ok(line)
    }

    /// `directory/file:line:column`, unless the file is a placeholder such as `<string>` or `-`.
    fn frame(&self, id: AttrId) -> Option<Arc<str>> {
        let AttrRecord::Debug(DebugAttr::Source {
            file,
            range: [line, column, ..],
        }) = self.raw.records.attr(id)?
        else {
            return None;
        };
        let AttrRecord::Debug(DebugAttr::File {
            name, directory, ..
        }) = self.raw.records.attr(*file)?
        else {
            return None;
        };
        if name.is_empty() || name.starts_with('<') || &**name == "-" {
            return None;
        }
        let slash = if directory.is_empty() { "" } else { "/" };
        Some(format!("{directory}{slash}{name}:{line}:{column}").into())
    }
}

/// Attributes that have no parts of their own in the graph.
fn simple(record: &AttrRecord) -> Outcome<Attr> {
    match record {
        AttrRecord::Sparse {
            scheme,
            widths,
            stored,
            block,
        } => {
            let count = |v: u64| Attr::Int(i64::try_from(v).unwrap_or(i64::MAX));
            let mut parts = vec![
                ("scheme".into(), Attr::str(scheme)),
                (
                    "widths".into(),
                    Attr::List(widths.iter().map(|w| count(*w)).collect()),
                ),
            ];
            if let Some(stored) = stored {
                parts.push(("stored".into(), count(*stored)));
            }
            if let Some(block) = block {
                parts.push((
                    "block".into(),
                    Attr::List(block.iter().map(|w| count(*w)).collect()),
                ));
            }
            Ok(Attr::Dict(parts))
        }
        AttrRecord::Debug(_) => Ok(Attr::Unit),
        _ => Err(Problem::Unsupported(
            "an attribute that has no meaning in a graph".into(),
        )),
    }
}

fn integer(width: u32, signed: bool, bits: u128) -> Outcome<i64> {
    let value = match signed && width > 0 && width <= 128 {
        true => (bits << (128 - width)).cast_signed() >> (128 - width),
        false => i128::try_from(bits).unwrap_or(i128::MAX),
    };
    i64::try_from(value)
        .map_err(|_| Problem::Unsupported("an integer attribute above 64 bits".into()))
}

fn float(width: u32, bits: u64) -> f64 {
    match width {
        16 => half::f16::from_bits(bits as u16).to_f64(),
        32 => f32::from_bits(bits as u32).into(),
        _ => f64::from_bits(bits),
    }
}

fn packed_len(dtype: DType, len: usize) -> Outcome<usize> {
    dtype
        .packed_len(len)
        .ok_or(Problem::Structure("the size of a constant overflows"))
}

fn wrong_size(bytes: usize, need: usize) -> Problem {
    Problem::Limit {
        what: "bytes of a constant",
        value: bytes as u64,
        limit: need as u64,
    }
}

/// Elements of `bits` bits, given one to a byte, one behind the other from the low bits up.
fn packed(bits: usize, bytes: &[u8], need: usize) -> Vec<u8> {
    let mut out = vec![0u8; need];
    for (i, byte) in bytes.iter().enumerate() {
        let low = u16::from(*byte) & ((1 << bits) - 1);
        let spread = low << (i * bits % 8);
        for (k, part) in spread.to_le_bytes().into_iter().enumerate() {
            if let Some(to) = out.get_mut(i * bits / 8 + k) {
                *to |= part;
            }
        }
    }
    out
}
