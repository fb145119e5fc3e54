//! The command, folders for its files, and what it says.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{self, Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

/// The command that cargo built for these tests.
pub(crate) const RUSSET: &str = env!("CARGO_BIN_EXE_russet");

/// A file or folder of the repository's fixtures.
pub(crate) fn fixture(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fixtures")
        .join(path)
}

/// A folder of its own for a test, removed with this value.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("russet-it-{}-{count}", process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Names of what lies in it, hidden files too.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        let name = |e: fs::DirEntry| e.file_name().to_string_lossy().into_owned();
        let mut names: Vec<String> = entries.map(|e| name(e.unwrap())).collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs the command to its end.
pub(crate) fn russet(args: &[&dyn AsRef<OsStr>]) -> Output {
    let mut command = Command::new(RUSSET);
    for arg in args {
        command.arg(arg.as_ref());
    }
    command.output().unwrap()
}

/// What a command that succeeded has printed.
pub(crate) fn stdout(done: &Output) -> String {
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{}: {said}", done.status);
    String::from_utf8(done.stdout.clone()).unwrap()
}

/// What a command that failed with this exit code has said: one line, and nothing on standard output.
pub(crate) fn complaint(done: &Output, code: i32) -> String {
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(done.status.code(), Some(code), "{said}");
    assert!(done.stdout.is_empty(), "{:?}", done.stdout);
    assert!(
        said.starts_with("error: ") && said.trim_end().lines().count() == 1,
        "{said}"
    );
    said
}
