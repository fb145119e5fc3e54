//! `russet inspect PATH --plan`: the steps of a function, what each has to do, and with `--profile` how long it takes.

use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use russet::{LanguageBundle, PlanQuery, Planned, StepWork};
use russet_graph::graph::Module;
use russet_graph::types::TensorType;
use serde::Serialize;

use super::fold::fold;
use crate::args::{InspectArgs, PrecisionArg};
use crate::commands::assets::Assets;
use crate::failure::Failure;

/// Plans the function of a model, runs it where that is asked for, and prints.
pub(super) fn inspect(
    out: &mut impl Write,
    path: &Path,
    args: &InspectArgs,
) -> Result<(), Failure> {
    let (module, main) = main_function(path)?;
    let wanted = &args.plan;
    let mut query = PlanQuery::default();
    query.tokens = wanted.tokens as usize;
    query.depth = wanted.depth.map(|d| d as usize);
    query.runs = if wanted.profile {
        wanted.runs as usize
    } else {
        0
    };
    query.open.threads = wanted.threads.map_or(0, usize::from);
    query.open.precision = wanted.precision.into();
    query.open.no_repack = wanted.no_repack;
    let function = wanted.function.as_deref().unwrap_or(&main);
    let planned = russet::planned(&module, function, &query)?;
    let path = path.display().to_string();
    let shown = Shown::new(&path, wanted.precision, &planned);
    let written = if args.json {
        shown.json(out)
    } else {
        shown.table(out)
    };
    written.map_err(Failure::write)
}

/// The program at a path, and the function that is run unless another one is asked for.
fn main_function(path: &Path) -> Result<(Module, String), Failure> {
    let (module, main) = match super::built(path, &mut Vec::new())? {
        Some(module) => (module, None),
        None => {
            let Assets { files, folders } = Assets::main(path)?;
            let language = LanguageBundle::read(&*files).ok();
            let main = language.map(|l| l.language.main_function().to_owned());
            let folder = folders.first().map_or("", String::as_str);
            (russet::open_module_in(&*files, folder)?, main)
        }
    };
    let main = main.filter(|name| module.graph(name).is_some());
    let first = || module.functions().next().map(|g| g.name.to_string());
    let is_main = |name: &str| module.graph(name).map(|g| g.name.to_string());
    let name = main.or_else(|| is_main("main")).or_else(first);
    Ok((module, name.unwrap_or_default()))
}

/// The plan of a function, in a call of certain lengths: the JSON form.
#[derive(Debug, Serialize)]
struct Report<'a> {
    path: &'a str,
    function: &'a str,
    precision: &'a str,
    instruction_set: &'a str,
    threads: usize,
    /// Tokens of the call and tokens before it.
    tokens: usize,
    depth: usize,
    steps: Vec<Step<'a>>,
    bytes: u64,
    operations: u64,
    /// Mean time of a call, with what is done between steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds: Option<f64>,
}

#[derive(Debug, Serialize)]
struct Step<'a> {
    kernel: &'a str,
    inputs: Vec<String>,
    outputs: Vec<String>,
    weights: &'a [String],
    bytes: u64,
    operations: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds: Option<f64>,
}

/// A plan and where it comes from.
pub(crate) struct Shown<'a> {
    path: &'a str,
    precision: &'static str,
    planned: &'a Planned,
}

impl<'a> Shown<'a> {
    pub(crate) fn new(path: &'a str, precision: PrecisionArg, planned: &'a Planned) -> Self {
        Self {
            path,
            precision: precision.name(),
            planned,
        }
    }

    /// Writes the plan for programs.
    fn json(&self, out: &mut impl Write) -> io::Result<()> {
        serde_json::to_writer_pretty(&mut *out, &self.report())?;
        writeln!(out)
    }

    /// The JSON form.
    pub(crate) fn value(&self) -> serde_json::Value {
        serde_json::to_value(self.report()).unwrap_or_default()
    }

    fn report(&self) -> Report<'_> {
        let p = self.planned;
        let seconds = |time: Option<&Duration>| time.map(Duration::as_secs_f64);
        let steps = p.steps.iter().enumerate();
        Report {
            path: self.path,
            function: &p.function,
            precision: self.precision,
            instruction_set: p.isa,
            threads: p.threads,
            tokens: p.tokens,
            depth: p.depth,
            steps: steps
                .map(|(i, s)| Step {
                    kernel: s.name,
                    inputs: s.inputs.iter().map(ToString::to_string).collect(),
                    outputs: s.outputs.iter().map(ToString::to_string).collect(),
                    weights: &s.weights,
                    bytes: s.bytes,
                    operations: s.operations,
                    seconds: seconds(p.times.get(i)),
                })
                .collect(),
            bytes: p.steps.iter().map(|s| s.bytes).sum(),
            operations: p.steps.iter().map(|s| s.operations).sum(),
            seconds: seconds((!p.times.is_empty()).then_some(&p.call)),
        }
    }

    /// Writes the plan for people: one table, repeated layers folded.
    pub(crate) fn table(&self, out: &mut impl Write) -> io::Result<()> {
        let p = self.planned;
        writeln!(out, "{}", self.path)?;
        writeln!(
            out,
            "  function {}, {} precision, {}, {} {}; {}",
            p.function,
            self.precision,
            p.isa,
            p.threads,
            if p.threads == 1 { "thread" } else { "threads" },
            call(p),
        )?;
        writeln!(out)?;
        let mut lines = vec![Line::head(p)];
        let keys: Vec<_> = p.steps.iter().map(key).collect();
        for run in fold(&keys) {
            let sum = |i: usize| Figures::of(p, &(0..run.times).map(|t| i + t * run.len));
            if run.times > 1 {
                lines.push(Line::note(format!("{} times:", run.times)));
            }
            for i in run.start..run.start + run.len {
                lines.push(Line::step(p, i, &sum(i).shared(run.times)));
            }
            if run.times > 1 {
                let all = Figures::of(p, &(run.start..run.start + run.len * run.times));
                lines.push(Line::sum(p, "together", &all));
            }
        }
        let total = Figures::of(p, &(0..p.steps.len()));
        lines.push(Line::sum(p, &format!("{} steps", p.steps.len()), &total));
        aligned(out, &lines)?;
        closing(out, p, &total)
    }
}

/// What the call is.
fn call(p: &Planned) -> String {
    let tokens = |n: usize| {
        if n == 1 {
            "1 token".into()
        } else {
            format!("{n} tokens")
        }
    };
    match (p.is_language_model, p.is_open) {
        (true, _) => format!("{} behind {}", tokens(p.tokens), p.depth),
        (false, true) => format!("open extents {}", p.tokens),
        (false, false) => "fixed shapes".into(),
    }
}

/// How fast it was, where it ran.
fn closing(out: &mut impl Write, p: &Planned, total: &Figures) -> io::Result<()> {
    let Some(time) = total.time else {
        return Ok(());
    };
    let rate = |n: u64| n as f64 / time.as_secs_f64().max(1e-12) / 1e9;
    writeln!(out)?;
    writeln!(
        out,
        "  a call takes {}, of which {} between steps; steps move {:.1} GB/s and do {:.1} Gop/s",
        duration(p.call),
        duration(p.call.saturating_sub(time)),
        rate(total.bytes),
        rate(total.operations),
    )
}

/// What makes steps equal.
fn key(s: &StepWork) -> (&'static str, String) {
    (
        s.name,
        format!("{:?}{:?}{:?}", s.inputs, s.outputs, s.weights),
    )
}

/// Sums over steps.
struct Figures {
    bytes: u64,
    operations: u64,
    time: Option<Duration>,
}

impl Figures {
    fn of(p: &Planned, steps: &(impl Iterator<Item = usize> + Clone)) -> Self {
        let time = || steps.clone().filter_map(|i| p.times.get(i)).sum();
        let work = || steps.clone().filter_map(|i| p.steps.get(i));
        Self {
            bytes: work().map(|s| s.bytes).sum(),
            operations: work().map(|s| s.operations).sum(),
            time: (!p.times.is_empty()).then(time),
        }
    }

    /// One of `n` equal shares.
    fn shared(self, n: usize) -> Self {
        let n = n.max(1);
        Self {
            bytes: self.bytes / n as u64,
            operations: self.operations / n as u64,
            time: self.time.map(|t| t / u32::try_from(n).unwrap_or(u32::MAX)),
        }
    }
}

const COLUMNS: usize = 8;
/// Columns that stand to the left.
const LEFT: [bool; COLUMNS] = [false, true, true, true, false, false, false, false];

/// A line of the table; columns that are empty everywhere are left out.
struct Line([String; COLUMNS]);

impl Line {
    fn head(p: &Planned) -> Self {
        let timed = if p.times.is_empty() {
            ["", ""]
        } else {
            ["time", "share"]
        };
        let names = ["step", "kernel", "result", "weights", "bytes", "operations"];
        let mut all = names.iter().chain(&timed).map(ToString::to_string);
        Self(std::array::from_fn(|_| all.next().unwrap_or_default()))
    }

    fn note(text: String) -> Self {
        let mut line = Self(Default::default());
        line.0[1] = text;
        line
    }

    fn figures(mut self, p: &Planned, f: &Figures) -> Self {
        self.0[4] = scaled(f.bytes, "B");
        self.0[5] = scaled(f.operations, "");
        if let Some(time) = f.time {
            let all: Duration = p.times.iter().sum();
            let part = time.as_secs_f64() / all.as_secs_f64().max(1e-12);
            self.0[6] = duration(time);
            self.0[7] = format!("{:.1} %", 100.0 * part);
        }
        self
    }

    fn step(p: &Planned, i: usize, f: &Figures) -> Self {
        let s = &p.steps[i];
        let mut line = Self(Default::default());
        line.0[0] = i.to_string();
        line.0[1] = s.name.into();
        line.0[2] = listed(s.outputs.iter().map(tensor));
        line.0[3] = listed(s.weights.iter().cloned());
        line.figures(p, f)
    }

    fn sum(p: &Planned, what: &str, f: &Figures) -> Self {
        Self::note(what.into()).figures(p, f)
    }
}

/// The first, and how many more there are.
fn listed(items: impl Iterator<Item = String>) -> String {
    let items: Vec<String> = items.collect();
    match &items[..] {
        [] => String::new(),
        [one] => one.clone(),
        [first, rest @ ..] => match rest.iter().all(|r| r == first) {
            true => format!("{} × {first}", items.len()),
            false => format!("{first} + {}", rest.len()),
        },
    }
}

fn tensor(ty: &TensorType) -> String {
    let extents: Vec<String> = ty.shape.iter().map(ToString::to_string).collect();
    format!("{} [{}]", ty.dtype, extents.join(", "))
}

fn aligned(out: &mut impl Write, lines: &[Line]) -> io::Result<()> {
    let width = |c: usize| lines.iter().map(|l| l.0[c].chars().count()).max();
    let widths: Vec<usize> = (0..COLUMNS).map(|c| width(c).unwrap_or(0)).collect();
    for line in lines {
        let mut text = String::new();
        for ((cell, &width), left) in line.0.iter().zip(&widths).zip(LEFT) {
            if width == 0 {
                continue;
            }
            text.push_str("  ");
            text.push_str(&if left {
                format!("{cell:<width$}")
            } else {
                format!("{cell:>width$}")
            });
        }
        writeln!(out, "{}", text.trim_end())?;
    }
    Ok(())
}

/// A number in units of thousands, with a suffix: up to 9,999 as it is.
fn scaled(n: u64, suffix: &str) -> String {
    let units = ["k", "M", "G", "T"];
    if n < 10_000 {
        return format!("{n} {suffix}").trim_end().into();
    }
    let mut value = n as f64 / 1e3;
    let mut unit = 0;
    while value >= 999.95 && unit + 1 < units.len() {
        value /= 1e3;
        unit += 1;
    }
    format!("{value:.1} {}{suffix}", units[unit])
}

fn duration(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    match time.as_nanos() {
        0..999_950 => format!("{:.1} µs", seconds * 1e6),
        999_950..999_950_000 => format!("{:.1} ms", seconds * 1e3),
        _ => format!("{seconds:.1} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_four_digits_or_fewer() {
        for (n, want) in [
            (0, "0 B"),
            (9_999, "9999 B"),
            (10_000, "10.0 kB"),
            (1_105_920, "1.1 MB"),
            (999_949, "999.9 kB"),
            (999_951, "1.0 MB"),
            (88_800_000_000, "88.8 GB"),
        ] {
            assert_eq!(scaled(n, "B"), want);
        }
        assert_eq!(scaled(576, ""), "576");
        for (micros, want) in [
            (0.4, "0.4 µs"),
            (999.9, "999.9 µs"),
            (3857.0, "3.9 ms"),
            (2e6, "2.0 s"),
        ] {
            assert_eq!(duration(Duration::from_secs_f64(micros / 1e6)), want);
        }
    }

    #[test]
    fn lists_say_the_first_and_how_many_more() {
        let list = |items: &[&str]| listed(items.iter().map(ToString::to_string));
        assert_eq!(list(&[]), "");
        assert_eq!(list(&["a"]), "a");
        assert_eq!(list(&["a", "a", "a"]), "3 × a");
        assert_eq!(list(&["a", "b", "c"]), "a + 2");
    }
}
