//! Auditing a bundle: every fault that would otherwise be found by a user, each with the mend.
//!
//! What other readers accept silently is what an audit is for (contract B §10.2): metadata that records what was asked of an
//! exporter and not what it did, a tokenizer that would be fetched from a network, inputs in an order that an engine by
//! position gets wrong. A `Subject` is the bundle, read once as far as it can be; `CHECKS` look at it one after another; what they
//! can find is the list [`RULES`]. Weights are not read unless digests are asked for.

mod compression;
mod descriptors;
mod files;
mod finding;
mod functions;
mod program;
mod subject;
#[cfg(test)]
mod tests;
mod vision;
mod words;

use serde::Serialize;

use crate::bundle::Source;
pub use compression::WeightShare;
use finding::Findings;
pub use finding::{Finding, RULES, Rule, Severity};
use subject::Subject;

/// What to look at besides the usual.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AuditOptions {
    /// The most bytes that all files together may have.
    pub max_bytes: Option<u64>,
    /// Compare every asset with its digest, which reads all weights.
    pub hash: bool,
}

/// What an audit found: serialised, the stable form of `russet audit --json`.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// Where the bundle is.
    pub path: String,
    /// Its name, where the metadata has one.
    pub name: Option<String>,
    /// Its kind, as the metadata spells it.
    pub kind: Option<String>,
    /// Bytes of all files.
    pub bytes: u64,
    /// The assets that were looked at.
    pub assets: Vec<AssetReport>,
    /// What was found, the worst first.
    pub findings: Vec<Finding>,
    /// Checks that found nothing.
    pub passed: Vec<Passed>,
}

/// An asset that was looked at.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct AssetReport {
    /// Its role.
    pub role: String,
    /// Its path in the bundle.
    pub file: String,
    /// What its weights are, by element type, the largest share first.
    pub weights: Vec<WeightShare>,
}

/// A check that found nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Passed {
    /// Its name.
    pub check: &'static str,
    /// What holds.
    pub what: &'static str,
}

impl Report {
    /// Findings of a severity.
    pub fn count(&self, severity: Severity) -> usize {
        let same = self.findings.iter().filter(|f| f.severity == severity);
        same.count()
    }

    /// Whether there is no error.
    pub fn is_sound(&self) -> bool {
        self.count(Severity::Error) == 0
    }
}

/// A check: its name, what holds when it finds nothing, and how to look. `None` where it does not apply.
struct Check {
    name: &'static str,
    holds: &'static str,
    run: fn(&Subject<'_>, &mut Findings) -> Option<()>,
}

const fn check(
    name: &'static str,
    holds: &'static str,
    run: fn(&Subject<'_>, &mut Findings) -> Option<()>,
) -> Check {
    Check { name, holds, run }
}

const CHECKS: &[Check] = &[
    check(
        "metadata",
        "every field has its type",
        descriptors::metadata,
    ),
    check(
        "assets",
        "every asset is there and can run anywhere",
        descriptors::assets,
    ),
    check(
        "files",
        "no file is empty, left over or a placeholder",
        files::whole,
    ),
    check("unused", "the metadata names every asset", files::unused),
    check("size", "the bundle is as small as asked", files::size),
    check(
        "program",
        "every program is sound and can run here",
        program::sound,
    ),
    check(
        "digest",
        "every asset is the one its digest is of",
        program::digest,
    ),
    check(
        "functions",
        "the functions are those that engines look for",
        functions::present,
    ),
    check(
        "inputs",
        "inputs and outputs are known by name and by position",
        functions::ports_of,
    ),
    check(
        "states",
        "the states are such as engines keep",
        functions::states,
    ),
    check(
        "context",
        "functions and caches reach the declared context",
        functions::context,
    ),
    check(
        "compression",
        "the weights are compressed as declared",
        compression::declared,
    ),
    check(
        "tokenizer",
        "the tokenizer is in the bundle",
        words::tokenizer,
    ),
    check(
        "vocabulary",
        "vocabulary, tokenizer and logits agree",
        words::vocabulary,
    ),
    check("stop tokens", "some token ends an answer", words::stops),
    check(
        "chat template",
        "the chat template renders",
        words::template,
    ),
    check("vision", "the vision part is complete", vision::part),
];

/// Audits a bundle, or an asset that stands alone.
pub fn audit(source: &dyn Source, options: &AuditOptions) -> Report {
    let subject = Subject::read(source, options);
    let (findings, passed) = run(&subject);
    let assets = subject.assets.iter().map(|asset| AssetReport {
        role: asset.role.clone(),
        file: asset.path.clone(),
        weights: asset
            .module
            .as_ref()
            .map_or(Vec::new(), compression::shares),
    });
    Report {
        path: source.location().display().to_string(),
        name: subject.model.as_ref().map(|m| m.name.clone()),
        kind: subject.model.as_ref().map(|m| m.kind.name().into()),
        bytes: subject.files.iter().map(|(_, bytes)| bytes).sum(),
        assets: assets.collect(),
        findings,
        passed,
    }
}

/// Runs every check; findings come the worst first.
fn run(subject: &Subject<'_>) -> (Vec<Finding>, Vec<Passed>) {
    let mut findings = Findings::default();
    let mut passed = Vec::new();
    for check in CHECKS {
        let before = findings.0.len();
        let applies = (check.run)(subject, &mut findings).is_some();
        if applies && findings.0.len() == before {
            let (check, what) = (check.name, check.holds);
            passed.push(Passed { check, what });
        }
    }
    let mut findings = findings.0;
    findings.sort_by_key(|f| f.severity);
    (findings, passed)
}
