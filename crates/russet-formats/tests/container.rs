//! The container, damaged at every kind of boundary: header, sections, string tables, names, sizes of records, blobs,
//! operations. Every error says in which section, at which byte.
#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

mod common;

use common::{File, GRAPH, OUTPUT, assemble, holder, indices, list, region, section, varint};
use russet_formats::aimodel::{AimodelAsset, AssetError, Problem, ReadError, Section};
use russet_graph::graph::Module;
use russet_kernels::mem::SharedBytes;

fn read(bytes: &[u8]) -> Result<Module, ReadError> {
    let asset = AimodelAsset::open(SharedBytes::from_vec(bytes.to_vec()), None, None);
    match asset.and_then(|a| a.module()) {
        Ok(module) => Ok(module),
        Err(AssetError::Program(e)) => Err(e),
        Err(e) => panic!("{e}"),
    }
}

/// A file with one empty graph.
fn sample() -> File {
    let mut file = File::new();
    let properties = file.graph_properties(common::NAME, common::SIGNATURE);
    file.graph(properties, 0, &[output()]);
    file
}

fn output() -> Vec<u8> {
    [varint(OUTPUT), vec![0], varint(common::NOWHERE)].concat()
}

/// What is wrong with the sample when one section is another.
fn with(number: u8, content: Vec<u8>) -> ReadError {
    let mut sections = sample().sections();
    let slot = sections.iter_mut().find(|s| s.0 == number).unwrap();
    slot.1 = content;
    read(&assemble(&sections)).expect_err("a spoiled section")
}

fn content(number: u8) -> Vec<u8> {
    let sections = sample().sections();
    sections.into_iter().find(|s| s.0 == number).unwrap().1
}

#[test]
fn the_sample_is_sound() {
    let module = read(&sample().finish()).unwrap();
    assert_eq!(&*module.graphs[0].name, "g");
}

#[test]
fn a_file_cut_anywhere_is_an_error_inside_what_is_left() {
    let whole = sample().finish();
    for cut in 0..whole.len() {
        let error = read(&whole[..cut]).expect_err("a file that is cut");
        assert!(error.offset <= cut, "cut at {cut}: {error}");
    }
}

#[test]
fn every_bit_of_a_file_may_flip() {
    let whole = sample().finish();
    let mut refused = 0;
    for bit in 0..whole.len() * 8 {
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        if let Err(error) = read(&bytes) {
            assert!(error.offset <= bytes.len(), "{error}");
            refused += 1;
        }
    }
    assert!(
        refused > whole.len() * 4,
        "{refused} of {}",
        whole.len() * 8
    );
}

#[test]
fn other_versions_are_named() {
    let whole = sample().finish();
    for version in [0, 1, 4, 7, 63] {
        let mut bytes = whole.clone();
        bytes.splice(4..5, varint(version));
        let error = read(&bytes).unwrap_err();
        assert_eq!((error.section, error.offset), (Section::Header, 4));
        assert_eq!(
            error.to_string(),
            format!("main.mlirb, header at byte 4: bytecode version {version} (known: 5 and 6)")
        );
    }
    let rest = &content(1)[list(&[[varint(1), section(7, &varint(2))].concat()]).len()..];
    for version in [0, 1, 3, 4, 5, 1 << 40] {
        let dialect = list(&[[varint(1), section(7, &varint(version))].concat()]);
        let error = with(1, [&dialect, rest].concat());
        assert_eq!(error.section, Section::Dialects);
        let text = format!("encoding version {version} of aicode (known: 2)");
        assert!(error.to_string().ends_with(&text), "{error}");
    }
    let unversioned = with(1, [&list(&[varint(0)]), rest].concat());
    assert_eq!(unversioned.problem, Problem::DialectVersion(0));
    let other = with(1, [&list(&[[varint(2 << 1 | 1)].concat()]), rest].concat());
    assert_eq!(other.problem, Problem::Dialect("dataflow.graph_v1".into()));
    let two = list(&vec![[varint(1), section(7, &varint(2))].concat(); 2]);
    let two = with(1, [&two, rest].concat());
    assert!(matches!(two.problem, Problem::Structure(_)), "{two}");
}

#[test]
fn sections_are_there_once_and_known() {
    let all = sample().sections();
    let (first, names) = (b"ML\xefR".len() + 1 + 5, [0, 1, 2, 3, 4]);
    for number in names {
        let rest: Vec<_> = all.iter().filter(|s| s.0 != number).cloned().collect();
        let error = read(&assemble(&rest)).unwrap_err();
        assert!(
            matches!(error.problem, Problem::SectionSet(_, "missing")),
            "{error}"
        );
        let again = [&all[..], &rest[..1]].concat();
        let error = read(&assemble(&again)).unwrap_err();
        assert!(
            matches!(error.problem, Problem::SectionSet(_, "there twice")),
            "{error}"
        );
        assert_eq!(error.offset, assemble(&all).len());
    }
    for number in [7, 9, 100] {
        let error = read(&assemble(&[(number, vec![1])])).unwrap_err();
        let what = "section";
        assert_eq!(
            error.problem,
            Problem::Unknown {
                what,
                code: number.into()
            }
        );
        assert_eq!((error.section, error.offset), (Section::Header, first));
    }
    let long = [&assemble(&[])[..], &[0], &varint(1 << 50)].concat();
    assert_eq!(
        read(&long).unwrap_err().problem,
        Problem::Truncated("a section")
    );
}

#[test]
fn alignment_is_a_power_of_two_and_padding_is_marked() {
    let start = assemble(&[]);
    let aligned = |alignment: u64, padding: &[u8]| {
        let head = [&[0x80][..], &varint(1), &varint(alignment)].concat();
        read(&[&start[..], &head, padding, &[1]].concat()).unwrap_err()
    };
    for alignment in [0, 3, 24] {
        let error = aligned(alignment, &[]);
        assert_eq!(error.problem, Problem::Alignment("not a power of two"));
    }
    let error = aligned(64, &[0; 64]);
    assert_eq!(error.problem, Problem::Alignment("padding is not 0xcb"));
    let error = aligned(1 << 62, &[0xcb; 64]);
    assert_eq!(error.problem, Problem::Truncated("padding"));
}

#[test]
fn strings_end_and_are_text() {
    let one = |size: u64, bytes: &[u8]| with(0, [&indices(&[size])[..], bytes].concat());
    let cases = [
        (one(0, b""), Problem::Truncated("a string")),
        (one(9, b"aicode\0"), Problem::Truncated("a string")),
        (one(1 << 60, b"aicode\0"), Problem::Truncated("a string")),
        (one(3, b"\xff\xfe\0"), Problem::Text("a string")),
        (
            one(3, b"ab\0cd"),
            Problem::Trailing {
                what: "the strings",
                left: 2,
            },
        ),
    ];
    for (error, problem) in cases {
        assert_eq!((error.section, error.problem), (Section::Strings, problem));
    }
    let many = with(0, varint(1 << 40));
    assert!(matches!(
        many.problem,
        Problem::Limit {
            what: "the lengths of strings",
            ..
        }
    ));
}

#[test]
fn operation_names_are_strings_and_as_many_as_announced() {
    let dialect = list(&[[varint(1), section(7, &varint(2))].concat()]);
    let names = |total: u64, groups: &[Vec<u8>]| {
        with(1, [&dialect[..], &varint(total), &groups.concat()].concat())
    };
    let group = |dialect: u64, names: &[u64]| [varint(dialect), indices(names)].concat();
    let beyond = names(1, &[group(0, &[99 << 1])]);
    assert!(
        matches!(beyond.problem, Problem::Index { index: 99, .. }),
        "{beyond}"
    );
    let dialects = names(1, &[group(1, &[3])]);
    assert!(
        matches!(
            dialects.problem,
            Problem::Index {
                what: "dialect",
                ..
            }
        ),
        "{dialects}"
    );
    let more = names(1, &[group(0, &[3, 5])]);
    assert!(matches!(more.problem, Problem::Structure(_)), "{more}");
    let fewer = names(2, &[group(0, &[3])]);
    assert_eq!(fewer.problem, Problem::Truncated("dialect"));
    let huge = names(1 << 40, &[]);
    assert!(matches!(huge.problem, Problem::Limit { .. }), "{huge}");
    for error in [beyond, dialects, more, fewer, huge] {
        assert_eq!(error.section, Section::Dialects);
    }
}

#[test]
fn records_are_binary_and_fill_their_section() {
    let sizes = content(3);
    let attrs = sample().attrs.len();
    // Two counts, the dialect, the count of the group; then the size of the first record.
    let first = 4;
    let with_size = |size: Vec<u8>| {
        let mut bytes = sizes.clone();
        bytes.splice(first..=first, size);
        with(3, bytes)
    };
    let text = with_size(varint(2 << 1));
    assert!(matches!(text.problem, Problem::Unsupported(_)), "{text}");
    let long = with_size(varint(1 << 50 | 1));
    assert_eq!(
        (long.section, long.problem),
        (Section::RecordSizes, Problem::Truncated("a record"))
    );
    let count = with(3, [varint(attrs as u64 - 1), sizes[1..].to_vec()].concat());
    assert!(matches!(count.problem, Problem::Structure(_)), "{count}");
    let more = with(2, [content(2), vec![1, 1]].concat());
    let left = Problem::Trailing {
        what: "the records",
        left: 2,
    };
    assert_eq!((more.section, more.problem), (Section::Records, left));
}

#[test]
fn records_do_not_contain_themselves_nor_nest_without_end() {
    let mut own = sample();
    let next = own.attrs.len() as u64;
    own.attr(5, &[indices(&[next])]);
    let error = read(&own.finish()).unwrap_err();
    assert_eq!(
        (error.section, error.problem),
        (Section::Records, Problem::Cycle(next as usize))
    );
    let mut deep = sample();
    (0..200).fold(0, |inner, _| deep.attr(5, &[indices(&[inner])]));
    let error = read(&deep.finish()).unwrap_err();
    assert!(
        matches!(
            error.problem,
            Problem::Limit {
                what: "the nesting of records",
                ..
            }
        ),
        "{error}"
    );
}

/// The sample with resources: their table and their content.
fn with_resources(table: &[u8], content: &[u8]) -> Result<Module, ReadError> {
    let mut sections = sample().sections();
    sections.push((6, table.to_vec()));
    sections.push((5, content.to_vec()));
    read(&assemble(&sections))
}

#[test]
fn blobs_lie_in_their_section() {
    let entry = |key: u64, size: u64, kind: u8| [varint(key), varint(size), vec![kind]].concat();
    let table = |entries: &[Vec<u8>]| [varint(0), varint(0), list(entries)].concat();
    let blob = |size: u64| [varint(1), varint(size), b"abcd".to_vec()].concat();
    with_resources(&table(&[entry(0, 6, 0)]), &blob(4)).unwrap();
    let cases = [
        (table(&[entry(0, 99, 0)]), blob(4), Section::Resources),
        (table(&[entry(0, 6, 0)]), blob(5), Section::Resources),
        (table(&[entry(0, 6, 0)]), blob(3), Section::Resources),
        (
            table(&[entry(0, 6, 0)]),
            [varint(3), blob(4)].concat(),
            Section::Resources,
        ),
        (table(&[entry(0, 5, 0)]), blob(4), Section::Resources),
        (table(&[entry(99, 6, 0)]), blob(4), Section::ResourceTable),
        (varint(1 << 30), blob(4), Section::ResourceTable),
    ];
    for (i, (table, content, place)) in cases.iter().enumerate() {
        let error = with_resources(table, content).unwrap_err();
        assert_eq!(error.section, *place, "case {i}: {error}");
    }
}

#[test]
fn properties_fit_their_operation() {
    let spoiled = |properties: &[Vec<u8>]| with(8, list(properties));
    let sized = |bytes: &[u8]| [varint(bytes.len() as u64), bytes.to_vec()].concat();
    let none = sized(&[1, 1]);
    let short = spoiled(&[none.clone(), sized(&[1, 1])]);
    assert_eq!(
        (short.section, short.problem),
        (Section::Properties, Problem::Truncated("attribute"))
    );
    assert_eq!(short.op.as_deref(), Some("dataflow.graph_v1"));
    let optional = spoiled(&[none.clone(), sized(&[1, 5, 1, 1, 1, 1, 1, 1, 1])]);
    assert!(
        matches!(
            optional.problem,
            Problem::Unknown {
                what: "optional attribute",
                ..
            }
        ),
        "{optional}"
    );
    let missing = spoiled(&[none]);
    assert!(
        matches!(
            missing.problem,
            Problem::Index {
                what: "properties",
                ..
            }
        ),
        "{missing}"
    );
    let long = spoiled(&[[varint(1 << 40), vec![1]].concat()]);
    assert_eq!(long.problem, Problem::Truncated("properties"));
}

/// What should be wrong.
type Expected = fn(&Problem) -> bool;

/// The sample whose graph holds these operations and defines `values` values.
fn program(values: u64, ops: &[Vec<u8>]) -> ReadError {
    with(4, program_bytes(values, ops))
}

fn program_bytes(values: u64, ops: &[Vec<u8>]) -> Vec<u8> {
    let graph = holder(GRAPH, 1, &region(values, ops));
    let asset = holder(common::ASSET, 0, &region(0, &[graph]));
    [varint(1 << 1), asset].concat()
}

/// An operation with this mask and what follows it.
fn op(name: u64, mask: u8, rest: &[Vec<u8>]) -> Vec<u8> {
    let head = [varint(name), vec![mask], varint(common::NOWHERE)];
    [head.concat(), rest.concat()].concat()
}

#[test]
fn operations_keep_the_rules() {
    let structure = |p: &Problem| matches!(p, Problem::Structure(_));
    let index = |p: &Problem| matches!(p, Problem::Index { .. });
    let limit = |p: &Problem| matches!(p, Problem::Limit { .. });
    let unknown = |p: &Problem| matches!(p, Problem::Unknown { .. });
    let cases: [(&str, Expected, u64, Vec<u8>); 8] = [
        ("name", index, 0, op(99, 0, &[])),
        ("mask", unknown, 0, op(OUTPUT, 0x80, &[])),
        ("operand", index, 0, op(OUTPUT, 4, &[indices(&[0])])),
        ("result", structure, 0, op(OUTPUT, 2, &[indices(&[0])])),
        ("fewer values", structure, 1, output()),
        ("many values", limit, 1 << 40, output()),
        ("successor", structure, 0, op(OUTPUT, 8, &[indices(&[1])])),
        ("regions", limit, 0, op(OUTPUT, 16, &[varint(1 << 40)])),
    ];
    for (case, expected, values, op) in cases {
        let error = program(values, &[op]);
        assert!(expected(&error.problem), "{case}: {error}");
        assert_eq!(error.section, Section::Program, "{case}: {error}");
        assert!(error.op.is_some(), "{case}: {error}");
    }
    let two_ends = program(0, &[output(), output()]);
    assert!(structure(&two_ends.problem), "{two_ends}");
}

#[test]
fn regions_do_not_nest_without_end() {
    let deep = (0..100).fold(output(), |inner, _| {
        op(OUTPUT, 16, &[varint(1 << 1), region(0, &[inner])])
    });
    let deep = program(0, &[deep]);
    let nested = "the nesting of regions";
    assert!(
        matches!(deep.problem, Problem::Limit { what, .. } if what == nested),
        "{deep}"
    );
}

#[test]
fn a_body_has_the_arguments_of_its_signature() {
    let body = |argument: u64| {
        let mut file = sample();
        let (token, scalar) = (file.ty(32, &[]), file.ty(20, &[]));
        let ty = file.ty(30, &[indices(&[]), indices(&[token])]);
        let signature = file.attr(4, &[varint(ty)]);
        let properties = file.graph_properties(common::NAME, signature);
        let arguments = indices(&[[token, scalar][argument as usize] << 1]);
        let block = [varint(1 << 1 | 1), arguments, vec![0], output()].concat();
        file.ops.push(holder(
            GRAPH,
            properties,
            &[varint(1), varint(1), block].concat(),
        ));
        read(&file.finish())
    };
    body(0).unwrap();
    let other = body(1).unwrap_err();
    assert!(
        matches!(
            other.problem,
            Problem::Kind {
                what: "functionType",
                ..
            }
        ),
        "{other}"
    );
}
