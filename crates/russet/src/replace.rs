//! Files that are replaced whole or not at all.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

/// Gives a file its content in one step: it is written beside it, to the disk, and renamed. Whatever interrupts that, what was there
/// before is still there. What is no file (a pipe, a device) is written to.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let target = match fs::canonicalize(path) {
        Ok(target) if !target.is_file() => return fs::write(target, bytes),
        Ok(target) => target,
        Err(_) => path.into(),
    };
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let part = target.with_file_name(format!(".russet-{}-{count}.part", process::id()));
    let done = write(&part, bytes).and_then(|()| fs::rename(&part, &target));
    if done.is_err() {
        // The reason is told; that nothing is left to remove is one of the reasons there may be.
        let _ = fs::remove_file(&part);
    }
    done
}

/// Writes a new file; returns when the disk has it.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}
