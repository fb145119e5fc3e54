//! What neither the compiler nor clippy checks of the sources.

use std::fs;
use std::path::{Path, PathBuf};

use crate::tally::{Failure, Tally};

/// No file is larger than this.
const LARGEST: u64 = 4_000_000;
/// No function is longer than this many lines, from `fn` to its closing brace.
const LONGEST: usize = 60;
/// Half of all functions are shorter than this.
const MEDIAN: usize = 15;
/// Folders that are not sources.
const OUTSIDE: &[&str] = &[".git", "target", "corpus", "artifacts"];

/// Checks every file of the repository: a line for each trouble, a count of files.
pub(crate) fn check_all() -> Result<Tally, Failure> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .ok_or("xtask lies nowhere")?;
    let mut tally = Tally::default();
    let mut lengths = Vec::new();
    for path in files(root)? {
        let troubles = troubles(root, &path, &mut lengths)?;
        for trouble in &troubles {
            println!("{}: {trouble}", path.strip_prefix(root)?.display());
        }
        tally.count(troubles.is_empty());
    }
    lengths.sort_unstable();
    let median = lengths.get(lengths.len() / 2).copied().unwrap_or(0);
    println!(
        "{} functions, median {median} lines, longest {}",
        lengths.len(),
        lengths.last().unwrap_or(&0)
    );
    tally.count(median < MEDIAN);
    Ok(tally)
}

/// All files below a folder that belong to the sources, in order.
fn files(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut found = Vec::new();
    let mut entries = fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let (path, kind) = (entry.path(), entry.file_type()?);
        if kind.is_dir() && !OUTSIDE.iter().any(|o| entry.file_name() == *o) {
            found.extend(files(&path)?);
        } else if kind.is_file() {
            found.push(path);
        }
    }
    Ok(found)
}

fn troubles(root: &Path, path: &Path, lengths: &mut Vec<usize>) -> Result<Vec<String>, Failure> {
    let mut troubles = Vec::new();
    let size = fs::metadata(path)?.len();
    if size > LARGEST {
        troubles.push(format!("{size} bytes, more than {LARGEST}"));
    }
    let Ok(text) = String::from_utf8(fs::read(path)?) else {
        return Ok(troubles);
    };
    let this = path.ends_with("xtask/src/tidy.rs");
    if !path.starts_with(root.join("fixtures")) && !this {
        troubles.extend(machine_path(&text).map(|p| format!("names a path of some machine: {p}")));
    }
    if path.extension().is_some_and(|e| e == "rs") {
        troubles.extend(source(&text, lengths));
    }
    Ok(troubles)
}

/// The first word that only makes sense on the machine of whoever wrote it.
fn machine_path(text: &str) -> Option<&str> {
    let is_machine = |word: &&str| {
        let mut parts = word.split('/');
        let folder = (parts.next(), parts.next(), parts.next());
        matches!(
            folder,
            (Some(""), Some("work" | "home" | "Users" | "root"), Some(_))
        )
    };
    text.split(|c: char| c.is_whitespace() || "\"'`(),;:=".contains(c))
        .find(is_machine)
}

/// Troubles of a Rust source.
fn source(text: &str, lengths: &mut Vec<usize>) -> Vec<String> {
    let mut troubles = Vec::new();
    if !text.trim_start().starts_with("//!") {
        troubles.push("does not begin with a story (//!)".into());
    }
    for (name, length) in functions(text) {
        lengths.push(length);
        if length > LONGEST {
            troubles.push(format!("fn {name} has {length} lines, more than {LONGEST}"));
        }
    }
    troubles
}

/// Every function with its length in lines. Relies on rustfmt: a function ends where a brace stands as deep as it began.
fn functions(text: &str) -> Vec<(String, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (i, line) in lines.iter().enumerate() {
        let Some(name) = function_name(line) else {
            continue;
        };
        let indent = line.len() - line.trim_start().len();
        let is_end = |l: &&str| {
            let at_depth = l
                .split_at_checked(indent)
                .filter(|(before, _)| before.trim().is_empty());
            at_depth
                .is_some_and(|(_, l)| l.starts_with('}') || l.starts_with(')') && l.ends_with(';'))
        };
        let one_line = line.ends_with('}') || line.ends_with(';');
        let length = if one_line {
            1
        } else {
            lines[i..].iter().position(is_end).map_or(1, |n| n + 1)
        };
        found.push((name.to_owned(), length));
    }
    found
}

fn function_name(line: &str) -> Option<&str> {
    let mut rest = line.trim_start();
    for word in [
        "pub ",
        "pub(crate) ",
        "pub(super) ",
        "const ",
        "async ",
        "unsafe ",
    ] {
        rest = rest.strip_prefix(word).unwrap_or(rest);
    }
    let rest = rest.strip_prefix("fn ")?;
    rest.split(|c: char| !c.is_alphanumeric() && c != '_')
        .next()
        .filter(|n| !n.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_measured() {
        let text = "fn one() {}\n\npub(crate) fn three() {\n    x();\n}\n    const fn inner(\n        a: u8,\n    ) -> u8 {\n        a\n    }\n";
        let found = functions(text);
        let found: Vec<(&str, usize)> = found.iter().map(|(n, l)| (n.as_str(), *l)).collect();
        assert_eq!(found, [("one", 1), ("three", 3), ("inner", 5)]);
        assert_eq!(
            functions("    fn declared(\n        a: u8,\n    ) -> u8;\n")[0].1,
            3
        );
    }

    #[test]
    fn machine_paths_are_found_where_a_word_begins() {
        let path = ["/ho", "me/someone/x"].concat();
        assert_eq!(
            machine_path(&format!("see {path}, please")),
            Some(path.as_str())
        );
        assert_eq!(machine_path("a/home/b and target/work/c"), None);
    }

    #[test]
    fn a_source_without_a_story_is_told() {
        assert_eq!(source("fn main() {}\n", &mut Vec::new()).len(), 1);
        assert!(source("//! A story.\nfn main() {}\n", &mut Vec::new()).is_empty());
    }
}
