//! Every flag of `llm-runner` and `llm-benchmark` (contract F 1.10), and what `run` adds to them.

use std::fs;

use serde_json::Value;

use crate::tools::{Folder, complaint, fixture, russet, stdout};

/// `COMMAND turns/llama ARGUMENTS`, the model where a `@` stands.
fn said(line: &[&str]) -> std::process::Output {
    let model = fixture("turns/llama").display().to_string();
    let line: Vec<&str> = line
        .iter()
        .map(|a| if *a == "@" { &*model } else { a })
        .collect();
    let line: Vec<&dyn AsRef<std::ffi::OsStr>> = line.iter().map(|a| a as _).collect();
    russet(&line)
}

/// The answer to a prompt that every test asks.
fn answer(more: &[&str]) -> String {
    let start = [
        "run",
        "@",
        "hello",
        "--temperature",
        "0",
        "--max-tokens",
        "6",
    ];
    stdout(&said(&[&start, more].concat()))
}

#[test]
fn a_prompt_may_come_from_anywhere() {
    let plain = answer(&[]);
    let folder = Folder::new();
    let (text, tokens) = (folder.join("prompt.txt"), folder.join("tokens.json"));
    fs::write(&text, "hello").unwrap();
    let more = ["--temperature", "0", "--max-tokens", "6"];
    let from = |words: &[&str]| stdout(&said(&[&["run"], words, &more].concat()));
    assert_eq!(from(&["--model", "@", "hello"]), plain);
    assert_eq!(from(&["--model", "@", "--prompt", "hello"]), plain);
    assert_eq!(from(&["@", "--prompt-file", text.to_str().unwrap()]), plain);
    let raw = answer(&["--no-template"]);
    assert_eq!(answer(&["--apply-chat-template", "false"]), raw);
    let model =
        russet::Model::open(fixture("turns/llama"), &russet::OpenOptions::default()).unwrap();
    let hello = model.plain_prompt("hello").unwrap();
    fs::write(&tokens, format!("{{\"tokens\": {hello:?}}}")).unwrap();
    assert_eq!(from(&["@", "--raw-tokens", tokens.to_str().unwrap()]), raw);
    fs::write(&tokens, "[1, 2]").unwrap();
    let error = complaint(
        &said(&["run", "@", "--raw-tokens", tokens.to_str().unwrap()]),
        2,
    );
    assert!(error.contains("is not {\"tokens\": [1, 2, 3]}"), "{error}");
    fs::write(&tokens, "{\"tokens\": [9999]}").unwrap();
    let error = complaint(
        &said(&["run", "@", "--raw-tokens", tokens.to_str().unwrap()]),
        2,
    );
    assert!(
        error.contains("token 9999 is beyond the vocabulary of 320"),
        "{error}"
    );
    let error = complaint(&said(&["run", "@"]), 2);
    assert!(error.contains("there is no prompt"), "{error}");
    let error = complaint(&said(&["run", "@", "a", "--prompt", "b"]), 2);
    assert!(error.contains("there is more than one prompt"), "{error}");
}

#[test]
fn sampling_flags_do_what_they_say() {
    let plain = answer(&[]);
    let hot = [
        "run",
        "@",
        "hello",
        "--max-tokens",
        "6",
        "--temperature",
        "3",
    ];
    assert_eq!(
        stdout(&said(
            &[&hot[..], &["--sampling-strategy", "greedy"]].concat()
        )),
        plain
    );
    assert_eq!(answer(&["--synchronous-sampling"]), plain);
    assert_eq!(answer(&["--repetition-penalty", "1.0"]), plain);
}

#[test]
fn biases_ban_and_penalties_are_repeatable() {
    let plain = answer(&[]);
    // What was said first is banned: something else is said first.
    assert_eq!(answer(&["--print-logits"]), plain);
    let shown = said(&[
        "run",
        "@",
        "hello",
        "--temperature",
        "0",
        "--max-tokens",
        "1",
        "--print-logits",
    ]);
    let shown = String::from_utf8(shown.stderr).unwrap();
    let first = shown.split_whitespace().next().unwrap();
    let bias = format!("{first}=-inf");
    assert_ne!(answer(&["--logit-bias", &bias]), plain);
    for flags in [
        &[
            "--repetition-penalty",
            "1.5",
            "--repetition-penalty-window",
            "4",
        ][..],
        &[
            "--frequency-penalty",
            "2",
            "--presence-penalty",
            "-1",
            "--penalize-prompt",
            "false",
        ],
        &[
            "--top-k",
            "4",
            "--top-p",
            "0.9",
            "--min-p",
            "0.05",
            "--sampling-order",
            "llama-cpp",
            "--seed",
            "7",
        ],
    ] {
        assert_eq!(answer(flags), answer(flags), "{flags:?}");
    }
}

#[test]
fn what_is_out_of_range_is_an_error() {
    for (flags, message) in [
        (
            &["--repetition-penalty", "0.9"][..],
            "repetition penalty is 0.9, it must be 1 or more",
        ),
        (
            &["--frequency-penalty", "3"],
            "frequency penalty is 3, it must be from -2 to 2",
        ),
        (&["--top-p", "0"], "top-p is 0, it must be above 0"),
        (&["--logit-bias", "7=nan"], "logit bias is NaN"),
        (
            &["--sampling-strategy", "wild"],
            "there is no sampling strategy \"wild\"; there are temperature, greedy",
        ),
        (&["--logit-bias", "hello there=1"], "tokens, not one"),
        (&["--image", "cat.png"], "--image: llama has no vision part"),
        (&["--video", "cat.mov"], "--video: llama has no vision part"),
        (
            &["--continuation", "x"],
            "--continuation: the prompt must be given as it is",
        ),
        (
            &["--continuation", "x", "--no-template"],
            "--continuation: say where the probabilities go",
        ),
    ] {
        let error = complaint(&said(&[&["run", "@", "hello"], flags].concat()), 2);
        assert!(error.contains(message), "{flags:?}: {error}");
    }
    // Wrong by themselves: clap tells how to write them.
    for flags in [
        &["--repetition-penalty-window", "4"][..],
        &["--warmup", "exact"],
        &["--warmup", "often"],
        &["--image", "a", "--video", "b"],
        &["--save-logits-length", "21"],
        &["--image-strategy", "pad"],
    ] {
        let done = said(&[&["run", "@", "hello"], flags].concat());
        assert_eq!(done.status.code(), Some(2), "{flags:?}");
        assert!(done.stdout.is_empty() && !done.stderr.is_empty());
    }
}

#[test]
fn stop_tokens_are_tokens_or_texts() {
    let plain = answer(&[]);
    let text = plain.trim_end();
    let stop: String = text.chars().skip(2).take(3).collect();
    let cut = answer(&["--stop-tokens", &stop, "--stop-tokens", "<|endoftext|>"]);
    let expected = &text[..text.find(&stop).unwrap()];
    assert_eq!(cut.trim_end_matches('\n'), expected.trim_end_matches('\n'));
}

#[test]
fn flags_without_effect_say_so_and_the_answer_is_the_same() {
    let plain = answer(&[]);
    let flags = [
        "--bucket-size",
        "64",
        "--clear-coreai-cache",
        "--warmup",
        "exact",
        "--warmup-length",
        "3",
        "--image-info",
        "off",
    ];
    let line = [
        &[
            "run",
            "@",
            "hello",
            "--temperature",
            "0",
            "--max-tokens",
            "6",
        ],
        &flags[..],
    ]
    .concat();
    let done = said(&line);
    assert_eq!(stdout(&done), plain);
    let notes = String::from_utf8_lossy(&done.stderr).into_owned();
    for flag in ["--bucket-size", "--clear-coreai-cache"] {
        assert!(
            notes.contains(&format!("note: {flag} has no effect here")),
            "{notes}"
        );
    }
    assert_eq!(answer(&["--warmup", "off", "--verbose-level", "0"]), plain);
    assert_eq!(
        answer(&["--chunk-size", "4", "--chunk-threshold", "5"]),
        plain
    );
    let loud = said(
        &[&[
            "run",
            "@",
            "hello",
            "--max-tokens",
            "1",
            "--verbose-level",
            "1",
        ][..]]
        .concat(),
    );
    assert!(String::from_utf8_lossy(&loud.stderr).contains("tokens/s"));
}

#[test]
fn logits_are_printed_and_written() {
    let folder = Folder::new();
    let file = folder.join("logits.json");
    let path = file.to_str().unwrap();
    let read = || serde_json::from_str::<Value>(&fs::read_to_string(&file).unwrap()).unwrap();
    answer(&["--save-logits", path]);
    let json = read();
    let tokens = json["tokens"].as_array().unwrap();
    assert_eq!(
        (
            tokens.len(),
            tokens[0]["top_logits"].as_array().unwrap().len()
        ),
        (6, 5)
    );
    answer(&["--save-logits", path, "--save-logits-length", "full"]);
    assert!(read()["tokens"][5]["logits_base64"].as_str().unwrap().len() > 800);
    let judged = [
        "run",
        "@",
        "the quick",
        "--no-template",
        "--continuation",
        " brown fox",
        "--print-logits",
        "--save-logits",
        path,
    ];
    let text = stdout(&said(&judged));
    assert!(
        text.contains("log-probability") && text.contains("perplexity"),
        "{text}"
    );
    let json = read();
    assert_eq!(
        (&json["context"], &json["continuation"]),
        (&"the quick".into(), &" brown fox".into())
    );
    let places = json["positions"].as_array().unwrap();
    assert_eq!(
        places.len(),
        json["continuation_tokens"].as_array().unwrap().len()
    );
    let sum: f64 = places
        .iter()
        .map(|p| p["target_log_prob"].as_f64().unwrap())
        .sum();
    assert!((sum - json["total_log_probability"].as_f64().unwrap()).abs() < 1e-9);
}

#[test]
fn benchmark_flags_are_those_of_the_public_tool() {
    let folder = Folder::new();
    let file = folder.join("bench.json");
    let small = ["-p", "4", "-g", "3", "-n", "2", "--seed", "3"];
    let more = [
        "--output-json",
        file.to_str().unwrap(),
        "--clear-coreai-cache",
    ];
    let done = said(&[&["bench", "--model", "@"], &small[..], &more].concat());
    assert!(stdout(&done).contains("generation"));
    assert!(
        String::from_utf8_lossy(&done.stderr).contains("--clear-coreai-cache has no effect here")
    );
    let json: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    for key in ["prepare_seconds", "warmup_seconds", "average_gen_tps"] {
        assert!(json[key].as_f64().unwrap() > 0.0, "{key}");
    }
    assert_eq!(json["cache_hit"], false);
    let times = ["p50", "p90", "p99"].map(|p| json["token_seconds"][p].as_f64().unwrap());
    assert!(times[0] > 0.0 && times.is_sorted());
    let pair = stdout(&said(
        &[&["bench", "--compare", "@", "@", "--json"], &small[..]].concat(),
    ));
    let pair: Value = serde_json::from_str(&pair).unwrap();
    assert!(pair["gen_ratio"]["median"].as_f64().unwrap() > 0.0);
}

#[test]
fn a_schema_a_cache_and_pictures_are_taken_too() {
    let line = [
        "run",
        "@",
        "hello",
        "--temperature",
        "0",
        "--max-tokens",
        "40",
        "--json-schema",
        "{\"enum\": [\"yes\", \"no\"]}",
    ];
    let said_json: Value = serde_json::from_str(&stdout(&said(&line))).unwrap();
    assert!(said_json == "yes" || said_json == "no", "{said_json}");
    assert_eq!(answer(&["--kv-cache-initial-capacity", "16"]), answer(&[]));
    let film = [
        "--video",
        "a.mov",
        "--video-frames",
        "4",
        "--video-sampling",
        "fps",
    ];
    let error = complaint(&said(&[&["run", "@", "hello"], &film[..]].concat()), 2);
    assert!(
        error.contains("--video: llama has no vision part"),
        "{error}"
    );
    let image = ["--image", "a.png", "--image-strategy", "center_crop"];
    let error = complaint(&said(&[&["run", "@", "hello"], &image[..]].concat()), 2);
    assert!(
        error.contains("--image: llama has no vision part"),
        "{error}"
    );
}
