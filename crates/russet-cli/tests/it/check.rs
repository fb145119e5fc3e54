//! `russet check` and checkpoints as models, by the command.

use serde_json::Value;

use crate::tools::{complaint, fixture, russet, stdout};

/// A package of four bits is judged, and fails where more is asked for.
#[test]
fn limits_decide_the_exit_status() {
    let (package, checkpoint) = (fixture("coreml/qwen3-lut4"), fixture("check/qwen3-lut4"));
    let run = |limits: [&str; 2]| {
        russet(&[
            &"check",
            &package,
            &"--hf",
            &checkpoint,
            &"--prompt",
            &"the lazy dog",
            &"--tokens",
            &"6",
            &"--layers",
            &"--json",
            &"--max-kl",
            &limits[0],
            &"--min-cosine",
            &limits[1],
            &"--min-top1",
            &"0",
        ])
    };
    let passed = run(["2", "0.5"]);
    let report: Value = serde_json::from_str(&stdout(&passed)).unwrap();
    assert_eq!(report["passed"], true);
    assert_eq!(report["all"]["places"], 6);
    assert_eq!(report["layers"]["compared"].as_array().unwrap().len(), 3);
    assert_eq!(report["prompts"][0]["places"].as_array().unwrap().len(), 6);
    let failed = run(["2", "0.9999"]);
    assert_eq!(failed.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&failed.stdout).unwrap();
    assert_eq!(report["passed"], false);
}

#[test]
fn the_report_has_what_was_asked_for() {
    let checkpoint = fixture("checkpoint/qwen2-1");
    let text = stdout(&russet(&[
        &"check",
        &checkpoint,
        &"--hf",
        &checkpoint,
        &"--tokens",
        &"3",
        &"--layers",
        &"--bench",
        &"--plan",
    ]));
    for part in [
        "top-1         100.00 %",
        "at least 0.98",
        "worst layers of 2",
        "generation",
        "kernel",
        "passed",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn a_reference_is_a_checkpoint() {
    let bundle = fixture("check/llama");
    let refused = complaint(&russet(&[&"check", &bundle, &"--hf", &bundle]), 2);
    assert!(refused.contains("is no checkpoint"), "{refused}");
}

#[test]
fn a_checkpoint_is_a_model() {
    let folder = fixture("checkpoint/gemma3-1");
    let text = stdout(&russet(&[&"inspect", &folder]));
    for part in [
        "checkpoint, ",
        "architecture gemma3",
        "keyCache",
        "Float16 ",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let plan = stdout(&russet(&[&"inspect", &folder, &"--plan"]));
    assert!(plan.contains("function main"), "{plan}");
    let said = stdout(&russet(&[
        &"run",
        &folder,
        &"w1 w2 w3",
        &"--temperature",
        &"0",
        &"--max-tokens",
        &"3",
    ]));
    assert!(said.trim().starts_with('w'), "{said}");
}
