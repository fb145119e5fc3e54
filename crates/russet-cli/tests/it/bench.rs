//! `russet bench` on a small model.

use serde_json::Value;

use crate::tools::{Folder, complaint, fixture, russet, stdout};

const MODEL: &str = "lm/qwen3-4bit";

/// `bench MODEL --threads 1` with more arguments.
fn bench(more: &[&str]) -> std::process::Output {
    let model = fixture(MODEL);
    let mut args: Vec<&dyn AsRef<std::ffi::OsStr>> = vec![&"bench", &model, &"--threads", &"1"];
    args.extend(more.iter().map(|a| a as &dyn AsRef<std::ffi::OsStr>));
    russet(&args)
}

fn number(value: &Value, key: &str) -> f64 {
    value[key].as_f64().unwrap_or_else(|| panic!("no {key}"))
}

#[test]
fn figures_are_those_of_the_trials() {
    let args = ["-p", "9", "-g", "4", "-n", "3", "--depth", "5", "--json"];
    let report: Value = serde_json::from_str(&stdout(&bench(&args))).unwrap();
    let given = [
        ("prompt_tokens", 9),
        ("generation_tokens", 4),
        ("num_trials", 3),
    ];
    for (key, value) in given.into_iter().chain([("depth", 5), ("threads", 1)]) {
        assert_eq!(report[key], value, "{key}");
    }
    let trials = report["trials"].as_array().unwrap();
    assert_eq!(trials.len(), 3);
    for kind in ["prompt_tps", "gen_tps"] {
        let mut speeds: Vec<f64> = trials.iter().map(|t| number(t, kind)).collect();
        speeds.sort_by(f64::total_cmp);
        assert!(speeds[0] > 0.0, "{kind}: {speeds:?}");
        let spread = ["min", "median", "max"].map(|key| number(&report[kind], key));
        assert_eq!(spread.as_slice(), speeds, "{kind}");
        assert_eq!(number(&report, &format!("median_{kind}")), speeds[1]);
        let mean = speeds.iter().sum::<f64>() / 3.0;
        assert!((number(&report, &format!("average_{kind}")) / mean - 1.0).abs() < 1e-9);
    }
}

#[test]
fn both_openings_are_told_apart() {
    let args = ["-p", "2", "-g", "1", "-n", "1", "--json"];
    let report: Value = serde_json::from_str(&stdout(&bench(&args))).unwrap();
    for opening in [&report, &report["warm_opening"]] {
        let parts = number(opening, "prepare_seconds") + number(opening, "warmup_seconds");
        assert!(parts > 0.0);
        assert!((number(opening, "first_token_seconds") - parts).abs() < 1e-6);
    }
    if cfg!(target_os = "linux") {
        let held = number(&report, "footprint");
        assert!(held > 0.0 && held <= number(&report, "peak_rss"));
    }
}

#[test]
fn the_table_says_what_was_measured_and_the_file_gets_the_json() {
    let folder = Folder::new();
    let file = folder.join("figures.json");
    let args = [
        "-p",
        "3",
        "-g",
        "2",
        "-n",
        "1",
        "--output-json",
        file.to_str().unwrap(),
    ];
    let text = stdout(&bench(&args));
    for part in [
        "prompt ",
        "generation ",
        "opening ",
        "memory ",
        "3 tokens behind 0",
        "1 threads",
    ] {
        assert!(text.contains(part), "{part:?} in {text}");
    }
    let written: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(written["trials"].as_array().unwrap().len(), 1);
}

#[test]
fn either_half_can_be_left_out() {
    let cases = [
        (["-p", "0", "-g", "2"], "prompt_tps"),
        (["-p", "2", "-g", "0"], "gen_tps"),
    ];
    for depth in ["0", "4"] {
        for (half, absent) in cases {
            let args = [half.as_slice(), &["-n", "1", "--json", "--depth", depth]].concat();
            let report: Value = serde_json::from_str(&stdout(&bench(&args))).unwrap();
            for kind in ["prompt_tps", "gen_tps"] {
                let speed = number(&report[kind], "median");
                assert_eq!(
                    speed == 0.0,
                    kind == absent,
                    "{half:?}, depth {depth}: {report}"
                );
            }
        }
    }
}

#[test]
fn more_than_the_context_holds_is_refused() {
    let said = complaint(&bench(&["-p", "1000000", "-n", "1"]), 1);
    assert!(said.contains("context is full"), "{said}");
}
