//! `russet eval` on small models.

use std::fs;

use serde_json::Value;

use crate::tools::{Folder, fixture, russet, stdout};

fn model(name: &str) -> String {
    fixture(name).display().to_string()
}

fn eval(line: &[&str]) -> std::process::Output {
    let line: Vec<&dyn AsRef<std::ffi::OsStr>> = line.iter().map(|a| a as _).collect();
    russet(&[&[&"eval" as &dyn AsRef<std::ffi::OsStr>], &line[..]].concat())
}

fn json(done: &std::process::Output) -> Value {
    serde_json::from_str(&stdout(done)).unwrap()
}

const TEXT: &str =
    "the quick brown fox jumps over the lazy dog. the dog sleeps, and the fox runs on.";

#[test]
fn perplexity_of_a_text() {
    let folder = Folder::new();
    let file = folder.join("text.txt");
    fs::write(&file, TEXT).unwrap();
    let (model, file) = (model("turns/llama"), file.display().to_string());
    let of = |more: &[&str]| {
        json(&eval(
            &[&["perplexity", &model, "--file", &file, "--json"], more].concat(),
        ))
    };
    let whole = of(&[]);
    assert!(whole["perplexity"].as_f64().unwrap() > 1.0);
    assert_eq!(whole["bytes"], TEXT.len());
    let first = of(&["--tokens", "9", "--window", "4", "--stride", "2"]);
    assert_eq!((&first["tokens"], &first["stride"]), (&8.into(), &2.into()));
    let table = stdout(&eval(&["perplexity", &model, "--file", &file]));
    assert!(table.contains("bits per byte"), "{table}");
    let missing = eval(&["perplexity", &model, "--file", "/nowhere/text"]);
    assert!(String::from_utf8_lossy(&missing.stderr).contains("cannot read /nowhere/text"));
}

#[test]
fn a_continuation_is_scored_token_by_token() {
    let model = model("turns/llama");
    let line = [
        "continuation",
        &model,
        "--context",
        "the quick",
        "--continuation",
        " brown fox",
    ];
    let scored = json(&eval(&[&line[..], &["--json", "--top-k", "2"]].concat()));
    assert_eq!(scored["positions"][0]["top_k"].as_array().unwrap().len(), 2);
    assert!(scored["total_log_probability"].as_f64().unwrap() < 0.0);
    assert!(stdout(&eval(&line)).contains("the likeliest continuation"));
}

#[test]
fn questions_are_answered() {
    let folder = Folder::new();
    let file = folder.join("questions.jsonl");
    let question = |answer: usize| {
        format!(
            "{{\"question\": \"the quick\", \"choices\": [\" fox\", \" dog\"], \"answer\": {answer}}}\n"
        )
    };
    fs::write(&file, question(0) + &question(1)).unwrap();
    let (model, path) = (model("turns/llama"), file.display().to_string());
    let report = json(&eval(&["choices", &model, &path, "--json"]));
    assert_eq!(
        (&report["questions"], &report["accuracy"]),
        (&2.into(), &0.5.into())
    );
    let score = |i: usize| report["results"][i]["log_probabilities"][0].as_f64().unwrap();
    assert!((score(0) - score(1)).abs() < 0.01);
    fs::write(&file, question(2)).unwrap();
    let refused = eval(&["choices", &model, &path]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        said.contains("questions.jsonl, line 1: the answer is 2"),
        "{said}"
    );
}

#[test]
fn two_models_are_compared_and_thresholds_decide() {
    let folder = Folder::new();
    let file = folder.join("text.txt");
    fs::write(&file, TEXT).unwrap();
    let (a, b, file) = (
        model("turns/llama"),
        model("turns/gemma3"),
        file.display().to_string(),
    );
    let compare = |second: &str, more: &[&str]| {
        eval(&[&["compare", &a, second, "--file", &file], more].concat())
    };
    let same = json(&compare(
        &a,
        &["--json", "--max-divergence", "0", "--min-same-top", "1"],
    ));
    assert_eq!(
        (&same["mean_divergence"], &same["passed"]),
        (&0.0.into(), &true.into())
    );
    let precisions = json(&compare(
        &a,
        &[
            "--json",
            "--precision",
            "exact",
            "--second-precision",
            "fast",
        ],
    ));
    let apart = precisions["mean_divergence"].as_f64().unwrap();
    assert!(apart > 0.0 && apart < 0.01);
    let other = compare(&b, &["--max-divergence", "0.001"]);
    assert_eq!(other.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&other.stdout).contains("same likeliest token"));
}
