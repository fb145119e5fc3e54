//! Any bytes as the program of a Core AI asset: an error with its place, or a graph. A graph that is sound prints, and its
//! text parses back to the same graph.
#![no_main]

use libfuzzer_sys::fuzz_target;
use russet_formats::aimodel::{AimodelAsset, AssetError};
use russet_graph::graph::Module;
use russet_graph::{text, verify};
use russet_kernels::mem::SharedBytes;

fuzz_target!(|data: &[u8]| {
    let bytes = SharedBytes::from_vec(data.to_vec());
    let read = AimodelAsset::open(bytes, None, None).and_then(|asset| asset.module());
    match read {
        Ok(module) => returns_as_text(&module),
        Err(AssetError::Program(e)) => assert!(e.offset <= data.len(), "a place in the file: {e}"),
        Err(e) => panic!("{e}"),
    }
});

/// What verifies is written and read back without loss; what does not is at least written.
fn returns_as_text(module: &Module) {
    let printed = text::print(module);
    if verify::verify(module).is_ok() {
        let parsed = text::parse(&printed);
        assert_eq!(parsed.as_ref(), Ok(module), "{}", printed.text);
    }
}
