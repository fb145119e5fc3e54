//! The page of `docs/` that says what becomes of every operation of the format, made from the reader's table and the op table.

use std::fmt::Write;

use russet_graph::ops::OpInfo;
use russet_graph::ops::decompose::composites;

use super::names::{RULES, Rule, Take};

const HEAD: &str = "# Coverage of Core AI

What becomes of every operation that an `.aimodel` can hold, made from the table of the reader
(`crates/russet-formats/src/aimodel/lower/names.rs`) and the op table (`UPDATE_DOCS=1 cargo test -p russet-formats --lib coverage`
renews this page). *Graph* is the operation it is read as; its meaning is in the file of that name in
`crates/russet-graph/src/ops`, in one line in `docs/ops.md`. *Examples* says on how many inputs of the op table the reference, the
inferred type and the planned run are compared with each other; what has none there has small programs in `exec/programs.rs`.
`fixtures/ops` holds what the Core AI runtime computes.
";

const TAIL: &str = "
## What is not in the table

* `coreai.reduce` and `coreai.reduce_index` are read and run, but the public compiler refuses to write them.
* `coreaix.cast` has no form in a file; `coreaix.view` is folded away before writing.
* `primitive.sparse_with_bitmask_blockwise_shift_scale_v1` has a name and three operands in the compiler, and no form in a file: its
  writer ends with \"op not versioned\", for every version of the dialect.
* `udml.class`, `udml.import`, `udml.member`, `udml.namespace` and `udml.to_memref` have no form in a file.
* Extents that follow from the values of tensors, and computed elements below a byte, are interpreted rather than planned.
";

/// What a row says of how an operation is taken over.
fn becomes(rule: &Rule) -> String {
    match rule.take {
        Take::Results => "ends its block".into(),
        Take::Nothing => "debug information, left out".into(),
        Take::Inline => "its operations, in its place".into(),
        Take::Kernel => "`opaque_kernel`: read and shown, refused when planned".into(),
        _ => format!("`{}`", rule.op),
    }
}

fn markdown() -> String {
    let mut page = format!("{HEAD}\n| operation of the file | graph | examples |\n|---|---|---|\n");
    for rule in RULES {
        let examples = OpInfo::find(rule.op).map(|info| (info.cases)().len());
        let examples = examples.filter(|n| *n > 0);
        let examples = examples.map_or_else(String::new, |n| n.to_string());
        // Writing to a string does not fail.
        let _ = writeln!(page, "| `{}` | {} | {examples} |", rule.file, becomes(rule));
    }
    page += TAIL;
    page += "* Composites run whole where the op table has them and takes their operands and attributes; any\n  other runs by its body. These are:\n";
    composites().for_each(|name| {
        let _ = writeln!(page, "  * `{name}`");
    });
    page
}

#[test]
fn the_committed_page_is_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/coverage.md");
    let page = markdown();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, &page).expect("docs/coverage.md can be written");
    }
    let committed = std::fs::read_to_string(path).expect("docs/coverage.md can be read");
    assert!(
        committed == page,
        "docs/coverage.md is behind the tables; UPDATE_DOCS=1 renews it"
    );
}

#[test]
fn every_row_names_an_operation_of_the_graph() {
    let named = |r: &&Rule| !matches!(r.take, Take::Results | Take::Nothing | Take::Inline);
    for rule in RULES.iter().filter(named) {
        assert!(OpInfo::find(rule.op).is_some(), "{}", rule.file);
    }
    let mut names: Vec<_> = RULES.iter().map(|r| r.file).collect();
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all);
}
