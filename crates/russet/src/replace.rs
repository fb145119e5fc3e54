//! Giving a file its content in one step: it is written beside its place, brought to the disk and renamed. Whatever happens
//! half-way, the file is the old one or the new one.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

/// Replaces the file that a path leads to. What is no file (a pipe, a device) is written to.
///
/// # Errors
/// Those of writing; what was there before is then still there.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    match fs::canonicalize(path) {
        Ok(target) if !target.is_file() => fs::write(target, bytes),
        Ok(target) => replace_entry(&target, bytes),
        Err(_) => replace_entry(path, bytes),
    }
}

/// Replaces what has this name in its folder: a link becomes a file, and what it led to stays as it is.
///
/// # Errors
/// As for [`replace`].
pub(crate) fn replace_entry(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let part = beside(path)?;
    let done = write(&part, path, bytes).and_then(|()| fs::rename(&part, path));
    if done.is_err() {
        // The reason is told; that nothing is left to remove is one of the reasons there may be.
        let _ = fs::remove_file(&part);
        return done;
    }
    // The rename itself reaches the disk with its folder, where systems let folders be opened. It has happened in any case.
    let folder = path.parent().filter(|f| !f.as_os_str().is_empty());
    let _ = File::open(folder.unwrap_or(Path::new("."))).and_then(|f| f.sync_all());
    Ok(())
}

/// A name that no other process and no other call uses.
fn beside(path: &Path) -> io::Result<PathBuf> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    path.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    // Without the file's own name, which may be as long as names can be.
    Ok(path.with_file_name(format!(".russet-{}-{count}.part", process::id())))
}

/// Writes the new content with the permissions of the old.
fn write(part: &Path, old: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(part)?;
    if let Ok(metadata) = fs::metadata(old) {
        file.set_permissions(metadata.permissions())?;
    }
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_or_not_at_all() {
        let folder = std::env::temp_dir().join(format!("russet-replace-{}", process::id()));
        fs::create_dir_all(folder.join("directory")).unwrap();
        let file = folder.join("file");
        replace(&file, b"one").unwrap();
        replace(&file, b"two").unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"two");
        assert!(replace_entry(&folder.join("directory"), b"x").is_err());
        assert!(replace_entry(&folder.join("none/file"), b"x").is_err());
        let names = fs::read_dir(&folder).unwrap().count();
        assert_eq!(names, 2, "nothing is left beside them");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn links_are_followed_or_replaced() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let folder = std::env::temp_dir().join(format!("russet-replace-l-{}", process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (file, link) = (folder.join("file"), folder.join("link"));
        fs::write(&file, b"old").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        symlink(&file, &link).unwrap();
        replace(&link, b"new").unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"new");
        assert_eq!(
            fs::metadata(&file).unwrap().permissions().mode() & 0o777,
            0o640
        );
        replace_entry(&link, b"own").unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"new");
        assert_eq!(fs::read(&link).unwrap(), b"own");
        assert!(!fs::symlink_metadata(&link).unwrap().is_symlink());
        fs::remove_dir_all(&folder).unwrap();
    }
}
