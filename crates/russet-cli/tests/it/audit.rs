//! `russet audit`, and bundles in archives.

use std::fs;
use std::io::{Cursor, Write};
use std::path::Path;

use serde_json::Value;
use zip::write::{SimpleFileOptions, ZipWriter};

use crate::tools::{Folder, complaint, fixture, russet, stdout};

const MODEL: &str = "lm/qwen3-4bit";

/// A copy of a fixture.
pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).unwrap()),
        }
    }
}

fn zip(folder: &Path, prefix: &str, writer: &mut ZipWriter<Cursor<Vec<u8>>>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = format!("{prefix}{}", path.file_name().unwrap().to_str().unwrap());
        if path.is_dir() {
            zip(&path, &format!("{name}/"), writer);
        } else {
            writer
                .start_file(name, SimpleFileOptions::default())
                .unwrap();
            writer.write_all(&fs::read(path).unwrap()).unwrap();
        }
    }
}

/// The fixture in an archive, in a folder.
fn archive(folder: &Folder) -> std::path::PathBuf {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    zip(&fixture(MODEL), "bundle/", &mut writer);
    let path = folder.join("model.zip");
    fs::write(&path, writer.finish().unwrap().into_inner()).unwrap();
    path
}

#[test]
fn a_sound_bundle_is_told_in_two_lines() {
    let text = stdout(&russet(&[&"audit", &fixture(MODEL)]));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert!(
        lines[0].contains("qwen3-4bit  (llm, ") && lines[1].starts_with("  nothing to mend: "),
        "{text}"
    );
    let text = stdout(&russet(&[&"audit", &fixture(MODEL), &"-v", &"--hash"]));
    assert!(
        text.contains("  weights  qwen3-4bit.aimodel: ") && text.contains("% i4"),
        "{text}"
    );
    for check in [
        "ok       metadata: ",
        "ok       digest: ",
        "ok       compression: ",
    ] {
        assert!(text.contains(check), "{check}: {text}");
    }
}

#[test]
fn errors_are_explained_and_counted_in_the_exit_code() {
    let folder = Folder::new();
    let bundle = folder.join("broken");
    copy(&fixture(MODEL), &bundle);
    fs::remove_file(bundle.join("tokenizer/tokenizer.json")).unwrap();
    let metadata = fs::read_to_string(bundle.join("metadata.json")).unwrap();
    fs::write(
        bundle.join("metadata.json"),
        metadata.replace("\"4bit\"", "\"2bit\""),
    )
    .unwrap();
    let done = russet(&[&"audit", &bundle, &"--max-bytes", &"1000"]);
    assert_eq!(done.status.code(), Some(1));
    let text = String::from_utf8(done.stdout).unwrap();
    for part in [
        "  error    metadata.json: compression  [compression-false]\n           2bit is declared",
        "  error    tokenizer/tokenizer.json  [tokenizer-missing]\n",
        "  error    the bundle  [size-limit]\n",
        "\n           mend: ",
        "\n  3 errors; ",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(
        text.lines()
            .all(|l| l.chars().count() <= 100 || l.contains(folder.join("").to_str().unwrap())),
        "{text}"
    );
    let done = russet(&[&"audit", &bundle, &"--json"]);
    assert_eq!(done.status.code(), Some(1));
    let json: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(json["findings"].as_array().unwrap().len(), 2);
    assert_eq!(json["findings"][0]["code"], "compression-false");
}

#[test]
fn warnings_alone_are_no_failure() {
    let text = stdout(&russet(&[&"audit", &fixture("lm/moe-4bit")]));
    assert!(
        text.contains("  warning  metadata.json: compression  [compression-partly]"),
        "{text}"
    );
    assert!(text.contains("\n  1 warning; "), "{text}");
}

#[test]
fn archives_and_bare_assets_are_audited_too() {
    let folder = Folder::new();
    let text = stdout(&russet(&[&"audit", &archive(&folder)]));
    assert!(text.contains("model.zip/bundle  (llm, "), "{text}");
    let text = stdout(&russet(&[&"audit", &fixture("ops/add/si16.aimodel")]));
    assert!(text.contains("[asset-bare]"), "{text}");
    fs::write(folder.join("x.gguf"), b"GGUF").unwrap();
    let said = complaint(&russet(&[&"audit", &folder.join("x.gguf")]), 1);
    assert!(said.contains("is no bundle"), "{said}");
    fs::write(folder.join("bad.zip"), b"PK").unwrap();
    let said = complaint(&russet(&[&"audit", &folder.join("bad.zip")]), 1);
    assert!(said.contains("bad.zip: not a sound zip archive"), "{said}");
}

/// Every command that takes a bundle takes an archive.
#[test]
fn an_archive_runs_like_a_folder() {
    let folder = Folder::new();
    let path = archive(&folder);
    let answer = |model: &Path| {
        stdout(&russet(&[
            &"run",
            &model,
            &"Hello",
            &"--temperature",
            &"0",
            &"--max-tokens",
            &"8",
        ]))
    };
    assert_eq!(answer(&path), answer(&fixture(MODEL)));
    let inspected = stdout(&russet(&[&"inspect", &path]));
    assert!(
        inspected.contains("model.zip/bundle/qwen3-4bit.aimodel\n"),
        "{inspected}"
    );
    let planned = stdout(&russet(&[&"inspect", &path, &"--plan"]));
    assert!(planned.contains("function main"), "{planned}");
}
