//! A small writer of `main.mlirb` for tests: files that no exporter would write. The layout is `docs/aimodel-format.md`.
#![allow(dead_code, reason = "each test binary uses its part")]

/// A PrefixVarInt.
pub(crate) fn varint(value: u64) -> Vec<u8> {
    for more in 0..8 {
        if value < 1 << (7 * (more + 1)) {
            let whole = (u128::from(value) << 1 | 1) << more;
            return whole.to_le_bytes()[..=more].to_vec();
        }
    }
    [&[0][..], &value.to_le_bytes()].concat()
}

/// The same in two's complement.
pub(crate) fn signed(value: i64) -> Vec<u8> {
    varint((value << 1 ^ value >> 63).cast_unsigned())
}

/// A list: a count, then its items.
pub(crate) fn list(items: &[Vec<u8>]) -> Vec<u8> {
    [varint(items.len() as u64), items.concat()].concat()
}

/// A list of indices.
pub(crate) fn indices(items: &[u64]) -> Vec<u8> {
    list(&items.iter().map(|i| varint(*i)).collect::<Vec<_>>())
}

/// A section.
pub(crate) fn section(id: u8, content: &[u8]) -> Vec<u8> {
    [&[id][..], &varint(content.len() as u64), content].concat()
}

/// A region of one block without arguments that defines `values` values.
pub(crate) fn region(values: u64, ops: &[Vec<u8>]) -> Vec<u8> {
    [
        varint(1),
        varint(values),
        varint((ops.len() as u64) << 1),
        ops.concat(),
    ]
    .concat()
}

/// An operation with properties around isolated regions.
pub(crate) fn holder(name: u64, properties: u64, inside: &[u8]) -> Vec<u8> {
    let regions = [varint(1 << 1 | 1), section(4, inside)].concat();
    [
        varint(name),
        vec![64 | 16],
        varint(NOWHERE),
        varint(properties),
        regions,
    ]
    .concat()
}

/// An operation with properties and one result.
pub(crate) fn producer(name: u64, location: u64, properties: u64, result: u64) -> Vec<u8> {
    [
        varint(name),
        vec![64 | 2],
        varint(location),
        varint(properties),
        indices(&[result]),
    ]
    .concat()
}

/// Names of operations, by their position in [`File::names`].
pub(crate) const ASSET: u64 = 0;
/// A graph.
pub(crate) const GRAPH: u64 = 1;
/// The end of a graph.
pub(crate) const OUTPUT: u64 = 2;
/// A constant.
pub(crate) const CONSTANT: u64 = 3;
/// A namespace.
pub(crate) const NAMESPACE: u64 = 4;
/// Attribute records that every file has: an empty list, which serves as a location too.
pub(crate) const EMPTY: u64 = 0;
/// A location that says nothing.
pub(crate) const NOWHERE: u64 = EMPTY;
/// False.
pub(crate) const FALSE: u64 = 1;
/// The type attribute of the first type.
pub(crate) const SIGNATURE: u64 = 2;
/// The name `g`.
pub(crate) const NAME: u64 = 3;

/// A file in parts.
pub(crate) struct File {
    /// The strings; the first ones are the dialect and the names of operations.
    pub(crate) strings: Vec<String>,
    /// The attribute records.
    pub(crate) attrs: Vec<Vec<u8>>,
    /// The type records; the first is a function without arguments and results.
    pub(crate) types: Vec<Vec<u8>>,
    /// The properties of operations; the first are those of the asset.
    pub(crate) properties: Vec<Vec<u8>>,
    /// What stands in the asset.
    pub(crate) ops: Vec<Vec<u8>>,
}

const NAMES: [&str; 5] = [
    "serialization.asset",
    "dataflow.graph_v1",
    "dataflow.output_v1",
    "primitive.constant_v1",
    "dataflow.namespace_v1",
];

impl File {
    /// An asset without graphs: the first strings, attributes, types and properties of any.
    pub(crate) fn new() -> Self {
        let words = ["aicode"].into_iter().chain(NAMES).chain(["g"]);
        let name = varint(NAMES.len() as u64 + 1);
        Self {
            strings: words.map(Into::into).collect(),
            attrs: vec![
                record(5, &[indices(&[])]),
                record(2, &[varint(1), vec![1, 0]]),
                record(4, &[varint(0)]),
                record(1, &[name]),
            ],
            types: vec![record(30, &[indices(&[]), indices(&[])])],
            properties: vec![[varint(0), varint(0)].concat()],
            ops: Vec::new(),
        }
    }

    /// Adds a string.
    pub(crate) fn string(&mut self, text: &str) -> u64 {
        push(&mut self.strings, text.into())
    }

    /// Adds an attribute.
    pub(crate) fn attr(&mut self, kind: u64, fields: &[Vec<u8>]) -> u64 {
        push(&mut self.attrs, record(kind, fields))
    }

    /// Adds a type.
    pub(crate) fn ty(&mut self, kind: u64, fields: &[Vec<u8>]) -> u64 {
        push(&mut self.types, record(kind, fields))
    }

    /// Adds properties: references to attributes.
    pub(crate) fn property(&mut self, attrs: &[u64]) -> u64 {
        let bytes = attrs.iter().flat_map(|a| varint(*a)).collect();
        push(&mut self.properties, bytes)
    }

    /// The properties of a graph of this name and signature.
    pub(crate) fn graph_properties(&mut self, name: u64, signature: u64) -> u64 {
        let absent = 0;
        self.property(&[
            EMPTY, absent, FALSE, signature, FALSE, name, FALSE, EMPTY, EMPTY,
        ])
    }

    /// Adds a graph of these operations, the last of which ends it, that define `values` values.
    pub(crate) fn graph(&mut self, properties: u64, values: u64, ops: &[Vec<u8>]) {
        self.ops
            .push(holder(GRAPH, properties, &region(values, ops)));
    }

    /// The bytes.
    pub(crate) fn finish(&self) -> Vec<u8> {
        assemble(&self.sections())
    }

    /// The sections: number and content.
    pub(crate) fn sections(&self) -> Vec<(u8, Vec<u8>)> {
        let names = NAMES.len() as u64;
        let dialects = [
            list(&[[varint(1), section(7, &varint(2))].concat()]),
            varint(names),
            varint(0),
            list(&(1..=names).map(|i| varint(i << 1 | 1)).collect::<Vec<_>>()),
        ];
        let counts = [
            varint(self.attrs.len() as u64),
            varint(self.types.len() as u64),
        ];
        let sizes = [counts.concat(), sizes(&self.attrs), sizes(&self.types)];
        let asset = holder(ASSET, 0, &region(0, &self.ops));
        let properties = self.properties.iter();
        let properties: Vec<_> = properties
            .map(|p| [varint(p.len() as u64), p.clone()].concat())
            .collect();
        vec![
            (0, strings(&self.strings)),
            (1, dialects.concat()),
            (3, sizes.concat()),
            (2, [self.attrs.concat(), self.types.concat()].concat()),
            (4, [varint(1 << 1), asset].concat()),
            (8, list(&properties)),
        ]
    }
}

/// A file of these sections.
pub(crate) fn assemble(sections: &[(u8, Vec<u8>)]) -> Vec<u8> {
    let sections = sections.iter().flat_map(|(id, bytes)| section(*id, bytes));
    [&b"ML\xefR"[..], &varint(6), b"test\0"]
        .concat()
        .into_iter()
        .chain(sections)
        .collect()
}

/// The sizes of records, all of the first dialect and binary.
fn sizes(records: &[Vec<u8>]) -> Vec<u8> {
    let sizes = records.iter().map(|r| varint((r.len() as u64) << 1 | 1));
    [varint(0), list(&sizes.collect::<Vec<_>>())].concat()
}

/// A record: its kind, then its fields.
pub(crate) fn record(kind: u64, fields: &[Vec<u8>]) -> Vec<u8> {
    [varint(kind), fields.concat()].concat()
}

fn push<T>(all: &mut Vec<T>, item: T) -> u64 {
    all.push(item);
    all.len() as u64 - 1
}

fn strings(all: &[String]) -> Vec<u8> {
    let sizes: Vec<_> = all
        .iter()
        .rev()
        .map(|s| varint(s.len() as u64 + 1))
        .collect();
    let bytes: Vec<u8> = all.iter().flat_map(|s| s.bytes().chain([0])).collect();
    [list(&sizes), bytes].concat()
}
