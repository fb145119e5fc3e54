//! Any bytes as the specification of a Core ML package, whose weight file is the same bytes: an error with its place, or a graph. A
//! graph that is sound prints, and its text parses back to the same graph.
#![no_main]

use libfuzzer_sys::fuzz_target;
use russet_formats::coreml::{CoremlModel, Weights};
use russet_graph::{text, verify};
use russet_kernels::mem::SharedBytes;

fuzz_target!(|data: &[u8]| {
    let bytes = SharedBytes::from_vec(data.to_vec());
    let Ok(model) = CoremlModel::read(bytes.clone()) else {
        return;
    };
    let mut weights = Weights::default();
    for file in model.weight_files() {
        weights.add(&file, bytes.clone());
    }
    let Ok(module) = model.module(&weights) else {
        return;
    };
    let printed = text::print(&module);
    if verify::verify(&module).is_ok() {
        let parsed = text::parse(&printed);
        assert_eq!(parsed.as_ref(), Ok(&module), "{}", printed.text);
    }
});
