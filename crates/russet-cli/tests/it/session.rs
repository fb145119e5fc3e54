//! Conversations that are kept in a file, and the flags of engines and caches.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use crate::tools::{Folder, RUSSET, complaint, fixture, russet, stdout};

const MODEL: &str = "turns/llama";

/// The arguments of `run` that a conversation in `file` goes on with.
fn arguments(file: &Path, text: &str) -> Vec<String> {
    let model = fixture(MODEL).display().to_string();
    let file = file.display().to_string();
    let more = [
        "--temperature",
        "0",
        "--max-tokens",
        "8",
        "--threads",
        "1",
        "-v",
    ];
    let mut all = vec![
        "run".to_owned(),
        model,
        text.to_owned(),
        "--session".into(),
        file,
    ];
    all.extend(more.map(str::to_owned));
    all
}

fn said(file: &Path, text: &str) -> (String, String) {
    let done = Command::new(RUSSET)
        .args(arguments(file, text))
        .output()
        .unwrap();
    let figures = String::from_utf8_lossy(&done.stderr).into_owned();
    (stdout(&done), figures)
}

#[test]
fn a_conversation_goes_on_in_another_process() {
    let folder = Folder::new();
    let file = folder.join("talk.session");
    let (_, figures) = said(&file, "hello");
    assert!(figures.contains("(0 reused)"), "{figures}");
    let (second, figures) = said(&file, "and on");
    assert!(figures.contains("2 messages and"), "{figures}");
    assert!(!figures.contains("(0 reused)"), "{figures}");
    // The same two turns in one process.
    let lines = "hello\nand on\n";
    let mut chat = Command::new(RUSSET)
        .arg("chat")
        .arg(fixture(MODEL))
        .args(["--temperature", "0", "--max-tokens", "8", "--threads", "1"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut chat.stdin.take().unwrap(), lines.as_bytes()).unwrap();
    let both = stdout(&chat.wait_with_output().unwrap());
    assert!(both.ends_with(&second), "{both:?} {second:?}");
}

#[test]
fn a_save_that_is_killed_leaves_the_old_file_whole() {
    let folder = Folder::new();
    let file = folder.join("talk.session");
    said(&file, "hello");
    let whole = fs::read(&file).unwrap();
    for delay in 0..25 {
        let mut child = Command::new(RUSSET)
            .args(arguments(&file, "and on"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        sleep(Duration::from_millis(4 * delay));
        child.kill().unwrap();
        child.wait().unwrap();
        let now = fs::read(&file).unwrap();
        if now != whole {
            // It was done: the new file is as whole as the old one was.
            said(&file, "still there?");
            fs::write(&file, &whole).unwrap();
        }
    }
    let (_, figures) = said(&file, "the last");
    assert!(!figures.contains("(0 reused)"), "{figures}");
}

#[cfg(unix)]
#[test]
fn a_save_that_finds_no_room_leaves_the_old_file_whole() {
    let folder = Folder::new();
    let file = folder.join("talk.session");
    said(&file, "hello");
    let whole = fs::read(&file).unwrap();
    // A limit on the length of files stands for a disk that is full.
    let line = format!("trap '' XFSZ; ulimit -f 4; exec {RUSSET} \"$@\"");
    let done = Command::new("sh")
        .args(["-c", &line, "sh"])
        .args(arguments(&file, "and on"))
        .output()
        .unwrap();
    assert!(!done.status.success());
    let error = String::from_utf8_lossy(&done.stderr);
    assert!(error.contains("talk.session"), "{error}");
    assert_eq!(fs::read(&file).unwrap(), whole);
    assert_eq!(
        folder.names(),
        ["talk.session"],
        "nothing is left beside it"
    );
}

#[test]
fn what_is_no_session_is_refused() {
    let folder = Folder::new();
    let file = folder.join("talk.session");
    fs::write(&file, "hello").unwrap();
    let done = Command::new(RUSSET)
        .args(&arguments(&file, "and on")[..5])
        .output()
        .unwrap();
    let error = complaint(&done, 1);
    assert!(error.contains("talk.session"), "{error}");
    assert_eq!(fs::read(&file).unwrap(), b"hello");
}

/// Contract B §10.2, 6: a strategy that does not exist, or that the model cannot follow, is never taken for another.
#[test]
fn silent_failure_6_a_cache_strategy_is_followed_or_refused() {
    let closed = fixture("lm/llama");
    let open = fixture(MODEL);
    let run = |model: &Path, flags: &[&str]| {
        let model = model.display().to_string();
        let mut args: Vec<&dyn AsRef<std::ffi::OsStr>> =
            vec![&"run", &model, &"hi", &"--max-tokens", &"2"];
        args.extend(flags.iter().map(|f| f as &dyn AsRef<std::ffi::OsStr>));
        russet(&args)
    };
    let error = complaint(&run(&open, &["--kv-cache-strategy", "chunky"]), 2);
    assert!(
        error.contains("auto, growing, fixed_size, chunked"),
        "{error}"
    );
    let error = complaint(&run(&closed, &["--kv-cache-strategy", "growing"]), 1);
    assert!(
        error.contains("'growing' cannot be used") && error.contains("fixed_size"),
        "{error}"
    );
    let error = complaint(
        &run(
            &open,
            &["--kv-cache-strategy", "chunked", "--max-context", "3"],
        ),
        1,
    );
    assert!(error.contains("attention sinks"), "{error}");
    for strategy in ["auto", "growing", "fixed_size", "chunked"] {
        stdout(&run(&open, &["--kv-cache-strategy", strategy]));
    }
}

#[test]
fn engines_are_chosen_by_name() {
    let run = |model: &str, engine: &str| {
        let model = fixture(model);
        russet(&[
            &"run",
            &model,
            &"hi",
            &"--max-tokens",
            &"2",
            &"--inference-engine-variant",
            &engine,
        ])
    };
    let error = complaint(&run(MODEL, "ane"), 2);
    assert!(
        error.contains("Valid: auto, coreai-sequential, coreai-pipelined, static-shape"),
        "{error}"
    );
    let error = complaint(&run(MODEL, "static-shape"), 1);
    assert!(error.contains("requires chunked static model"), "{error}");
    let error = complaint(&run("static/static", "coreai-pipelined"), 1);
    assert!(error.contains("requires dynamic model"), "{error}");
    for (model, engine) in [
        (MODEL, "coreai-sequential"),
        (MODEL, "coreai-pipelined"),
        ("static/static", "static-shape"),
        ("static/static", "default"),
    ] {
        stdout(&run(model, engine));
    }
}

/// `chat` with these lines and more arguments.
fn chat(lines: &str, more: &[&str]) -> std::process::Output {
    let mut child = Command::new(RUSSET)
        .arg("chat")
        .arg(fixture(MODEL))
        .args(["--temperature", "0", "--max-tokens", "8", "--threads", "1"])
        .args(more)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), lines.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn an_answer_that_fails_does_not_end_a_conversation() {
    let folder = Folder::new();
    let file = folder.join("talk.session").display().to_string();
    let long = "x".repeat(700);
    let done = chat(&format!("hello\n{long}\nand on\n"), &["--session", &file]);
    let complaints = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(complaints.contains("the context is full"), "{complaints}");
    let answers = stdout(&done);
    // The same without the line that failed.
    let other = folder.join("other.session").display().to_string();
    assert_eq!(
        answers,
        stdout(&chat("hello\nand on\n", &["--session", &other]))
    );
    let length = |file: &str| fs::metadata(file).unwrap().len();
    assert_eq!(length(&file), length(&other));
}

#[test]
fn a_conversation_moves_to_other_caches() {
    let folder = Folder::new();
    let lines = [
        "how are you today",
        "tell me more of it",
        "and what then",
        "go on",
    ];
    let window = [
        "--kv-cache-strategy",
        "chunked",
        "--max-context",
        "65",
        "--attention-sinks",
    ];
    let with = |sinks: &'static str| [&window[..], &[sinks]].concat();
    let (four, five) = (with("4"), with("5"));
    let two: [&[&str]; 2] = [&four, &five];
    let talk = |flags: [&[&str]; 2], name: &str| {
        let file = folder.join(name).display().to_string();
        let said = |lines: &[&str], flags: &[&str]| {
            let flags = [flags, &["--session", &file]].concat();
            stdout(&chat(&format!("{}\n", lines.join("\n")), &flags))
        };
        said(&lines[..3], flags[0]);
        said(&lines[3..], flags[1])
    };
    // What is held under other flags follows from the tokens, which are those of the flags before.
    let moved = talk(two, "moved");
    let stayed = talk([&four, &four], "stayed");
    assert_ne!(moved, "");
    assert_ne!(stayed, "");
    let others: [[&[&str]; 2]; 3] = [
        [&four, &[]],
        [&[], &four],
        [&[], &["--kv-cache-type", "int8"]],
    ];
    for (i, flags) in others.into_iter().enumerate() {
        assert_ne!(talk(flags, &format!("other{i}")), "");
    }
}

#[test]
fn a_place_that_cannot_be_is_told_before_anything_is_computed() {
    let folder = Folder::new();
    let long = folder.join(&"n".repeat(256));
    for file in [folder.join("none/talk"), long] {
        let done = Command::new(RUSSET)
            .args(arguments(&file, "hello"))
            .output()
            .unwrap();
        assert_eq!(done.status.code(), Some(1));
        assert!(done.stdout.is_empty());
    }
    let empty = folder.join("empty");
    fs::write(&empty, "").unwrap();
    said(&empty, "an empty file is a new conversation");
    assert!(fs::read(&empty).unwrap().len() > 100);
}
