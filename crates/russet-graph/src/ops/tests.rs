//! Tests that hold for every row of the op table.

use super::*;
use crate::graph::{Graph, Module};
use crate::types::{Dim, Type};

#[test]
fn names_are_unique() {
    let mut names: Vec<_> = Op::TABLE.iter().map(|row| row.name).collect();
    names.sort_unstable();
    let all = names.len();
    names.dedup();
    assert_eq!(names.len(), all);
}

/// The contents of a small integer operand, as inference would have followed them.
fn known_of(t: &Tensor) -> Option<Known> {
    let small = t.dtype.is_int() && t.len() <= KNOWN_LIMIT;
    small.then(|| t.ints().into_iter().map(Dim::Const).collect())
}

fn facts_of(case: &Case<Op>) -> Vec<Fact> {
    let types: Vec<Type> = case.inputs.iter().map(|t| Type::Tensor(t.ty())).collect();
    let operands: Vec<Operand<'_>> = types
        .iter()
        .zip(&case.inputs)
        .map(|(ty, t)| Operand {
            ty,
            known: known_of(t),
            constant: None,
        })
        .collect();
    case.op
        .infer(Operands(&operands))
        .unwrap_or_else(|e| panic!("{} infer: {e}", case.op.name()))
}

#[test]
fn inference_gives_the_types_and_contents_of_the_reference() {
    let mut checked = 0;
    for row in Op::TABLE {
        for case in (row.cases)() {
            let results = case
                .op
                .reference(&case.inputs)
                .unwrap_or_else(|e| panic!("{}: {e}", row.name));
            let facts = facts_of(&case);
            assert_eq!(facts.len(), results.len(), "{}", row.name);
            for (fact, result) in facts.iter().zip(&results) {
                let ty = fact
                    .ty
                    .as_tensor()
                    .unwrap_or_else(|| panic!("{}: not a tensor", row.name));
                assert_eq!(ty.dtype, result.dtype, "{}", row.name);
                assert_eq!(ty.rank(), result.shape.len(), "{}", row.name);
                for (d, &n) in ty.shape.iter().zip(&result.shape) {
                    assert!(
                        d.is_unknown() || *d == Dim::from(n),
                        "{}: {ty} against {:?}",
                        row.name,
                        result.shape
                    );
                }
                if let Some(known) = &fact.known {
                    let contents: Vec<i64> = known.iter().filter_map(Dim::as_const).collect();
                    assert_eq!(contents, result.ints(), "{}", row.name);
                }
                checked += 1;
            }
        }
    }
    assert!(checked > Op::TABLE.len());
}

#[test]
fn every_case_survives_the_text_form() {
    for row in Op::TABLE {
        for case in (row.cases)() {
            let mut g = Graph::new(row.name);
            let inputs: Vec<_> = case
                .inputs
                .iter()
                .map(|t| g.add_input("x", t.ty()))
                .collect();
            let types = facts_of(&case).into_iter().map(|f| f.ty);
            let outputs = g.push(case.op, &inputs, types);
            outputs.iter().for_each(|&id| g.add_output("y", id));
            let module = Module {
                graphs: vec![g],
                attributes: Vec::new(),
            };
            let text = crate::text::print(&module);
            let back = crate::text::parse(&text).unwrap_or_else(|e| panic!("{e}\n{}", text.text));
            assert_eq!(back, module, "{}", text.text);
        }
    }
}
