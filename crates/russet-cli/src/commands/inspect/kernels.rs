//! `russet inspect --kernels`: what the kernels are compiled for, and what of it this machine has.

use std::io::{self, Write};

use russet::machine::{self, InstructionSet, KERNELS};
use serde::Serialize;

/// The JSON form.
#[derive(Serialize)]
struct Report {
    instruction_sets: Vec<Variant>,
    kernels: Vec<Kernel>,
    cpus: usize,
    also_found: Vec<&'static str>,
}

#[derive(Serialize)]
struct Variant {
    name: &'static str,
    lanes: usize,
    found: bool,
    chosen: bool,
    missing: Vec<&'static str>,
}

#[derive(Serialize)]
struct Kernel {
    name: &'static str,
    what: &'static str,
    variants: Vec<&'static str>,
}

/// Writes the variants of kernels and which of them runs here.
pub(super) fn write(out: &mut impl Write, json: bool) -> io::Result<()> {
    let sets = machine::instruction_sets();
    if json {
        serde_json::to_writer_pretty(&mut *out, &report(&sets))?;
        return writeln!(out);
    }
    writeln!(out, "  {:<12}{:>5}  {:<9}needs", "variant", "lanes", "")?;
    for set in &sets {
        let state = match (set.chosen, set.missing.is_empty()) {
            (true, _) => "chosen".to_owned(),
            (false, true) => "found".to_owned(),
            (false, false) => "not here".to_owned(),
        };
        let needs = match set.missing.is_empty() {
            true => set.needs.join(" "),
            false => format!(
                "{} (missing: {})",
                set.needs.join(" "),
                set.missing.join(" ")
            ),
        };
        let line = format!("  {:<12}{:>5}  {state:<9}{needs}", set.name, set.lanes);
        writeln!(out, "{}", line.trim_end())?;
    }
    let also = machine::also_found();
    if !also.is_empty() {
        writeln!(out, "  also found, not used: {}", also.join(" "))?;
    }
    let cpus = machine::cpus();
    let plural = if cpus == 1 { "CPU" } else { "CPUs" };
    writeln!(
        out,
        "  {cpus} {plural} for this process, by its affinity and quota"
    )?;
    writeln!(out, "\n  kernels, each in every variant:")?;
    let width = KERNELS
        .iter()
        .map(|(name, _)| name.len())
        .max()
        .unwrap_or(0);
    KERNELS
        .iter()
        .try_for_each(|(name, what)| writeln!(out, "  {name:<width$}  {what}"))
}

fn report(sets: &[InstructionSet]) -> Report {
    let variants: Vec<&str> = sets.iter().map(|s| s.name).collect();
    let variant = |s: &InstructionSet| Variant {
        name: s.name,
        lanes: s.lanes,
        found: s.missing.is_empty(),
        chosen: s.chosen,
        missing: s.missing.clone(),
    };
    let kernel = |&(name, what): &(&'static str, &'static str)| Kernel {
        name,
        what,
        variants: variants.clone(),
    };
    Report {
        instruction_sets: sets.iter().map(variant).collect(),
        kernels: KERNELS.iter().map(kernel).collect(),
        cpus: machine::cpus(),
        also_found: machine::also_found(),
    }
}
