//! The files of a bundle, whatever they are for: half-written ones, leftovers, placeholders, too many bytes.

use super::descriptors::loose;
use super::finding::{self as rules, At, Findings};
use super::subject::Subject;
use crate::bundle::{BundleKind, DiffusionBundle, Faults, Layout};

/// How names of files end that are written aside and renamed when they are whole, and of editors' copies.
const LEFTOVERS: [&str; 11] = [
    ".part",
    ".partial",
    ".tmp",
    ".temp",
    ".incomplete",
    ".crdownload",
    ".download",
    ".swp",
    ".bak",
    ".orig",
    "~",
];

/// How names of files end that are never empty.
const FILLED: [&str; 8] = [
    ".json",
    ".mlirb",
    ".hash",
    ".jinja",
    ".npy",
    ".safetensors",
    ".model",
    ".txt",
];

/// What a Git LFS pointer begins with; it has at most this many bytes.
const POINTER: &[u8] = b"version https://git-lfs.github.com/spec/";
const POINTER_BYTES: u64 = 1024;

/// Files that are not what they seem.
pub(super) fn whole(subject: &Subject<'_>, findings: &mut Findings) -> Option<()> {
    for (path, bytes) in &subject.files {
        let ends = |list: &[&str]| list.iter().any(|end| path.ends_with(end));
        if ends(&LEFTOVERS) {
            findings.add(
                &rules::FILE_LEFTOVER,
                At::file(path),
                "left behind by a download, an export or an editor that did not finish",
                "see that the file it stands for is whole, and remove it",
            );
        } else if *bytes == 0 && ends(&FILLED) {
            findings.add(
                &rules::FILE_EMPTY,
                At::file(path),
                "the file is empty: writing it was cut off",
                "copy or export it again",
            );
        } else if is_pointer(subject, path, *bytes) {
            findings.add(
                &rules::FILE_POINTER,
                At::file(path),
                "a Git LFS pointer, not the file it points to",
                "run `git lfs pull` where the bundle came from, and copy it again",
            );
        }
    }
    for path in &subject.special {
        findings.add(
            &rules::FILE_SPECIAL,
            At::file(path),
            "a link that leads nowhere, a pipe or a device",
            "put the file itself in its place",
        );
    }
    Some(())
}

fn is_pointer(subject: &Subject<'_>, path: &str, bytes: u64) -> bool {
    let small = bytes <= POINTER_BYTES && bytes >= POINTER.len() as u64;
    small
        && subject
            .source
            .read(path)
            .is_ok_and(|b| b.starts_with(POINTER))
}

/// Assets that nothing names.
pub(super) fn unused(subject: &Subject<'_>, findings: &mut Findings) -> Option<()> {
    if subject.layout != Some(Layout::Bundle) {
        return None;
    }
    let model = subject.model.as_ref()?;
    let by_name: Vec<String> = match model.kind {
        BundleKind::Diffusion => {
            let found = DiffusionBundle::of(model.clone(), subject.source, &Faults::default());
            let components = found.map(|d| d.components).unwrap_or_default();
            components.into_iter().map(|(_, path)| path).collect()
        }
        _ => Vec::new(),
    };
    for name in loose(subject).iter().filter(|n| !by_name.contains(n)) {
        let bytes: u64 = subject.size(name);
        findings.add(
            &rules::ASSET_UNUSED,
            At::file(name),
            format!("the metadata does not name this asset ({bytes} bytes)"),
            "remove it, or give it a role in assets",
        );
    }
    Some(())
}

/// All bytes against the limit.
pub(super) fn size(subject: &Subject<'_>, findings: &mut Findings) -> Option<()> {
    let limit = subject.options.max_bytes?;
    let bytes = subject.size("");
    if bytes > limit {
        let largest = subject.files.iter().max_by_key(|(_, bytes)| bytes);
        let largest = largest.map_or(String::new(), |(path, n)| format!("; {path} alone has {n}"));
        findings.add(
            &rules::SIZE_LIMIT,
            At::file(""),
            format!("the files have {bytes} bytes, more than {limit}{largest}"),
            "see whether the weights are compressed as asked (a four-bit export is a quarter of a float16 one), or raise --max-bytes",
        );
    }
    Some(())
}
