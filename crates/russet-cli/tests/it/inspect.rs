//! `russet inspect --plan` and `--kernels`.

use serde_json::Value;

use crate::tools::{complaint, fixture, russet, stdout};

const MODEL: &str = "lm/qwen3-4bit";

fn json(args: &[&dyn AsRef<std::ffi::OsStr>]) -> Value {
    serde_json::from_str(&stdout(&russet(args))).unwrap()
}

fn sum(steps: &[Value], key: &str) -> f64 {
    steps.iter().map(|s| s[key].as_f64().unwrap()).sum()
}

#[test]
fn a_plan_is_one_table_with_its_layers_folded() {
    let text = stdout(&russet(&[
        &"inspect",
        &fixture("lm/gemma3"),
        &"--plan",
        &"--threads",
        &"1",
    ]));
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].ends_with("gemma3"), "{text}");
    assert!(
        lines[1].contains("function main, fast precision")
            && lines[1].contains("1 thread; 1 token behind "),
        "{text}"
    );
    let head = lines[3];
    for column in ["step", "kernel", "result", "weights", "bytes", "operations"] {
        assert!(head.contains(column), "{head}");
    }
    assert!(!head.contains("time"), "nothing was timed: {head}");
    assert!(
        text.contains(" times:\n") && text.contains("  together"),
        "{text}"
    );
    let end = head.find("operations").unwrap() + "operations".len();
    let last = lines.last().unwrap();
    assert!(last.contains(" steps ") && last.len() == end, "{text}");
    assert!(lines.iter().all(|l| l.len() < 140), "{text}");
}

#[test]
fn the_json_of_a_plan_adds_up() {
    let plan = json(&[
        &"inspect",
        &fixture(MODEL),
        &"--plan",
        &"--json",
        &"--tokens",
        &"8",
        &"--depth",
        &"3",
    ]);
    let steps = plan["steps"].as_array().unwrap();
    assert_eq!((&plan["tokens"], &plan["depth"]), (&8.into(), &3.into()));
    assert_eq!(sum(steps, "bytes"), plan["bytes"].as_f64().unwrap());
    assert_eq!(
        sum(steps, "operations"),
        plan["operations"].as_f64().unwrap()
    );
    assert!(plan.get("seconds").is_none());
    let packed = |s: &&Value| s["weights"].as_array().is_some_and(|w| !w.is_empty());
    assert!(steps.iter().filter(packed).count() > 4, "{plan}");
    let logits = steps.last().unwrap()["outputs"][0].as_str().unwrap();
    assert!(
        logits.starts_with("tensor<1x1x"),
        "only the last row: {logits}"
    );
}

/// Operations follow from the lengths: products grow with the tokens, attention with what lies before them.
#[test]
fn work_grows_with_the_call() {
    let operations = |tokens: &str, depth: &str| {
        let plan = json(&[
            &"inspect",
            &fixture(MODEL),
            &"--plan",
            &"--json",
            &"--tokens",
            &tokens,
            &"--depth",
            &depth,
        ]);
        plan["operations"].as_f64().unwrap()
    };
    let one = operations("1", "0");
    assert!(operations("16", "0") > 4.0 * one);
    assert!(operations("1", "60") > one);
}

#[test]
fn a_profile_times_every_step() {
    for precision in ["fast", "exact"] {
        let plan = json(&[
            &"inspect",
            &fixture(MODEL),
            &"--plan",
            &"--profile",
            &"--runs",
            &"3",
            &"--json",
            &"--precision",
            &precision,
        ]);
        let steps = plan["steps"].as_array().unwrap();
        assert!(
            steps.iter().all(|s| s["seconds"].as_f64().unwrap() > 0.0),
            "{plan}"
        );
        let call = plan["seconds"].as_f64().unwrap();
        assert!(sum(steps, "seconds") <= call * 1.001, "{plan}");
        assert_eq!(plan["precision"], precision);
    }
    let text = stdout(&russet(&[
        &"inspect",
        &fixture(MODEL),
        &"--plan",
        &"--profile",
        &"--runs",
        &"1",
    ]));
    assert!(text.contains(" share\n") && text.contains("GB/s"), "{text}");
}

#[test]
fn weights_are_packed_unless_told_otherwise() {
    let packed = |more: &[&dyn AsRef<std::ffi::OsStr>]| {
        let model = fixture(MODEL);
        let mut args: Vec<&dyn AsRef<std::ffi::OsStr>> =
            vec![&"inspect", &model, &"--plan", &"--json"];
        args.extend(more);
        let plan = json(&args);
        let steps = plan["steps"].as_array().unwrap();
        let weights = steps
            .iter()
            .filter_map(|s| s["weights"].as_array())
            .flatten();
        let names: Vec<&str> = weights.filter_map(Value::as_str).collect();
        assert!(!names.is_empty(), "{plan}");
        names.iter().filter(|n| n.starts_with("packed")).count()
    };
    assert!(packed(&[]) > 0);
    assert_eq!(packed(&[&"--no-repack"]), 0);
}

#[test]
fn any_function_of_any_asset_is_planned() {
    let operation = fixture("ops/add/si16.aimodel");
    let text = stdout(&russet(&[&"inspect", &operation, &"--plan", &"--profile"]));
    assert!(text.contains("fixed shapes"), "{text}");
    let bundle = fixture("static/static");
    let plan = json(&[
        &"inspect",
        &bundle,
        &"--plan",
        &"--function",
        &"extend_256_8",
        &"--json",
    ]);
    assert_eq!(plan["function"], "extend_256_8");
    let said = complaint(
        &russet(&[&"inspect", &bundle, &"--plan", &"--function", &"none"]),
        1,
    );
    assert!(said.contains("there is no function \"none\""), "{said}");
}

#[test]
fn exactly_one_variant_of_the_kernels_is_chosen() {
    let report = json(&[&"inspect", &"--kernels", &"--json"]);
    let sets = report["instruction_sets"].as_array().unwrap();
    let chosen: Vec<&Value> = sets.iter().filter(|s| s["chosen"] == true).collect();
    assert_eq!(chosen.len(), 1, "{report}");
    assert_eq!(chosen[0]["found"], true);
    assert_eq!(sets.last().unwrap()["name"], "portable");
    let text = stdout(&russet(&[&"inspect", &"--kernels"]));
    let name = chosen[0]["name"].as_str().unwrap();
    assert!(
        text.lines()
            .any(|l| l.contains(name) && l.contains("chosen")),
        "{text}"
    );
}

#[test]
fn wrong_usage_is_told_as_such() {
    let model = fixture(MODEL);
    let wrong: [&[&dyn AsRef<std::ffi::OsStr>]; 4] = [
        &[&"inspect"],
        &[&"inspect", &model, &"--profile"],
        &[&"inspect", &model, &"--plan", &"--text"],
        &[&"inspect", &model, &"--plan", &"--tokens", &"0"],
    ];
    for args in wrong {
        assert_eq!(russet(args).status.code(), Some(2));
    }
}

/// A process with fewer CPUs than threads gets as far as one with as many, in about the time.
#[test]
fn more_threads_than_cpus_give_the_same_plan() {
    let steps = |threads: &str| {
        let plan = json(&[
            &"inspect",
            &fixture(MODEL),
            &"--plan",
            &"--profile",
            &"--json",
            &"--threads",
            &threads,
        ]);
        assert_eq!(plan["threads"].to_string(), threads);
        plan["steps"].as_array().unwrap().len()
    };
    assert_eq!(steps("1"), steps("8"));
}
