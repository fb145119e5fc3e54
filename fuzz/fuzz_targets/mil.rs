//! Any bytes as the program of a compiled Core ML package, whose description is what follows the first zero byte: an error with its
//! place, or a graph.
#![no_main]

use libfuzzer_sys::fuzz_target;
use russet_formats::coreml::{CoremlModel, Place, Weights};
use russet_kernels::mem::SharedBytes;

fuzz_target!(|data: &[u8]| {
    let split = data.iter().position(|b| *b == 0);
    let (text, rest) = split.map_or((data, None), |at| (&data[..at], Some(&data[at + 1..])));
    let description = rest.map(|d| SharedBytes::from_vec(d.to_vec()));
    match CoremlModel::read_compiled(text, description) {
        Ok(model) => drop(model.module(&Weights::default())),
        Err(error) => {
            if let Place::File { offset, .. } = error.place {
                assert!(offset <= data.len() as u64, "a place in the file: {error}");
            }
        }
    }
});
