//! The page of `docs/` that lists every operation, made from the table so that it cannot fall behind.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::{Op, OpInfo};

const HEAD: &str = "# Operations

Every operation that a graph can hold, made from the table in `crates/russet-graph/src/ops` (`UPDATE_DOCS=1 cargo test -p
russet-graph --lib ops` renews this page). Names are those of the Core AI dialect, but for `unit_lower_inverse`, which no file holds:
fast plans find it. What an operation means, exactly, is in the file of its name. Shapes, axes, bounds and permutations are operands; only what stands under *attributes* is part of the operation.
An operation called `broadcasting_…` lines its operands up at the last axis first, as NumPy does.
";

/// The page, in Markdown.
pub fn markdown() -> String {
    let mut rows: Vec<&OpInfo> = Op::TABLE.iter().collect();
    rows.sort_unstable_by_key(|row| row.name);
    let mut page = format!(
        "{HEAD}\n{} operations.\n\n| operation | operands | attributes | result |\n|---|---|---|---|\n",
        rows.len()
    );
    for row in rows {
        let names: Vec<String> = attributes(row).iter().map(|n| format!("`{n}`")).collect();
        let (name, names, summary) = (row.name, names.join(", "), row.summary.replace('|', "\\|"));
        // Writing to a string does not fail.
        let _ = writeln!(
            page,
            "| `{name}` | {} | {names} | {summary} |",
            operands(row.arity)
        );
    }
    page
}

fn operands((fewest, most): (usize, usize)) -> String {
    match (fewest, most) {
        (a, b) if a == b => a.to_string(),
        (a, usize::MAX) => format!("{a} or more"),
        (a, b) => format!("{a} to {b}"),
    }
}

/// The names of the attributes that the examples of an operation have.
fn attributes(row: &OpInfo) -> BTreeSet<String> {
    (row.cases)()
        .iter()
        .flat_map(|case| case.op.attributes())
        .map(|(name, _)| name.to_string())
        .collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_committed_page_is_current() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/ops.md");
        let page = super::markdown();
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(path, &page).expect("docs/ops.md can be written");
        }
        let committed = std::fs::read_to_string(path).expect("docs/ops.md can be read");
        assert_eq!(
            committed, page,
            "docs/ops.md is behind the table; UPDATE_DOCS=1 renews it"
        );
    }
}
