//! Counts over the operations of an asset as its file has them, bodies of decomposable operations included: what the Core AI
//! runtime's `summary(include_statistics=True)` counts.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use russet_formats::aimodel::ir::{RawBlock, RawOp, ValueId};
use russet_formats::aimodel::raw::RawModule;
use russet_formats::aimodel::records::{AttrId, TypeId};
use russet_formats::aimodel::types::{Scalar, TypeRecord};
use russet_formats::coreml::program::{Argument, Block, Data, Element, Program, ValueType};

use super::facts::type_name;

/// Counts by name.
pub(super) type Counts = BTreeMap<String, u64>;

/// What occurs how often.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Statistics {
    /// Operations.
    pub(super) operations: Counts,
    /// Elements of constants, by their type; equal constants count once.
    pub(super) storage: Counts,
    /// Element types of operands and results.
    pub(super) compute: BTreeSet<String>,
}

impl Statistics {
    /// Counts a whole program.
    pub(super) fn of(file: &[u8], raw: &RawModule) -> Self {
        let mut counter = Counter {
            file,
            raw,
            constants: HashSet::new(),
            seen: Self::default(),
        };
        let mut types = HashMap::new();
        raw.ops.iter().for_each(|op| counter.op(op, &mut types));
        counter.seen
    }

    /// Counts a Core ML program: operations by their kind, constants by what the file holds.
    pub(super) fn of_program(program: &Program) -> Self {
        let (mut seen, mut blobs) = (Self::default(), HashSet::new());
        for function in &program.functions {
            seen.program_block(&function.body, &mut blobs);
        }
        seen
    }

    fn program_block<'a>(&mut self, block: &'a Block, blobs: &mut HashSet<(&'a str, u64)>) {
        for op in &block.operations {
            *self.operations.entry(op.kind.to_string()).or_default() += 1;
            let bound = op.inputs.iter().flat_map(|(_, list)| list);
            let bound = bound.filter_map(|a| match a {
                Argument::Value(value) => Some(value),
                Argument::Name(_) => None,
            });
            for value in op.attributes.iter().map(|(_, v)| v).chain(bound) {
                let first = match &value.data {
                    Data::Blob { file, offset } => blobs.insert((&**file, *offset)),
                    Data::Bytes(_) | Data::Texts(_) => true,
                };
                if let (Element::Number(dtype), true) = (value.ty.element, first) {
                    let count = value.ty.elements().unwrap_or_default() as u64;
                    *self.storage.entry(type_name(dtype)).or_default() += count;
                }
            }
            let results = op.outputs.iter().filter(|_| &*op.kind != "const");
            self.compute
                .extend(results.filter_map(|named| match &named.ty {
                    ValueType::Tensor(t) | ValueType::State(t) => match t.element {
                        Element::Number(dtype) => Some(type_name(dtype)),
                        Element::Text => None,
                    },
                    ValueType::Other => None,
                }));
            op.blocks.iter().for_each(|b| self.program_block(b, blobs));
        }
    }
}

/// Operations that hold a program together and compute nothing.
const STRUCTURE: &[&str] = &["asset", "graph", "output", "yield"];

/// The name of an operation: `primitive.slice_v1` is `slice`.
fn short(name: &str) -> &str {
    let name = name.rsplit('.').next().unwrap_or(name);
    match name.rsplit_once("_v") {
        Some((stem, version)) if version.bytes().all(|b| b.is_ascii_digit()) => stem,
        _ => name,
    }
}

/// Types of the values visible at a point.
type Types = HashMap<ValueId, TypeId>;

struct Counter<'a> {
    file: &'a [u8],
    raw: &'a RawModule,
    /// Constants that were counted: the file keeps equal ones once, and so does the count.
    constants: HashSet<AttrId>,
    seen: Statistics,
}

impl Counter<'_> {
    fn op(&mut self, op: &RawOp, types: &mut Types) {
        types.extend(op.results.iter().copied());
        let name = short(&op.name);
        if !STRUCTURE.contains(&name) {
            *self.seen.operations.entry(name.into()).or_default() += 1;
        }
        // What a cast reads does not count; what a graph returns does, even where nothing computed it.
        let results = op.results.iter().map(|r| r.1);
        let read = op.operands.iter().filter(|_| name != "cast");
        let values = results.chain(read.filter_map(|v| types.get(v).copied()));
        let elements: Vec<&str> = values.filter_map(|t| Some(self.tensor(t)?.0)).collect();
        self.seen
            .compute
            .extend(elements.into_iter().map(String::from));
        if name == "constant" {
            self.constant(op);
        }
        for region in &op.regions {
            let mut inner = Types::new();
            let types = if region.isolated {
                &mut inner
            } else {
                &mut *types
            };
            region.blocks.iter().for_each(|b| self.block(b, types));
        }
    }

    fn block(&mut self, block: &RawBlock, types: &mut Types) {
        types.extend(block.args.iter().map(|a| (a.0, a.1)));
        block.ops.iter().for_each(|op| self.op(op, types));
    }

    fn constant(&mut self, op: &RawOp) {
        let value = self.raw.property(self.file, op, "value");
        if value.is_ok_and(|value| !self.constants.insert(value)) {
            return;
        }
        for (_, ty) in &op.results {
            if let Some((element, count)) = self.tensor(*ty) {
                *self.seen.storage.entry(element.into()).or_default() += count;
            }
        }
    }

    /// The element type and the number of elements of a tensor type; unknown extents count as one.
    fn tensor(&self, ty: TypeId) -> Option<(&'static str, u64)> {
        let TypeRecord::Tensor { shape, element, .. } = self.raw.records.ty(ty)? else {
            return None;
        };
        let TypeRecord::Scalar(scalar) = self.raw.records.ty(*element)? else {
            return None;
        };
        let count = shape
            .iter()
            .map(|&d| u64::try_from(d).unwrap_or(1))
            .fold(1u64, u64::saturating_mul);
        Some((scalar_name(*scalar), count))
    }
}

/// A scalar type by the runtime's name for it; the file's name where the runtime's is not known.
fn scalar_name(scalar: Scalar) -> &'static str {
    let known = NAMES.iter().find(|(name, _)| *name == scalar.name());
    known.map_or(scalar.name(), |(_, name)| *name)
}

const NAMES: &[(&str, &str)] = &[
    ("i1", "Bool"),
    ("f64", "Float64"),
    ("f32", "Float32"),
    ("f16", "Float16"),
    ("bf16", "BFloat16"),
    ("si64", "Int64"),
    ("si32", "Int32"),
    ("si16", "Int16"),
    ("si8", "Int8"),
    ("si4", "Int4"),
    ("si2", "Int2"),
    ("ui64", "UInt64"),
    ("ui32", "UInt32"),
    ("ui16", "UInt16"),
    ("ui8", "UInt8"),
    ("ui6", "UInt6"),
    ("ui4", "UInt4"),
    ("ui3", "UInt3"),
    ("ui2", "UInt2"),
    ("ui1", "UInt1"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_and_families_are_not_part_of_a_name() {
        let cases = [
            ("primitive.slice_v1", "slice"),
            ("reduce_sum_v12", "reduce_sum"),
            ("serialization.asset", "asset"),
            ("x_value", "x_value"),
        ];
        for (name, expected) in cases {
            assert_eq!(short(name), expected);
        }
    }
}
