//! `russet eval schemas`: what of JSON Schema can be enforced for a vocabulary, and how fast.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use russet::grammar::{CaseResult, Coverage, JsonOptions, SchemaCase, Tail, Vocabulary};
use russet::{Model, OpenOptions, Tokenizer};
use serde_json::json;

use super::eval::{bar, pretty, print};
use crate::args::SchemasArgs;
use crate::failure::Failure;
use crate::locate::locate;

/// Judges every file; a failure where an invalid instance can be written.
pub(super) fn schemas(args: &SchemasArgs) -> Result<ExitCode, Failure> {
    let files = files(&args.path)?;
    if files.is_empty() {
        let place = args.path.display();
        return Err(Failure::Wrong(format!("{place} holds no .json file")));
    }
    let vocabulary = vocabulary(args)?;
    let mut options = JsonOptions::default();
    options.strict = args.schema_strict;
    let mut coverage = Coverage::new(&vocabulary, options);
    let bar = bar(files.len(), "files");
    for file in &files {
        let text = Failure::reading(file, fs::read(file))?;
        let cases = SchemaCase::read(&text);
        let cases = cases.map_err(|e| Failure::Wrong(format!("{}: {e}", file.display())))?;
        for (i, case) in cases.iter().enumerate() {
            let result = coverage.judge(case);
            if args.failures {
                bar.suspend(|| print_failures(file, i, &result))?;
            }
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    report(&coverage, args.json)?;
    Ok(match coverage.instances.invalid_taken {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

/// The tokens of a model or of a tokenizer file.
fn vocabulary(args: &SchemasArgs) -> Result<Arc<Vocabulary>, Failure> {
    if let Some(file) = &args.tokenizer {
        let text = Failure::reading(file, fs::read(file))?;
        let tokenizer = Tokenizer::from_json(&text).map_err(russet::Error::from)?;
        let width = tokenizer.largest_id() as usize + 1;
        return Ok(Vocabulary::new(&tokenizer, &[], width).map_err(russet::Error::from)?);
    }
    let path = locate(&args.model)?;
    let mut options = OpenOptions::default();
    options.lazy = true;
    let model = Model::open(&path, &options).map_err(|source| Failure::Open {
        path,
        source: Box::new(source),
    })?;
    Ok(model.grammar_vocabulary()?.clone())
}

/// A file, or the JSON files below a folder, in order.
fn files(path: &Path) -> Result<Vec<PathBuf>, Failure> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut found = Vec::new();
    let mut folders = vec![path.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in Failure::reading(&folder, fs::read_dir(&folder))? {
            let entry = Failure::reading(&folder, entry)?;
            let path = entry.path();
            let kind = Failure::reading(&path, entry.file_type())?;
            if kind.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "json") {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

fn print_failures(file: &Path, case: usize, result: &CaseResult) -> Result<(), Failure> {
    let place = format!("{} schema {case}", file.display());
    if let Some(error) = &result.refused {
        print(&format!("{place}: refused: {error}"))?;
    }
    for (test, error) in &result.wrong {
        match error {
            Some(error) => print(&format!("{place} instance {test}: valid, but {error}"))?,
            None => print(&format!(
                "{place} instance {test}: invalid, but can be written"
            ))?,
        }
    }
    Ok(())
}

fn report(coverage: &Coverage, as_json: bool) -> Result<(), Failure> {
    let times = [
        ("compile", coverage.compile.tail()),
        ("mask", coverage.mask_time.tail()),
        ("accept", coverage.accept.tail()),
    ];
    if as_json {
        let mut json = json!({
            "schemas": coverage.schemas,
            "refused": coverage.refused,
            "right": coverage.right,
            "checked_late": coverage.checked_late,
            "instances": coverage.instances,
        });
        for (name, tail) in times {
            json[format!("{name}_seconds")] = json!(tail);
        }
        return print(&pretty(&json));
    }
    let share = |n: usize| 100.0 * n as f64 / coverage.schemas.max(1) as f64;
    let seen = &coverage.instances;
    let mut text = format!(
        "schemas            {}\nrefused            {} ({:.2} %)\nfully right        {} ({:.2} %)\nchecked late       {} ({:.2} %)\n\
         valid instances    {} taken, {} not\ninvalid instances  {} not taken, {} taken\n",
        coverage.schemas,
        coverage.refused,
        share(coverage.refused),
        coverage.right,
        share(coverage.right),
        coverage.checked_late,
        share(coverage.checked_late),
        seen.valid_taken,
        seen.valid_refused,
        seen.invalid_refused,
        seen.invalid_taken,
    );
    let _ = write!(
        text,
        "\n{:<10}{:>10}{:>12}{:>12}{:>12}{:>12}",
        "", "times", "median", "99 %", "99.9 %", "longest"
    );
    for (name, tail) in times {
        let _ = write!(text, "\n{name:<10}{}", row(&tail));
    }
    print(&text)
}

/// A row of times, in milliseconds.
fn row(tail: &Tail) -> String {
    let ms = [tail.p50, tail.p99, tail.p999, tail.max].map(|s| format!("{:>9.3} ms", 1e3 * s));
    format!("{:>10}{}", tail.count, ms.concat())
}
