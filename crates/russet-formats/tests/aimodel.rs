//! Reading Core AI assets: small ones with every kind of record, a language model, and damaged copies of both.
#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use russet_formats::aimodel::bytecode::Container;
use russet_formats::aimodel::{
    AimodelAsset, AssetError, HASH, METADATA, PROGRAM, Problem, ReadError, Section,
};
use russet_graph::graph::{Module, Storage};
use russet_graph::types::{DType, Type};
use russet_graph::{text, verify};
use russet_kernels::mem::SharedBytes;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures")
}

fn assets() -> Vec<PathBuf> {
    let listing = fs::read_dir(fixtures().join("aimodel")).unwrap();
    let mut all: Vec<_> = listing
        .map(|e| e.unwrap().path())
        .filter(|p| p.extension().is_some_and(|e| e == "aimodel"))
        .collect();
    all.sort();
    assert!(all.len() >= 25, "the fixtures are there");
    all
}

fn model() -> PathBuf {
    fixtures().join("lm/qwen3-4bit/qwen3-4bit.aimodel")
}

fn open(path: &Path) -> AimodelAsset {
    let bytes = SharedBytes::from_vec(fs::read(path.join(PROGRAM)).unwrap());
    let metadata = fs::read_to_string(path.join(METADATA)).unwrap();
    AimodelAsset::open(
        bytes,
        Some(&metadata),
        Some(&fs::read(path.join(HASH)).unwrap()),
    )
    .unwrap()
}

fn read(bytes: Vec<u8>) -> Result<Module, AssetError> {
    AimodelAsset::open(SharedBytes::from_vec(bytes), None, None)?.module()
}

fn problem(bytes: Vec<u8>) -> ReadError {
    match read(bytes) {
        Err(AssetError::Program(e)) => e,
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_fixture_decodes_and_what_has_a_meaning_prints_and_parses_back() {
    let mut lowered = 0;
    for path in assets().into_iter().chain([model()]) {
        let asset = open(&path);
        assert_eq!(
            asset.metadata.asset_version.as_deref(),
            Some("2.0"),
            "{}",
            path.display()
        );
        asset.verify_hash().unwrap();
        match asset.module() {
            Ok(module) => {
                verify::verify(&module).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
                assert_eq!(
                    text::parse(&text::print(&module)).unwrap(),
                    module,
                    "{}",
                    path.display()
                );
                lowered += 1;
            }
            // An operation that the graph does not have is named, with its place.
            Err(AssetError::Program(e)) => {
                assert!(
                    matches!(e.problem, Problem::Unsupported(_)),
                    "{}: {e}",
                    path.display()
                );
                assert!(e.op.is_some() && e.section == Section::Program, "{e}");
            }
            Err(e) => panic!("{}: {e}", path.display()),
        }
    }
    assert!(lowered >= 20, "{lowered}");
}

#[test]
fn the_parts_of_a_language_model_are_found() {
    let module = open(&model()).module().unwrap();
    let [main] = module.functions().collect::<Vec<_>>()[..] else {
        panic!("one function")
    };
    let names: Vec<&str> = main.inputs.iter().map(|p| &*p.name).collect();
    assert!(
        names.starts_with(&["input_ids", "position_ids"]),
        "{names:?}"
    );
    assert_eq!(
        main.inputs
            .iter()
            .filter(|p| matches!(p.ty, Type::Handle(_)))
            .count(),
        2
    );
    // The order of the two states' writes comes back as tokens, beside the logits.
    let kinds: Vec<_> = main
        .outputs
        .iter()
        .map(|p| matches!(p.ty, Type::Token))
        .collect();
    assert_eq!(kinds, [true, true, false]);
    let composites: Vec<_> = module
        .graphs
        .iter()
        .filter_map(|g| g.composite.as_ref())
        .collect();
    let norm = composites.iter().find(|c| &*c.name == "rms_norm").unwrap();
    assert_eq!(
        norm.inputs.iter().map(|n| &**n).collect::<Vec<_>>(),
        ["input", "scale"]
    );
    let eps = norm
        .attributes
        .iter()
        .find(|(n, _)| &**n == "eps")
        .unwrap()
        .1
        .as_float()
        .unwrap();
    assert_eq!(eps, f64::from(1e-6f32));
    assert!(
        composites
            .iter()
            .any(|c| &*c.name == "scaled_dot_product_attention")
    );
}

fn asset(name: &str) -> Module {
    open(&fixtures().join(format!("aimodel/{name}.aimodel")))
        .module()
        .unwrap()
}

#[test]
fn operations_know_the_lines_they_come_from() {
    let module = asset("debug-locations");
    let nodes = &module.graph("main").unwrap().body.nodes;
    let silu = nodes.iter().find(|n| n.op.name() == "silu").unwrap();
    let location = silu.location.as_ref().unwrap().to_string();
    assert_eq!(location, r#"["model.py:9:0", "model.py:16:0"]"#);
    // A placeholder for a file that is not known is none.
    let all = text::print(&module).text;
    assert!(
        all.contains("constant") && !all.contains("\"-:0:0\""),
        "{all}"
    );
}

#[test]
fn shapes_are_enumerated_or_made_into_functions() {
    let declared = asset("enumerated-shapes");
    let port = &declared.graph("main").unwrap().inputs[0];
    let (name, shapes) = &port.attributes[0];
    assert_eq!(
        (&**name, shapes.to_string()),
        (
            "enumerated_shapes",
            "{large = [64, 4], small = [1, 4]}".to_owned()
        )
    );
    assert_eq!(port.ty.to_string(), "tensor<?x4xf32>");
    let made = asset("static-shapes");
    let found: Vec<_> = made
        .functions()
        .map(|g| (g.name.to_string(), g.inputs[0].ty.to_string()))
        .collect();
    let expected = [
        ("main_large", "tensor<64x4xf32>"),
        ("main_small", "tensor<1x4xf32>"),
    ];
    assert_eq!(found, expected.map(|(n, t)| (n.into(), t.into())));
}

#[test]
fn weights_share_the_file() {
    let asset = open(&model());
    let file = asset.bytes().as_ptr_range();
    let module = asset.module().unwrap();
    let mut packed = 0;
    for node in module.graphs.iter().flat_map(|g| &g.body.nodes) {
        let russet_graph::ops::Op::Constant(c) = &node.op else {
            continue;
        };
        if c.0.ty.dtype == DType::I4 && matches!(c.0.storage, Storage::Dense(_)) {
            assert!(
                file.contains(&c.0.storage.bytes().as_ptr()),
                "a weight is a part of the file"
            );
            packed += 1;
        }
    }
    assert!(packed > 5, "{packed}");
}

#[test]
fn a_digest_of_another_program_is_noticed() {
    let path = model();
    let bytes = SharedBytes::from_vec(fs::read(path.join(PROGRAM)).unwrap());
    let other = AimodelAsset::open(bytes.clone(), None, Some(&[0; 32])).unwrap();
    assert!(matches!(other.verify_hash(), Err(AssetError::Hash { .. })));
    assert!(matches!(
        AimodelAsset::open(bytes, None, None).unwrap().verify_hash(),
        Err(AssetError::NoHash)
    ));
}

#[test]
fn errors_say_where() {
    let good = fs::read(assets()[0].join(PROGRAM)).unwrap();
    let changed = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        problem(bytes)
    };
    assert_eq!(changed(0, b'X').problem, Problem::Magic);
    let version = changed(4, 0x0f);
    assert_eq!(
        (version.problem, version.section),
        (Problem::BytecodeVersion(7), Section::Header)
    );
    let nested = good.windows(3).position(|w| w == [7, 3, 5]).unwrap();
    let encoding = changed(nested + 2, 7);
    assert_eq!(
        (encoding.problem, encoding.section, encoding.offset),
        (Problem::DialectVersion(3), Section::Dialects, nested + 2)
    );
    let container = Container::read(&good).unwrap();
    let record = container.types[0].start;
    let unknown = changed(record, 0xff);
    assert_eq!(
        (unknown.section, unknown.offset),
        (Section::Records, record)
    );
    assert!(
        matches!(
            unknown.problem,
            Problem::Unknown {
                what: "type kind",
                code: 127
            }
        ),
        "{unknown}"
    );
    assert!(
        unknown
            .to_string()
            .contains(&format!("attribute and type section at byte {record}"))
    );
    assert_eq!(
        problem(Vec::new()).problem,
        Problem::Truncated("the magic number")
    );
}

/// Every place where something starts.
fn boundaries(bytes: &[u8]) -> Vec<usize> {
    let c = Container::read(bytes).unwrap();
    let ranges = c
        .attrs
        .iter()
        .chain(&c.types)
        .chain(&c.properties)
        .chain([&c.program]);
    let mut all: Vec<usize> = ranges
        .flat_map(|r| [r.start, r.end])
        .chain(c.resources.iter().map(|r| r.bytes.start))
        .collect();
    all.extend(0..bytes.len().min(64));
    all.extend([bytes.len() - 1, bytes.len() - 2]);
    all.sort_unstable();
    all.dedup();
    all
}

/// Reads a damaged file: an error with a place inside the file, or a graph, which if sound is the one its text means; soon.
fn survives(bytes: Vec<u8>) {
    let (len, start) = (bytes.len(), Instant::now());
    match read(bytes) {
        Ok(module) if verify::verify(&module).is_ok() => {
            assert_eq!(text::parse(&text::print(&module)).as_ref(), Ok(&module));
        }
        Err(AssetError::Program(e)) => assert!(e.offset <= len, "{e}"),
        _ => {}
    }
    assert!(
        start.elapsed() < Duration::from_secs(2),
        "a damaged file takes too long"
    );
}

/// A small generator with a fixed seed (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as usize
    }
}

#[test]
fn files_cut_anywhere_give_errors() {
    for path in assets() {
        let bytes = fs::read(path.join(PROGRAM)).unwrap();
        for cut in boundaries(&bytes) {
            survives(bytes[..cut].to_vec());
        }
    }
    let bytes = fs::read(model().join(PROGRAM)).unwrap();
    for cut in boundaries(&bytes).into_iter().step_by(29) {
        assert!(read(bytes[..cut].to_vec()).is_err(), "cut at {cut}");
    }
}

#[test]
fn flipped_bits_give_answers_or_errors() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for path in assets() {
        let bytes = fs::read(path.join(PROGRAM)).unwrap();
        let mut places = boundaries(&bytes);
        places.retain(|p| *p < bytes.len());
        places.extend((0..200).map(|_| random.below(bytes.len())));
        for at in places {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << random.below(8);
            survives(damaged);
            let mut damaged = bytes.clone();
            damaged[at] = [0, 0xff, 0x80, 1][random.below(4)];
            survives(damaged);
        }
    }
    let bytes = fs::read(model().join(PROGRAM)).unwrap();
    for _ in 0..150 {
        let mut damaged = bytes.clone();
        damaged[random.below(bytes.len())] ^= 1 << random.below(8);
        survives(damaged);
    }
}

#[test]
fn counts_that_the_file_cannot_back_reserve_nothing() {
    let good = fs::read(assets()[0].join(PROGRAM)).unwrap();
    let c = Container::read(&good).unwrap();
    // A nine-byte number, 2^56, in place of the first bytes of each table that starts with a count.
    for at in [c.program.start, c.attrs[0].start, c.types[0].start + 1] {
        let mut bytes = good.clone();
        for (to, from) in bytes[at..].iter_mut().zip([0, 0, 0, 0, 0, 0, 0, 0, 1]) {
            *to = from;
        }
        assert!(read(bytes).is_err());
    }
}
