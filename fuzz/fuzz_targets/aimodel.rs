//! Any bytes as the program of a Core AI asset: a graph that prints and parses back, or an error with its place.
#![no_main]

use libfuzzer_sys::fuzz_target;
use russet_formats::aimodel::{AimodelAsset, AssetError};
use russet_kernels::mem::SharedBytes;

fuzz_target!(|data: &[u8]| {
    let bytes = SharedBytes::from_vec(data.to_vec());
    let read = AimodelAsset::open(bytes, None, None).and_then(|asset| asset.module());
    match read {
        Ok(module) => drop(module),
        Err(AssetError::Program(e)) => assert!(e.offset <= data.len(), "a place in the file: {e}"),
        Err(e) => panic!("{e}"),
    }
});
