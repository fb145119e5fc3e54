//! `russet audit BUNDLE`: what is wrong with a bundle, and how to mend it.

use std::io::{self, Write};
use std::process::ExitCode;

use russet::audit::{Finding, Report, Severity};
use russet::{AuditOptions, ModelSource, audit};

use crate::args::AuditArgs;
use crate::failure::Failure;
use crate::locate::locate;

/// Columns that lines are broken at.
const WIDTH: usize = 100;
/// Columns before a finding's text.
const INDENT: usize = 11;

/// Audits and prints; fails where there are errors.
pub(crate) fn audit_bundle(args: &AuditArgs) -> Result<ExitCode, Failure> {
    let path = locate(&args.bundle)?;
    if ModelSource::of(&path)? == ModelSource::Gguf {
        return Err(Failure::NoBundle(path));
    }
    let mut options = AuditOptions::default();
    options.max_bytes = args.max_bytes;
    options.hash = args.hash;
    let report = audit(&*russet::files(&path)?, &options);
    let mut out = io::BufWriter::new(io::stdout().lock());
    let written = match args.json {
        true => serde_json::to_writer_pretty(&mut out, &report)
            .map_err(io::Error::from)
            .and_then(|()| writeln!(out)),
        false => show(&mut out, &report, args.verbose),
    };
    written.and_then(|()| out.flush()).map_err(Failure::write)?;
    Ok(match report.is_sound() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

fn show(out: &mut impl Write, report: &Report, verbose: bool) -> io::Result<()> {
    let kind = report
        .kind
        .as_deref()
        .map_or(String::new(), |k| format!("{k}, "));
    writeln!(out, "{}  ({kind}{} bytes)", report.path, report.bytes)?;
    report.findings.iter().try_for_each(|f| finding(out, f))?;
    if verbose {
        weights(out, report)?;
        for passed in &report.passed {
            line(out, "ok", &format!("{}: {}", passed.check, passed.what))?;
        }
    }
    writeln!(out, "  {}", summary(report))
}

fn finding(out: &mut impl Write, finding: &Finding) -> io::Result<()> {
    let place = match (&*finding.file, &finding.field) {
        ("", None) => "the bundle".to_owned(),
        (file, None) => file.to_owned(),
        (file, Some(field)) => format!("{file}: {field}"),
    };
    line(
        out,
        name(finding.severity),
        &format!("{place}  [{}]", finding.code),
    )?;
    line(out, "", &finding.what)?;
    line(out, "", &format!("mend: {}", finding.mend))
}

fn name(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Note => "note",
    }
}

/// A word in the margin and text beside it, broken between words.
fn line(out: &mut impl Write, margin: &str, text: &str) -> io::Result<()> {
    let mut margin = margin;
    let mut written = String::new();
    for word in text.split(' ') {
        let fits = written.chars().count() + 1 + word.chars().count() <= WIDTH - INDENT;
        if !written.is_empty() && !fits {
            writeln!(out, "  {margin:<8} {written}")?;
            (margin, written) = ("", String::new());
        }
        if !written.is_empty() {
            written.push(' ');
        }
        written.push_str(word);
    }
    writeln!(out, "  {margin:<8} {written}")
}

fn weights(out: &mut impl Write, report: &Report) -> io::Result<()> {
    for asset in &report.assets {
        let share =
            |w: &russet::audit::WeightShare| format!("{:.0} % {}", 100.0 * w.share, w.dtype);
        let shares: Vec<String> = asset.weights.iter().map(share).collect();
        let bytes: u64 = asset.weights.iter().map(|w| w.bytes).sum();
        if !shares.is_empty() {
            let text = format!("{}: {} of {bytes} bytes", asset.file, shares.join(", "));
            line(out, "weights", &text)?;
        }
    }
    Ok(())
}

fn summary(report: &Report) -> String {
    let count = |severity, word: &str| {
        let n = report.count(severity);
        let plural = if n == 1 { "" } else { "s" };
        (n > 0).then(|| format!("{n} {word}{plural}"))
    };
    let counts = [
        count(Severity::Error, "error"),
        count(Severity::Warning, "warning"),
        count(Severity::Note, "note"),
    ];
    let counts: Vec<String> = counts.into_iter().flatten().collect();
    let checks = format!("{} checks passed", report.passed.len());
    match counts.is_empty() {
        true => format!("nothing to mend: {checks}"),
        false => format!("{}; {checks}", counts.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_broken_between_words() {
        let mut out = Vec::new();
        line(&mut out, "error", &"word ".repeat(40)).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(lines[0].starts_with("  error    word word"));
        assert!(lines[1].starts_with("           word"));
        assert!(lines.iter().all(|l| l.chars().count() <= WIDTH));
    }
}
