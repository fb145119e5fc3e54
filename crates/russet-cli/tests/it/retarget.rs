//! `russet retarget`: what changes, what stays, and what happens half-way.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::audit::copy;
use crate::tools::{Folder, RUSSET, complaint, fixture, russet, stdout};

/// A copy of a bundle with a compiled asset beside its own, and metadata that no writer of ours would write.
fn bundle(folder: &Folder) -> PathBuf {
    let path = folder.join("bundle");
    copy(&fixture("lm/qwen3-4bit"), &path);
    fs::create_dir(path.join("m.h18p.aimodelc")).unwrap();
    fs::write(path.join("metadata.json"), METADATA).unwrap();
    path
}

const METADATA: &str = r#"{
    "metadata_version": "0.2", "kind": "llm",
    "name": "\u00e9t\u00e9",   "mine": {"pi": 3.140, "big": 123456789012345678901234567890, "e": 1E+2, "twice": 1, "twice": 2},
    "assets": {
        "main": "qwen3-4bit.aimodel"
    },
    "language": {"tokenizer": "t", "vocab_size": 320, "max_context_length": 256},
    "compilation": {"targets": [], "date": "2026-11-30T00:00:00+00:00"}
}
"#;

fn metadata(bundle: &std::path::Path) -> String {
    fs::read_to_string(bundle.join("metadata.json")).unwrap()
}

#[test]
fn all_but_the_changed_places_stay_byte_for_byte() {
    let folder = Folder::new();
    let bundle = bundle(&folder);
    stdout(&russet(&[
        &"retarget",
        &bundle,
        &"--asset",
        &"main=m.h18p.aimodelc",
    ]));
    let expected = METADATA
        .replace(
            "\"main\": \"qwen3-4bit.aimodel\"",
            "\"main\": \"m.h18p.aimodelc\"",
        )
        .replace(
            "\"targets\": []",
            "\"targets\": [\n        \"m.h18p.aimodelc\"\n    ]",
        );
    assert_eq!(metadata(&bundle), expected);
    let done = russet(&[&"retarget", &bundle, &"--asset", &"main=m.h18p.aimodelc"]);
    assert!(done.status.success());
    assert_eq!(
        String::from_utf8(done.stderr).unwrap(),
        "nothing to change\n"
    );
    stdout(&russet(&[
        &"retarget",
        &bundle,
        &"--asset",
        &"main=qwen3-4bit.aimodel",
    ]));
    assert!(
        metadata(&bundle).contains("\"m.h18p.aimodelc\",\n        \"qwen3-4bit.aimodel\"\n"),
        "{}",
        metadata(&bundle)
    );
    assert_eq!(
        fs::read_dir(&bundle).unwrap().count(),
        4,
        "nothing is left beside it"
    );
}

#[test]
fn a_dry_run_prints_the_lines_that_would_change() {
    let folder = Folder::new();
    let bundle = bundle(&folder);
    let text = stdout(&russet(&[
        &"retarget",
        &bundle,
        &"--asset",
        &"main=m.h18p.aimodelc",
        &"--dry-run",
    ]));
    assert_eq!(metadata(&bundle), METADATA);
    let changed: Vec<&str> = text.lines().filter(|l| !l.starts_with(' ')).collect();
    assert_eq!(
        changed[..2],
        [
            "-        \"main\": \"qwen3-4bit.aimodel\"",
            "+        \"main\": \"m.h18p.aimodelc\""
        ]
    );
    assert!(
        !text.contains("max_context_length\": 256},\n-") || text.contains("targets"),
        "{text}"
    );
    assert!(
        !text.contains("\"name\""),
        "only what is near a change: {text}"
    );
}

#[test]
fn roles_and_files_that_are_not_there_are_refused() {
    let folder = Folder::new();
    let bundle = bundle(&folder);
    for (asset, part) in [
        ("man=m.h18p.aimodelc", "no asset \"man\" (it has main)"),
        ("main=none.aimodel", "none.aimodel is not there"),
        ("main=../m.aimodel", "is outside the bundle"),
        ("main=/etc/passwd", "is outside the bundle"),
    ] {
        let said = complaint(&russet(&[&"retarget", &bundle, &"--asset", &asset]), 1);
        assert!(said.contains(part), "{said}");
    }
    assert_eq!(metadata(&bundle), METADATA);
    for wrong in [
        &["retarget"][..],
        &["retarget", "x"],
        &["retarget", "x", "--asset", "main"],
    ] {
        let args: Vec<&dyn AsRef<std::ffi::OsStr>> = wrong.iter().map(|a| a as _).collect();
        assert_eq!(russet(&args).status.code(), Some(2));
    }
    stdout(&russet(&[
        &"retarget",
        &bundle,
        &"--asset",
        &"draft=d.aimodel",
        &"--force",
    ]));
    assert!(
        metadata(&bundle)
            .contains("\"main\": \"qwen3-4bit.aimodel\",\n        \"draft\": \"d.aimodel\"\n")
    );
}

/// No byte can be written, as on a full disk: by a limit on the size of files, of which the process is told (`SIGXFSZ` ignored)
/// or by which it is killed.
#[cfg(unix)]
#[test]
fn a_write_that_fails_leaves_the_old_file_whole() {
    let folder = Folder::new();
    let bundle = bundle(&folder);
    for (signal, left) in [("trap '' XFSZ;", 4), ("", 5)] {
        let script = format!(
            "{signal} ulimit -c 0; ulimit -f 0; exec \"$0\" retarget \"$1\" --asset main=m.h18p.aimodelc"
        );
        let done = Command::new("sh")
            .args(["-c", &script, RUSSET])
            .arg(&bundle)
            .output()
            .unwrap();
        assert!(!done.status.success(), "{signal}");
        assert_eq!(metadata(&bundle), METADATA);
        if left == 4 {
            let said = String::from_utf8_lossy(&done.stderr).into_owned();
            assert!(
                said.contains("cannot write") && said.contains("metadata.json"),
                "{said}"
            );
        }
        assert_eq!(fs::read_dir(&bundle).unwrap().count(), left, "{signal}");
    }
    let text = String::from_utf8(russet(&[&"audit", &bundle]).stdout).unwrap();
    assert!(
        text.contains("[file-leftover]"),
        "what a killed process leaves is found: {text}"
    );
}
