//! What reading costs: files made to ask for much are refused or read within a small multiple of their own size, and what is
//! read is printed within another. One test, since the counter counts for the whole process.
#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

mod common;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use common::{
    CONSTANT, EMPTY, FALSE, File, GRAPH, NAME, NAMESPACE, OUTPUT, SIGNATURE, holder, indices,
    producer, region, signed, varint,
};
use peak_alloc::PeakAlloc;
use russet_formats::aimodel::AimodelAsset;
use russet_formats::gguf::Gguf;
use russet_graph::text;
use russet_kernels::mem::SharedBytes;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// A file may cost this many bytes of memory for each of its own (an operation of three bytes becomes a node of hundreds),
const READING: usize = 200;
/// and its text this many.
const PRINTING: usize = 64;
/// Small files may cost this much.
const SMALL: usize = 3 << 20;

/// Bytes of memory that something takes at most while it runs, and what it gives.
fn cost<T>(run: impl FnOnce() -> T) -> (T, usize) {
    let before = MEMORY.current_usage();
    MEMORY.reset_peak_usage();
    let value = run();
    (value, MEMORY.peak_usage().saturating_sub(before))
}

/// Reads a file and prints what comes of it.
fn check(name: &str, bytes: Vec<u8>) {
    let (len, start) = (bytes.len(), Instant::now());
    let shared = SharedBytes::from_vec(bytes);
    let (module, read) = cost(|| AimodelAsset::open(shared, None, None).and_then(|a| a.module()));
    assert!(
        read <= SMALL + READING * len,
        "{name}: {read} bytes for {len}"
    );
    if let Ok(module) = &module {
        let printed = cost(|| text::print(module)).1;
        assert!(
            printed <= SMALL + PRINTING * len,
            "{name}: a text of {printed} bytes for {len}"
        );
    }
    let took = start.elapsed();
    assert!(took < Duration::from_secs(5), "{name}: {took:?}");
}

fn output() -> Vec<u8> {
    [varint(OUTPUT), vec![0], varint(EMPTY)].concat()
}

/// A long text.
fn long() -> String {
    "n".repeat(100_000)
}

/// Many graphs share one signature with many arguments.
fn shared_signature() -> Vec<u8> {
    let mut file = File::new();
    let token = file.ty(32, &[]);
    let ty = file.ty(30, &[indices(&[]), indices(&[token; 20_000])]);
    let signature = file.attr(4, &[varint(ty)]);
    let properties = file.graph_properties(NAME, signature);
    (0..1000).for_each(|_| file.graph(properties, 0, &[output()]));
    file.finish()
}

/// Many graphs in namespaces in namespaces, all with one long name.
fn long_names() -> Vec<u8> {
    let mut file = File::new();
    let text = file.string(&long());
    let name = file.attr(1, &[varint(text)]);
    let graph = file.graph_properties(name, SIGNATURE);
    let space = file.property(&[name, EMPTY]);
    let graphs: Vec<_> = (0..500)
        .map(|_| holder(GRAPH, graph, &region(0, &[output()])))
        .collect();
    let nested = (0..40).fold(graphs, |inside, _| {
        vec![holder(NAMESPACE, space, &region(0, &inside))]
    });
    file.ops.extend(nested);
    file.finish()
}

/// A graph with many constants of this type: a type, then the attribute that holds the elements.
fn constants(
    file: &mut File,
    ty: u64,
    elements: u64,
    count: usize,
    location: impl Fn(usize) -> u64,
) {
    let value = file.property(&[elements]);
    let graph = file.graph_properties(NAME, SIGNATURE);
    let mut ops: Vec<_> = (0..count)
        .map(|i| producer(CONSTANT, location(i), value, ty))
        .collect();
    ops.push(output());
    file.graph(graph, count as u64, &ops);
}

/// A tensor type of one 8-bit element.
fn byte_tensor(file: &mut File) -> (u64, u64) {
    let scalar = file.ty(20, &[]);
    let ty = file.ty(2, &[indices(&[]), varint(scalar)]);
    (ty, file.attr(6, &[vec![0], varint(1), vec![7]]))
}

/// Elements of four bits, one to a byte, shared by many constants.
fn shared_elements() -> Vec<u8> {
    let mut file = File::new();
    let scalar = file.ty(21, &[]);
    let shape = [varint(1), signed(100_000)].concat();
    let ty = file.ty(2, &[shape, varint(scalar)]);
    let elements = file.attr(6, &[vec![0], varint(100_000), vec![1; 100_000]]);
    constants(&mut file, ty, elements, 5000, |_| EMPTY);
    file.finish()
}

/// Locations of many operations in one file with a long name.
fn long_locations() -> Vec<u8> {
    let mut file = File::new();
    let name = file.string(&long());
    let place = file.attr(30, &[varint(name), varint(name), varint(name)]);
    let (ty, elements) = byte_tensor(&mut file);
    let lines: Vec<u64> = (0..5000)
        .map(|line| {
            let source = file.attr(
                31,
                &[varint(place), varint(line), varint(0), varint(0), varint(0)],
            );
            file.attr(
                40,
                &[varint(source), varint(EMPTY), indices(&[]), indices(&[])],
            )
        })
        .collect();
    constants(&mut file, ty, elements, 5000, |i| lines[i]);
    file.finish()
}

/// Opaque types in handles in handles: each writes the one inside in quotes.
fn nested_quotes() -> Vec<u8> {
    let mut file = File::new();
    let name = file.string("\"\\");
    let opaque = file.ty(1, &[varint(name), indices(&[])]);
    let handle = (0..100).fold(opaque, |inner, _| file.ty(31, &[varint(inner)]));
    constants(&mut file, handle, FALSE, 1, |_| EMPTY);
    file.finish()
}

/// Encodings that hold types twice whose encodings hold types twice, and so on: little in memory, much in writing.
fn doubling_encodings() -> Vec<u8> {
    let mut file = File::new();
    let scalar = file.ty(20, &[]);
    let mut ty = file.ty(2, &[indices(&[]), varint(scalar)]);
    for _ in 0..30 {
        let of_type = file.attr(4, &[varint(ty)]);
        let twice = file.attr(5, &[indices(&[of_type, of_type])]);
        ty = file.ty(3, &[indices(&[]), varint(scalar), varint(twice)]);
    }
    let elements = file.attr(6, &[vec![0], varint(1), vec![7]]);
    constants(&mut file, ty, elements, 1, |_| EMPTY);
    file.finish()
}

/// One large encoding on the types of many values.
fn shared_encoding() -> Vec<u8> {
    let mut file = File::new();
    let scalar = file.ty(20, &[]);
    let many = file.attr(5, &[indices(&[FALSE; 10_000])]);
    let ty = file.ty(3, &[indices(&[]), varint(scalar), varint(many)]);
    let elements = file.attr(6, &[vec![0], varint(1), vec![7]]);
    constants(&mut file, ty, elements, 10_000, |_| EMPTY);
    file.finish()
}

/// Types of many extents for many values.
fn many_extents() -> Vec<u8> {
    let mut file = File::new();
    let scalar = file.ty(20, &[]);
    let ones = [varint(16), signed(1).repeat(16)].concat();
    let ty = file.ty(2, &[ones, varint(scalar)]);
    let elements = file.attr(6, &[vec![0], varint(1), vec![7]]);
    constants(&mut file, ty, elements, 30_000, |_| EMPTY);
    file.finish()
}

/// The smallest things there are, many times.
fn smallest() -> [(&'static str, Vec<u8>); 4] {
    let mut strings = File::new();
    strings.strings.resize(300_000, String::new());
    let mut attrs = File::new();
    attrs.attrs.resize(300_000, varint(46));
    let mut types = File::new();
    types.types.resize(300_000, varint(32));
    let mut ops = File::new();
    let nothing = [varint(OUTPUT), vec![0], varint(EMPTY)].concat();
    let graph = ops.graph_properties(NAME, SIGNATURE);
    ops.graph(graph, 0, &vec![nothing; 100_000]);
    [
        ("strings", strings.finish()),
        ("attributes", attrs.finish()),
        ("types", types.finish()),
        ("operations", ops.finish()),
    ]
}

/// A GGUF file whose metadata is this array of `count` items of type `kind`.
fn gguf_array(kind: u32, count: u64, items: &[u8]) -> Vec<u8> {
    let (tensors, pairs, array) = (0u64, 1u64, 9u32);
    [
        &b"GGUF"[..],
        &3u32.to_le_bytes(),
        &tensors.to_le_bytes(),
        &pairs.to_le_bytes(),
        &21u64.to_le_bytes(),
        b"tokenizer.ggml.tokens",
        &array.to_le_bytes(),
        &kind.to_le_bytes(),
        &count.to_le_bytes(),
        items,
    ]
    .concat()
}

fn check_gguf(name: &str, bytes: Vec<u8>) {
    let len = bytes.len();
    let shared = SharedBytes::from_vec(bytes);
    let (_file, read) = cost(|| Gguf::read(shared));
    assert!(read <= SMALL + 16 * len, "{name}: {read} bytes for {len}");
}

#[test]
fn files_cost_a_small_multiple_of_their_size() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
    let model = fixtures.join("lm/qwen3-4bit/qwen3-4bit.aimodel/main.mlirb");
    check("a language model", fs::read(model).unwrap());
    check("a shared signature", shared_signature());
    check("long names", long_names());
    check("shared elements", shared_elements());
    check("long locations", long_locations());
    check("nested quotes", nested_quotes());
    check("doubling encodings", doubling_encodings());
    check("a shared encoding", shared_encoding());
    check("many extents", many_extents());
    for (name, bytes) in smallest() {
        check(name, bytes);
    }
    check_gguf("empty texts", gguf_array(8, 100_000, &[0; 800_000]));
    check_gguf("more texts than bytes", gguf_array(8, 1 << 40, &[0; 800]));
    check_gguf("empty arrays", gguf_array(9, 60_000, &[0; 720_000]));
    check_gguf("bytes", gguf_array(0, 1_000_000, &[0; 1_000_000]));
}
