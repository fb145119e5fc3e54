//! Every kind of attribute and type record: read field by field, cut after every byte, and with every field spoiled in turn.
#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

mod common;

use std::fmt::Debug;
use std::sync::Arc;

use common::{signed, varint};
use russet_formats::aimodel::attrs::AttrRecord;
use russet_formats::aimodel::cursor::Cursor;
use russet_formats::aimodel::records::Tables;
use russet_formats::aimodel::types::{Scalar, TypeRecord};
use russet_formats::aimodel::{Problem, ReadError, Section};

/// A field of a record.
#[derive(Clone, Copy)]
enum Field {
    /// References into the four tables.
    Str,
    Attr,
    Type,
    Resource,
    /// A case of an enumeration.
    Case(u64),
    /// Any number.
    Num(u64),
    Signed(i64),
    Byte(u8),
    /// A size and as many bytes.
    Bytes(&'static [u8]),
    /// A list.
    Many(&'static [Field]),
}
use Field::{Attr, Byte, Bytes, Case, Many, Num, Resource, Str, Type};

const NUM: Field = Num(300);
const INT: Field = Field::Signed(-1);
const ATTRS: Field = Many(&[Attr, Attr]);

type Row = (u64, &'static str, &'static [Field]);

const ATTR_ROWS: &[Row] = &[
    (1, "String", &[Str]),
    (
        2,
        "Integer { width: 1, signed: false, bits: 1",
        &[Num(1), Byte(1), Byte(1)],
    ),
    (
        2,
        "Integer { width: 64, signed: true, bits: 18446744073709551615",
        &[Num(64), Byte(0), INT],
    ),
    (
        2,
        "Integer { width: 128, signed: true, bits: 18446744073709551617",
        &[
            Num(128),
            Byte(0),
            Many(&[Field::Signed(1), Field::Signed(1)]),
        ],
    ),
    (
        3,
        "Float { width: 16, bits: 15360",
        &[Num(16), Field::Signed(0x3c00)],
    ),
    (
        3,
        "Float { width: 32, bits: 1065353216",
        &[Num(32), Field::Signed(0x3f80_0000)],
    ),
    (
        3,
        "Float { width: 64, bits: 4607182418800017408",
        &[Num(64), Field::Signed(0x3ff0_0000_0000_0000)],
    ),
    (4, "Type", &[Type]),
    (5, "Array", &[ATTRS]),
    (6, "Dense { splat: true", &[Byte(1), Bytes(b"abc")]),
    (7, "Resource", &[Resource]),
    (9, "Opaque", &[Str, ATTRS]),
    (10, "ParameterDecl", &[Str, Type]),
    (11, "ParameterDecl", &[Str, Type, Attr]),
    (
        12,
        "HardwareConstraints",
        &[Many(&[INT, INT]), Many(&[INT]), Case(2)],
    ),
    (
        13,
        "HardwareConstraints",
        &[Many(&[INT, INT]), Many(&[INT]), Case(3), Attr],
    ),
    (14, "Symbol", &[Many(&[Str, Str])]),
    (15, "ParameterBind", &[Attr, Type, ATTRS]),
    (16, "ParameterConstant", &[Attr, Type]),
    (17, "Enum(Padding, \"reflect\")", &[Case(2)]),
    (18, "Enum(Lifecycle, \"init_reshape\")", &[Case(3)]),
    (19, "Enum(Approximation, \"tanh\")", &[Case(1)]),
    (20, "Enum(Scatter, \"min\")", &[Case(6)]),
    (21, "Sparse", &[Case(1), NUM, NUM, Byte(0)]),
    (
        23,
        "Sparse",
        &[Case(3), NUM, NUM, Byte(1), NUM, Many(&[NUM, NUM])],
    ),
    (25, "Enum(Combiner, \"max\")", &[Case(3)]),
    (26, "ImageConstraints", &[Case(2), Many(&[INT])]),
    (27, "FourCc(300)", &[NUM]),
    (28, "Enum(Compilation, \"finalized\")", &[Case(2)]),
    (29, "TargetSpec", &[Attr, Attr, Attr]),
    (30, "Debug(File", &[Str, Str, Str]),
    (31, "Debug(Source", &[Attr, NUM, NUM, NUM, NUM]),
    (
        32,
        "Debug(CompileUnit",
        &[Str, Attr, Str, Num(1), Str, ATTRS],
    ),
    (33, "Debug(MetadataValue", &[Attr]),
    (35, "Debug(Metadata {", &[Str, Attr]),
    (36, "Debug(Subprogram", &[Type, Attr, Attr, Str, Str, NUM]),
    (
        37,
        "Debug(LocalVariable",
        &[Type, Str, Attr, Attr, NUM, NUM],
    ),
    (38, "Debug(Bounds([-1, -1, -1, -1]", &[INT, INT, INT, INT]),
    (39, "Debug(Element", &[Attr]),
    (40, "Debug(Location", &[Attr, Attr, ATTRS, ATTRS]),
    (41, "Debug(Location", &[Attr, Attr, Attr, ATTRS, ATTRS]),
    (42, "Debug(MetadataLocation", &[ATTRS]),
    (43, "Enum(Interpolation, \"nearest_neighbor\")", &[Case(1)]),
    (44, "Enum(Intent, \"metadata\")", &[Case(5)]),
    (45, "Dictionary", &[ATTRS]),
    (46, "Unit", &[]),
    (47, "Debug(OpaqueLocation", &[Attr]),
];

const TYPE_ROWS: &[Row] = &[
    (1, "Opaque", &[Str, ATTRS]),
    (
        2,
        "Tensor { shape: [-1, 3]",
        &[Many(&[INT, Field::Signed(3)]), Type],
    ),
    (3, "Tensor { shape: [-1]", &[Many(&[INT]), Type, Attr]),
    (30, "Function", &[Many(&[Type, Type]), Many(&[Type])]),
    (31, "Handle", &[Type]),
    (32, "Token", &[]),
    (33, "Symbol", &[]),
    (34, "TypeOfTypes", &[]),
    (35, "Parameter", &[Str, Type]),
    (
        39,
        "Image { four_cc: AttrId(1), width: 300",
        &[Attr, NUM, NUM],
    ),
    (40, "Image", &[Attr, NUM, NUM, Attr]),
    (41, "Debug(Unresolved", &[Type]),
    (42, "Debug(Basic", &[NUM, NUM, Str, NUM]),
    (43, "Debug(Derived", &[NUM, Str, NUM, NUM, NUM, Type]),
    (
        44,
        "Debug(Composite",
        &[NUM, Str, Attr, Attr, NUM, NUM, NUM, ATTRS],
    ),
    (
        45,
        "Debug(Composite",
        &[NUM, Str, Attr, Attr, NUM, NUM, Type, NUM, ATTRS],
    ),
];

/// What should be wrong.
type Expected = fn(&Problem) -> bool;

/// Entries of every table, two each; references are to the last one.
const ENTRIES: u64 = 2;

impl Field {
    /// Its bytes; a list's items are fields of their own.
    fn head(self) -> Vec<u8> {
        match self {
            Str | Attr | Type | Resource => varint(ENTRIES - 1),
            Case(v) | Num(v) => varint(v),
            Field::Signed(v) => signed(v),
            Byte(b) => vec![b],
            Bytes(b) => [varint(b.len() as u64), b.to_vec()].concat(),
            Many(items) => varint(items.len() as u64),
        }
    }

    /// What the field is made, and what is wrong then.
    fn spoiled(self) -> Option<(Vec<u8>, Expected)> {
        let huge = varint(1 << 40);
        Some(match self {
            Str | Attr | Type | Resource => (varint(ENTRIES), |p| {
                matches!(p, Problem::Index { index: ENTRIES, .. })
            }),
            Case(_) => (varint(99), |p| {
                matches!(p, Problem::Unknown { code: 99, .. })
            }),
            Bytes(_) => (huge, |p| matches!(p, Problem::Truncated(_))),
            Many(_) => (huge, |p| {
                matches!(
                    p,
                    Problem::Limit {
                        value: 0x100_0000_0000,
                        ..
                    }
                )
            }),
            Num(_) | Field::Signed(_) | Byte(_) => return None,
        })
    }
}

/// The fields with the items of lists in their places.
fn flat(fields: &[Field]) -> Vec<Field> {
    let inside = |f: &Field| match f {
        Many(items) => [vec![*f], flat(items)].concat(),
        _ => vec![*f],
    };
    fields.iter().flat_map(inside).collect()
}

fn decode<T: Debug>(
    bytes: &[u8],
    read: impl Fn(&mut Cursor<'_>, &Tables<'_>) -> Result<T, ReadError>,
) -> Result<String, ReadError> {
    let strings: [Arc<str>; ENTRIES as usize] = ["a".into(), "b".into()];
    let tables = Tables {
        strings: &strings,
        attrs: ENTRIES as usize,
        types: ENTRIES as usize,
        resources: ENTRIES as usize,
    };
    let mut c = Cursor::new(bytes, 0..bytes.len(), Section::Records);
    let record = read(&mut c, &tables)?;
    c.finish("a record")?;
    Ok(format!("{record:?}"))
}

fn attr(bytes: &[u8]) -> Result<String, ReadError> {
    decode(bytes, AttrRecord::decode)
}

fn ty(bytes: &[u8]) -> Result<String, ReadError> {
    decode(bytes, TypeRecord::decode)
}

type Read = fn(&[u8]) -> Result<String, ReadError>;

/// Reads a record, then the same cut, extended, and with each field spoiled.
fn check(read: Read, (kind, text, fields): Row) {
    let fields = flat(fields);
    let parts: Vec<Vec<u8>> = [varint(kind)]
        .into_iter()
        .chain(fields.iter().map(|f| f.head()))
        .collect();
    let whole = parts.concat();
    let found = read(&whole).unwrap();
    assert!(found.starts_with(text), "kind {kind}: {found}");
    for cut in 0..whole.len() {
        let error = read(&whole[..cut]).expect_err("a record that is cut");
        let ends = matches!(error.problem, Problem::Truncated(_) | Problem::Limit { .. });
        assert!(
            ends && error.offset <= cut,
            "kind {kind} cut at {cut}: {error}"
        );
    }
    let more = read(&[&whole[..], &[1]].concat()).unwrap_err();
    assert!(
        matches!(more.problem, Problem::Trailing { left: 1, .. }),
        "kind {kind}: {more}"
    );
    for (i, field) in fields.iter().enumerate() {
        let Some((bytes, expected)) = field.spoiled() else {
            continue;
        };
        let mut parts = parts.clone();
        let place = parts[..=i].concat().len();
        parts[i + 1] = bytes;
        let error = read(&parts.concat()).expect_err("a record that is spoiled");
        assert!(expected(&error.problem), "kind {kind}, field {i}: {error}");
        let at_its_bytes = matches!(field, Bytes(_)) && error.offset > place;
        assert!(
            error.offset == place || at_its_bytes,
            "kind {kind}, field {i} at {place}: {error}"
        );
    }
}

#[test]
fn every_attribute_is_read_and_every_damage_is_located() {
    ATTR_ROWS.iter().for_each(|row| check(attr, *row));
}

#[test]
fn every_type_is_read_and_every_damage_is_located() {
    TYPE_ROWS.iter().for_each(|row| check(ty, *row));
    for (kind, scalar) in Scalar::ALL {
        let text = format!("Scalar({scalar:?})");
        assert_eq!(ty(&varint(*kind)).unwrap(), text);
    }
}

#[test]
fn other_kinds_are_refused_by_number() {
    let known = |rows: &[Row]| rows.iter().map(|r| r.0).collect::<Vec<_>>();
    let mut types = known(TYPE_ROWS);
    types.extend(Scalar::ALL.iter().map(|(kind, _)| *kind));
    let tables: [(&str, Vec<u64>, Read); 2] = [
        ("attribute kind", known(ATTR_ROWS), attr),
        ("type kind", types, ty),
    ];
    for (what, known, read) in tables {
        for code in (0..70).chain([u64::MAX]).filter(|k| !known.contains(k)) {
            let error = read(&varint(code)).unwrap_err();
            assert_eq!(
                (error.problem, error.offset),
                (Problem::Unknown { what, code }, 0)
            );
        }
    }
}

#[test]
fn numbers_beyond_their_width_are_refused() {
    let integer = |width: u64, bits: &[u8]| {
        attr(&[varint(2), varint(width), vec![0], bits.to_vec()].concat())
    };
    let width = integer(129, &[0]).unwrap_err();
    assert!(
        matches!(
            width.problem,
            Problem::Limit {
                value: 129,
                limit: 128,
                ..
            }
        ),
        "{width}"
    );
    assert_eq!(width.offset, 1);
    let wide = integer(4, &[16]).unwrap_err();
    assert!(
        matches!(
            wide.problem,
            Problem::Kind {
                expected: "within its width",
                ..
            }
        ),
        "{wide}"
    );
    let words = integer(128, &common::indices(&[1, 1, 1])).unwrap_err();
    assert!(
        matches!(
            words.problem,
            Problem::Limit {
                value: 3,
                limit: 2,
                ..
            }
        ),
        "{words}"
    );
    let float = attr(&[varint(3), varint(17), signed(0)].concat()).unwrap_err();
    let unknown = Problem::Unknown {
        what: "float width",
        code: 17,
    };
    assert_eq!((float.problem, float.offset), (unknown, 1));
    let rank = ty(&[varint(2), common::indices(&[2; 17]), varint(0)].concat()).unwrap_err();
    assert!(
        matches!(
            rank.problem,
            Problem::Limit {
                value: 17,
                limit: 16,
                ..
            }
        ),
        "{rank}"
    );
    assert_eq!(rank.offset, 1);
}
