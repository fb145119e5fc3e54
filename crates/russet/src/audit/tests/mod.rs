//! Audits as data: a whole bundle, what is broken in it, and what must be found.

mod mutations;
mod programs;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::*;
use crate::bundle::{DirectorySource, MemorySource};

/// Files of a bundle by path.
type Files = BTreeMap<String, Vec<u8>>;

fn fixtures(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fixtures")
        .join(path)
}

fn read(folder: &Path, prefix: &str, files: &mut Files) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = format!("{prefix}{}", entry.file_name().to_str().unwrap());
        match entry.file_type().unwrap().is_dir() {
            true => read(&entry.path(), &format!("{name}/"), files),
            false => drop(files.insert(name, fs::read(entry.path()).unwrap())),
        }
    }
}

/// The files of a fixture.
fn whole(name: &str) -> Files {
    let mut files = Files::new();
    read(&fixtures(name), "", &mut files);
    files
}

fn memory(files: &Files) -> MemorySource {
    files
        .iter()
        .fold(MemorySource::new("b"), |source, (path, bytes)| {
            source.with(path, bytes.clone()).unwrap()
        })
}

fn audited(files: &Files) -> Report {
    audit(&memory(files), &AuditOptions::default())
}

/// Changes a JSON file.
fn edit(files: &mut Files, name: &str, change: impl FnOnce(&mut Value)) {
    let mut value = serde_json::from_slice(&files[name]).unwrap();
    change(&mut value);
    files.insert(name.into(), value.to_string().into_bytes());
}

fn codes(report: &Report) -> Vec<&'static str> {
    report.findings.iter().map(|f| f.code).collect()
}

#[track_caller]
fn assert_explained(report: &Report) {
    for finding in &report.findings {
        assert!(
            !finding.what.is_empty() && !finding.mend.is_empty(),
            "{finding:?}"
        );
        assert!(RULES.iter().any(|r| r.code == finding.code), "{finding:?}");
    }
}

#[test]
fn codes_are_unique_sorted_and_spelled_alike() {
    let codes: Vec<&str> = RULES.iter().map(|r| r.code).collect();
    assert!(codes.windows(2).all(|w| w[0] < w[1]), "{codes:?}");
    for rule in RULES {
        assert!(
            rule.code
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b == b'-')
        );
        assert!(!rule.about.is_empty());
    }
}

/// Every bundle of the repository is sound.
#[test]
fn every_fixture_is_sound() {
    let options = AuditOptions {
        hash: true,
        ..AuditOptions::default()
    };
    let mut seen = 0;
    for folder in ["lm", "turns", "static"] {
        let entries = fs::read_dir(fixtures(folder)).unwrap();
        let paths = entries.map(|e| e.unwrap().path());
        for path in paths.filter(|p| p.is_dir()) {
            let report = audit(&DirectorySource::new(&path), &options);
            assert!(
                report.is_sound(),
                "{}: {:?}",
                path.display(),
                report.findings
            );
            assert_explained(&report);
            let passed = report.passed.len();
            assert!(passed >= 12, "{}: {:?}", path.display(), report.passed);
            seen += 1;
        }
    }
    assert!(seen >= 15 + 7, "{seen}");
}

/// Assets alone, with every operation there is; those for other hardware are told as such.
#[test]
fn every_bare_asset_is_looked_at() {
    let mut assets = Vec::new();
    for folder in ["aimodel", "ops"] {
        find_assets(&fixtures(folder), &mut assets);
    }
    assert!(assets.len() > 100);
    for path in assets {
        let report = audit(&DirectorySource::new(&path), &AuditOptions::default());
        assert_explained(&report);
        let mut errors = report
            .findings
            .iter()
            .filter(|f| f.severity == Severity::Error);
        assert!(
            errors.all(|f| f.code == "kernel-foreign"),
            "{}: {:?}",
            path.display(),
            report.findings
        );
        assert!(codes(&report).contains(&"asset-bare"));
    }
}

fn find_assets(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.extension().is_some_and(|e| e == "aimodel") {
            true => found.push(path),
            false if path.is_dir() => find_assets(&path, found),
            false => {}
        }
    }
}

#[test]
fn the_json_form_is_stable() {
    let mut files = whole("lm/qwen3-4bit");
    edit(&mut files, METADATA, |v| v["compression"] = "2bit".into());
    let json = serde_json::to_value(audited(&files)).unwrap();
    let keys: Vec<&String> = json.as_object().unwrap().keys().collect();
    assert_eq!(
        keys,
        [
            "path", "name", "kind", "bytes", "assets", "findings", "passed"
        ]
    );
    let finding = &json["findings"][0];
    let keys: Vec<&String> = finding.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["severity", "code", "file", "field", "what", "mend"]);
    assert_eq!(
        (&finding["severity"], &finding["code"]),
        (&"error".into(), &"compression-false".into())
    );
    assert_eq!(
        (&finding["file"], &finding["field"]),
        (&"metadata.json".into(), &"compression".into())
    );
    let weights = json["assets"][0]["weights"].as_array().unwrap();
    let keys: Vec<&String> = weights[0].as_object().unwrap().keys().collect();
    assert_eq!(keys, ["dtype", "elements", "bytes", "share"]);
    let sum: f64 = weights.iter().map(|w| w["share"].as_f64().unwrap()).sum();
    assert!((sum - 1.0).abs() < 1e-9, "{weights:?}");
    assert_eq!(weights[0]["dtype"], "i4");
}

const METADATA: &str = "metadata.json";
