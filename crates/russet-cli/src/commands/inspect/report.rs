//! The facts for people.

use std::io::{self, Write};

use super::facts::{Facts, Function, Value};
use super::statistics::Counts;

/// Writes what there is to say of one file.
pub(super) fn write(out: &mut impl Write, facts: &Facts) -> io::Result<()> {
    writeln!(out, "{}", facts.path)?;
    let version = facts
        .version
        .map_or(String::new(), |v| format!(" version {v}"));
    writeln!(
        out,
        "  {}{version}, {}, of which constants {}",
        facts.format,
        bytes(facts.bytes),
        bytes(facts.constant_bytes)
    )?;
    if let Some(architecture) = facts.architecture {
        writeln!(out, "  architecture {architecture}")?;
    }
    if facts.hash_verified {
        writeln!(out, "  main.hash agrees")?;
    }
    for function in &facts.functions {
        write_function(out, function)?;
    }
    counts(out, "composites", &facts.composites)?;
    counts(out, "operations", &facts.operations)?;
    counts(out, "elements stored", &facts.storage)?;
    writeln!(out, "  computed with: {}", facts.compute.join(", "))
}

fn write_function(out: &mut impl Write, function: &Function) -> io::Result<()> {
    writeln!(out, "  function {}", function.name)?;
    for (kind, values) in [
        ("in", &function.inputs),
        ("out", &function.outputs),
        ("state", &function.states),
    ] {
        for value in values {
            writeln!(out, "    {kind:<6}{:<20}{}", value.name, tensor(value))?;
        }
    }
    Ok(())
}

fn tensor(value: &Value) -> String {
    let shape: Vec<String> = value
        .shape
        .iter()
        .map(|d| d.map_or("?".into(), |d| d.to_string()))
        .collect();
    format!("{}[{}]", value.ty, shape.join(", "))
}

/// The most frequent first.
fn counts(out: &mut impl Write, title: &str, counts: &Counts) -> io::Result<()> {
    let mut sorted: Vec<(&String, &u64)> = counts.iter().collect();
    sorted.sort_by_key(|(_, n)| std::cmp::Reverse(**n));
    let items: Vec<String> = sorted
        .iter()
        .map(|(name, n)| format!("{name} {n}"))
        .collect();
    if items.is_empty() {
        Ok(())
    } else {
        writeln!(out, "  {title}: {}", items.join(", "))
    }
}

/// A size, with three digits or so.
fn bytes(count: u64) -> String {
    match count {
        0..10_000 => format!("{count} bytes"),
        10_000..10_000_000 => format!("{:.1} kB", count as f64 / 1e3),
        10_000_000..10_000_000_000 => format!("{:.1} MB", count as f64 / 1e6),
        _ => format!("{:.1} GB", count as f64 / 1e9),
    }
}
