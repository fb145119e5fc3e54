//! The programs of the assets: readable, consistent, made of operations that run here, and the ones their digests are of.

use russet_formats::aimodel::{AssetError, HASH, PROGRAM, Problem};
use russet_graph::error::OpError;
use russet_graph::exec::{Plan, PlanError, PlanOptions};
use russet_graph::graph::{Block, Module};
use russet_graph::infer::NodeError;
use russet_graph::ops::Op;
use russet_graph::verify::verify;

use super::finding::{self as rules, At, Findings};
use super::subject::{Asset, Subject};
use crate::bundle::inside;
use crate::open::Error;

/// Programs that cannot be read or run.
pub(super) fn sound(subject: &Subject<'_>, findings: &mut Findings) -> Option<()> {
    subject.assets.first()?;
    for asset in &subject.assets {
        let file = inside(&asset.path, PROGRAM);
        if let Some(error) = &asset.error {
            unreadable(&file, error, findings);
        }
        let Some(module) = &asset.module else {
            continue;
        };
        if foreign(&file, module, findings) {
            continue;
        }
        if let Err(violation) = verify(module) {
            findings.add(
                &rules::PROGRAM_INCONSISTENT,
                At::file(&file),
                violation.to_string(),
                "export the asset again; if it comes from the exporter like this, report it there",
            );
            continue;
        }
        unplanned(&file, module, findings);
    }
    Some(())
}

fn unreadable(file: &str, error: &Error, findings: &mut Findings) {
    let problem = match error {
        Error::Asset {
            source: AssetError::Program(error),
            ..
        } => Some(&error.problem),
        _ => None,
    };
    match problem {
        Some(Problem::Unsupported(_)) => findings.add(
            &rules::OPERATION_UNKNOWN,
            At::file(file),
            error.to_string(),
            "export the model without this operation, or with a composite that has a body",
        ),
        _ => findings.add(
            &rules::ASSET_UNREADABLE,
            At::file(file),
            error.to_string(),
            "copy or export the asset again; a digest tells whether a copy is whole (russet audit --hash)",
        ),
    }
}

/// Tells every kernel for other hardware; whether there is one.
fn foreign(file: &str, module: &Module, findings: &mut Findings) -> bool {
    let before = findings.0.len();
    for graph in &module.graphs {
        nodes(&graph.body, &mut |op| {
            if let Op::OpaqueKernel(kernel) = op {
                findings.add(
                    &rules::KERNEL_FOREIGN,
                    At::field(file, &graph.name),
                    kernel.refusal().to_string(),
                    "export the model without this kernel: its plain operations run anywhere",
                );
            }
        });
    }
    findings.0.len() > before
}

/// Every operation of a block and of the blocks inside it.
pub(super) fn nodes(block: &Block, visit: &mut dyn FnMut(&Op)) {
    for node in &block.nodes {
        visit(&node.op);
        node.blocks.iter().for_each(|b| nodes(b, visit));
    }
}

/// Functions that cannot be planned. What depends on values of tensors is interpreted instead, which is no fault.
fn unplanned(file: &str, module: &Module, findings: &mut Findings) {
    for graph in module.functions() {
        let plan = Plan::build(module, &graph.name, &PlanOptions::default());
        let interpreted = |e: &PlanError| {
            matches!(
                e,
                PlanError::Node(NodeError {
                    error: OpError::Unknown(_),
                    ..
                })
            )
        };
        if let Some(error) = plan.err().filter(|e| !interpreted(e)) {
            findings.add(
                &rules::PROGRAM_UNPLANNED,
                At::field(file, &graph.name),
                error.to_string(),
                "export the function with shapes that follow from those of its inputs",
            );
        }
    }
}

/// Digests: whether there are some, and with `hash` whether they are right.
pub(super) fn digest(subject: &Subject<'_>, findings: &mut Findings) -> Option<()> {
    let before = findings.0.len();
    for asset in &subject.assets {
        let file = inside(&asset.path, HASH);
        if !subject.source.exists(&file) {
            findings.add(
                &rules::HASH_MISSING,
                At::file(&file),
                "the asset has no digest: a damaged copy cannot be told",
                "export the asset again, or copy main.hash beside main.mlirb",
            );
        } else if let Some(what) = subject.options.hash.then(|| wrong(asset)).flatten() {
            findings.add(
                &rules::HASH_WRONG,
                At::file(&file),
                what,
                "copy or export the asset again: program and digest are of different exports, or the copy is damaged",
            );
        }
    }
    (subject.options.hash || findings.0.len() > before).then_some(())
}

fn wrong(asset: &Asset) -> Option<String> {
    let checked = asset.asset.as_ref()?.verify_hash();
    checked.err().map(|e| e.to_string())
}
