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
