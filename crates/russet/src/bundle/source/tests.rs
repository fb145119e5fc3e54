//! Archives as bytes: whole ones are read, hostile ones are refused with the entry's name and without much memory.

use std::io::{Cursor, Write};
use std::sync::Arc;

use zip::write::{SimpleFileOptions, ZipWriter};
use zip::{CompressionMethod, DateTime};

use super::tree::normal;
use super::*;
use crate::bundle::BundleError;

const TEXT: &[u8] = b"some text, some text, some text, some text";

fn stored() -> SimpleFileOptions {
    SimpleFileOptions::default()
        .compression_method(CompressionMethod::Stored)
        .last_modified_time(DateTime::default())
}

fn packed() -> SimpleFileOptions {
    stored().compression_method(CompressionMethod::Deflated)
}

/// An archive of these files.
fn zip(files: &[(&str, SimpleFileOptions, &[u8])]) -> Vec<u8> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, options, bytes) in files {
        writer.start_file(*name, *options).unwrap();
        writer.write_all(bytes).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

fn open(bytes: Vec<u8>) -> Result<ArchiveSource, BundleError> {
    ArchiveSource::from_bytes("b.zip", bytes)
}

#[test]
fn files_are_found_listed_and_read() {
    let archive = open(zip(&[
        ("metadata.json", stored(), b"{}"),
        ("m.aimodel/main.mlirb", stored().with_alignment(64), TEXT),
        ("tokenizer/tokenizer.json", packed(), TEXT),
    ]))
    .unwrap();
    assert_eq!(archive.location(), Path::new("b.zip"));
    assert_eq!(
        archive.list("").unwrap(),
        ["m.aimodel", "metadata.json", "tokenizer"]
    );
    assert_eq!(archive.list("tokenizer").unwrap(), ["tokenizer.json"]);
    assert!(archive.list("nowhere").unwrap().is_empty());
    assert_eq!(archive.find("tokenizer"), Some(Entry::Folder));
    assert_eq!(
        archive.find("./tokenizer/tokenizer.json"),
        Some(Entry::File(42))
    );
    assert_eq!(archive.find("tokeni"), None);
    assert_eq!(archive.read("tokenizer/tokenizer.json").unwrap(), TEXT);
    assert_eq!(&archive.map("tokenizer/tokenizer.json").unwrap()[..], TEXT);
    let error = archive.read("tokenizer").unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
}

#[test]
fn stored_entries_are_used_in_place_where_they_are_aligned() {
    let files = [
        ("a", stored().with_alignment(64), TEXT),
        ("b", stored(), TEXT),
        ("c", packed(), TEXT),
    ];
    let archive: Arc<dyn AsRef<[u8]> + Send + Sync> = {
        let bytes = zip(&files);
        let mut buffer = AlignedBuf::with_len(bytes.len()).unwrap();
        buffer.as_bytes_mut().copy_from_slice(&bytes);
        Arc::new(buffer)
    };
    let whole = (*archive).as_ref().as_ptr_range();
    let source = ArchiveSource::from_bytes("b.zip", SharedBytes::new(archive.clone())).unwrap();
    let place = |name: &str| {
        let bytes = source.map(name).unwrap();
        assert_eq!(&bytes[..], TEXT);
        assert!(is_aligned(&bytes), "{name}");
        whole.contains(&bytes.as_ptr())
    };
    assert!(place("a"), "no copy");
    assert!(!place("c"), "unpacked");
    let at = (*archive)
        .as_ref()
        .windows(TEXT.len())
        .rposition(|w| w == TEXT);
    assert_eq!(place("b"), at.unwrap().is_multiple_of(WEIGHT_ALIGNMENT));
}

#[test]
fn a_bundle_lies_at_the_root_or_in_the_only_folder() {
    let inner = [
        ("demo/metadata.json", stored(), TEXT),
        ("demo/tokenizer/t", stored(), TEXT),
    ];
    let mut with_extras = inner.to_vec();
    with_extras.push(("__MACOSX/demo/._metadata.json", packed(), TEXT));
    with_extras.push((".DS_Store", packed(), TEXT));
    for files in [inner.to_vec(), with_extras] {
        let archive = open(zip(&files)).unwrap();
        assert_eq!(archive.location(), Path::new("b.zip/demo"));
        assert_eq!(archive.list("").unwrap(), ["metadata.json", "tokenizer"]);
        assert_eq!(archive.read("metadata.json").unwrap(), TEXT);
    }
    let two = open(zip(&[("a/x", stored(), TEXT), ("b/x", stored(), TEXT)])).unwrap();
    assert_eq!(two.list("").unwrap(), ["a", "b"]);
}

#[test]
fn archives_of_the_64_bit_kind_are_read() {
    let archive = open(zip(&[
        ("a", stored().large_file(true), TEXT),
        ("b", packed().large_file(true), TEXT),
    ]))
    .unwrap();
    assert_eq!(archive.read("a").unwrap(), TEXT);
    assert_eq!(archive.read("b").unwrap(), TEXT);
}

/// Changes bytes of the directory's record number `record`, from `offset` on.
fn patch(mut zip: Vec<u8>, record: usize, offset: usize, bytes: &[u8]) -> Vec<u8> {
    let records = zip
        .windows(4)
        .enumerate()
        .filter(|(_, w)| *w == b"PK\x01\x02");
    let (at, _) = records.collect::<Vec<_>>()[record];
    zip[at + offset..at + offset + bytes.len()].copy_from_slice(bytes);
    zip
}

/// Replaces a name in both places where it stands.
fn renamed(zip: &[u8], from: &str, to: &str) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let mut zip = zip.to_vec();
    let places = zip
        .windows(from.len())
        .enumerate()
        .filter(|(_, w)| *w == from.as_bytes());
    for at in places.map(|(at, _)| at).collect::<Vec<_>>() {
        zip[at..at + to.len()].copy_from_slice(to.as_bytes());
    }
    zip
}

/// Offsets in a record of the directory.
const FLAGS: usize = 8;
const METHOD: usize = 10;
const PACKED: usize = 20;
const SIZE: usize = 24;
const ATTRIBUTES: usize = 38;
const PLACE: usize = 42;

fn mode(mode: u32) -> [u8; 4] {
    (mode << 16).to_le_bytes()
}

/// Archives whose frame or names are not sound.
fn misnamed() -> Vec<(Vec<u8>, &'static str)> {
    let one = zip(&[("file", stored(), TEXT)]);
    let two = zip(&[("file", stored(), TEXT), ("fold/x", stored(), TEXT)]);
    vec![
        (
            b"PK\x03\x04 and no more".to_vec(),
            "not a sound zip archive",
        ),
        (one[..one.len() - 8].to_vec(), "not a sound zip archive"),
        (
            renamed(&one, "file", "../f"),
            "\"../f\": its path leads outside (..)",
        ),
        (
            renamed(&one, "file", "/etc"),
            "\"/etc\": its path is absolute",
        ),
        (renamed(&one, "file", "c:\\x"), "backslash, colon"),
        (renamed(&one, "file", "a\0bc"), "control"),
        (renamed(&two, "fold/x", "./file"), "it is there twice"),
        (
            renamed(&two, "fold/x", "file/x"),
            "both a file and a folder",
        ),
    ]
}

/// Archives with an entry that is not sound.
fn misdeclared() -> Vec<(Vec<u8>, &'static str)> {
    let one = zip(&[("file", stored(), TEXT)]);
    let two = zip(&[("file", stored(), TEXT), ("fold/x", stored(), TEXT)]);
    let deflated = zip(&[("file", packed(), TEXT)]);
    let zeros = vec![0; MIN_ROOM_AND_MORE as usize];
    let bomb = zip(&[("file", packed(), &zeros)]);
    vec![
        (
            patch(one.clone(), 0, ATTRIBUTES, &mode(0o120_777)),
            "a link or a device",
        ),
        (
            patch(one.clone(), 0, ATTRIBUTES, &mode(0o010_644)),
            "a link or a device",
        ),
        (
            patch(one.clone(), 0, ATTRIBUTES, &mode(0o060_644)),
            "a link or a device",
        ),
        (patch(one.clone(), 0, FLAGS, &[1, 0]), "it is encrypted"),
        (
            patch(one.clone(), 0, METHOD, &[12, 0]),
            "only stored and deflated",
        ),
        (
            patch(one.clone(), 0, SIZE, &[7, 0, 0, 0]),
            "takes 42 bytes and should have 7",
        ),
        (patch(one.clone(), 0, PACKED, &[0, 1, 0, 0]), "\"file\""),
        (patch(two, 1, PLACE, &[0, 0, 0, 0]), "overlap"),
        (patch(one.clone(), 0, PLACE, &[3, 0, 0, 0]), "\"file\""),
        (
            patch(deflated, 0, SIZE, &[0, 0, 0, 0x70]),
            "more than 64 times as many",
        ),
        (bomb, "more than 64 times as many"),
    ]
}

#[test]
fn hostile_archives_are_refused() {
    for (bytes, expected) in misnamed().into_iter().chain(misdeclared()) {
        let error = open(bytes).expect_err(expected).to_string();
        assert!(
            error.starts_with("b.zip: ") && error.contains(expected),
            "{expected}: {error}"
        );
    }
}

/// Just above what any archive may unpack to.
const MIN_ROOM_AND_MORE: u64 = (1 << 26) + 1;

#[test]
fn two_entries_of_one_name_are_refused() {
    let two = zip(&[("aa", stored(), TEXT), ("ab", stored(), TEXT)]);
    let error = open(renamed(&two, "ab", "aa")).unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("two entries have the same name"),
        "{error}"
    );
}

#[test]
fn what_does_not_unpack_to_its_size_is_told_when_it_is_read() {
    let deflated = zip(&[("file", packed(), TEXT)]);
    let mut damaged = deflated.clone();
    let at = deflated.windows(4).position(|w| w == b"file").unwrap() + 6;
    damaged[at] ^= 0x55;
    for bytes in [
        patch(deflated.clone(), 0, SIZE, &[41, 0, 0, 0]),
        patch(deflated.clone(), 0, SIZE, &[43, 0, 0, 0]),
        patch(deflated, 0, 16, &[1, 2, 3, 4]),
        damaged,
    ] {
        let source = open(bytes).unwrap();
        for error in [
            source.read("file").unwrap_err(),
            source.map("file").unwrap_err(),
        ] {
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
            assert!(error.to_string().contains("\"file\": "), "{error}");
        }
    }
}

#[test]
fn names_have_one_meaning() {
    for (path, expected) in [
        ("a/b", Ok("a/b")),
        ("./a//b/", Ok("a/b")),
        ("", Ok("")),
        ("a/../b", Err(())),
        ("/a", Err(())),
        ("a\\b", Err(())),
        ("C:a", Err(())),
        ("a\nb", Err(())),
    ] {
        assert_eq!(
            normal(path).as_deref().map_err(|_| ()),
            expected,
            "{path:?}"
        );
    }
}

#[test]
fn memory_is_a_bundle_too() {
    let source = MemorySource::new("app")
        .with("tokenizer/tokenizer.json", TEXT)
        .unwrap()
        .with("a.b", vec![1, 2])
        .unwrap();
    assert_eq!(source.list("").unwrap(), ["a.b", "tokenizer"]);
    assert_eq!(source.find("a.b"), Some(Entry::File(2)));
    assert_eq!(source.read("./a.b").unwrap(), [1, 2]);
    let error = source.with("../x", TEXT).unwrap_err().to_string();
    assert_eq!(error, "app: entry \"../x\": its path leads outside (..)");
}

#[test]
fn pipes_and_devices_are_not_read() {
    let source = DirectorySource::new("/dev");
    assert_eq!(source.find("null"), Some(Entry::Special));
    assert!(source.read("zero").is_err() && source.map("zero").is_err());
}
