//! One bundle from a folder, from archives and from memory: the same model.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use russet::bundle::{ArchiveSource, MemorySource, Source};
use russet::{GenerateOptions, Model, ModelSource, OpenOptions};
use zip::CompressionMethod;
use zip::write::{SimpleFileOptions, ZipWriter};

const NAME: &str = "qwen3-4bit";

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fixtures/lm")
        .join(NAME)
}

/// Every file of a folder by its path in it.
fn files(folder: &Path, prefix: &str, found: &mut Vec<(String, Vec<u8>)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = format!("{prefix}{}", entry.file_name().to_str().unwrap());
        match entry.file_type().unwrap().is_dir() {
            true => files(&entry.path(), &format!("{name}/"), found),
            false => found.push((name, fs::read(entry.path()).unwrap())),
        }
    }
}

fn all_files() -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    files(&fixture(), "", &mut found);
    assert_eq!(found.len(), 6);
    found
}

fn zip(prefix: &str, method: CompressionMethod, alignment: u16) -> Vec<u8> {
    let mut writer = ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default()
        .compression_method(method)
        .with_alignment(alignment);
    for (name, bytes) in all_files() {
        writer
            .start_file(format!("{prefix}{name}"), options)
            .unwrap();
        writer.write_all(&bytes).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

fn answer(model: &Model) -> Vec<u32> {
    let mut chat = model.session().unwrap();
    let mut options = GenerateOptions::default();
    options.max_tokens = Some(12);
    options.sampling.temperature = 0.0;
    chat.send("Hello there", &options, &mut |_| {})
        .unwrap()
        .tokens
}

#[test]
fn the_same_model_from_every_source() {
    let options = OpenOptions::default();
    let folder = Model::open(fixture(), &options).unwrap();
    let expected = answer(&folder);
    assert!(!expected.is_empty());
    let memory = all_files()
        .into_iter()
        .fold(MemorySource::new("memory"), |s, (name, bytes)| {
            s.with(&name, bytes).unwrap()
        });
    let archive = |prefix, method, alignment| {
        ArchiveSource::from_bytes("b.zip", zip(prefix, method, alignment)).unwrap()
    };
    let sources: [Box<dyn Source>; 4] = [
        Box::new(memory),
        Box::new(archive("", CompressionMethod::Stored, 64)),
        Box::new(archive("folder/", CompressionMethod::Stored, 1)),
        Box::new(archive("folder/", CompressionMethod::Deflated, 1)),
    ];
    for source in sources {
        let model = Model::open_source(&*source, &options).unwrap();
        assert_eq!(
            (model.name(), model.stop_tokens()),
            (NAME, folder.stop_tokens())
        );
        assert_eq!(answer(&model), expected, "{}", source.location().display());
    }
}

#[test]
fn an_archive_is_known_by_its_name_or_its_first_bytes() {
    let folder = std::env::temp_dir().join(format!("russet-sources-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    for name in ["bundle.zip", "bundle.bin"] {
        let path = folder.join(name);
        fs::write(&path, zip("", CompressionMethod::Stored, 64)).unwrap();
        let model = Model::open(&path, &OpenOptions::default()).unwrap();
        assert_eq!(model.source(), ModelSource::Archive);
        assert!(!answer(&model).is_empty());
    }
    let empty = folder.join("empty.zip");
    fs::write(&empty, b"").unwrap();
    let error = Model::open(&empty, &OpenOptions::default()).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("empty.zip: not a sound zip archive"),
        "{error}"
    );
    fs::remove_dir_all(&folder).unwrap();
}
