//! Any bytes as a GGUF file: whatever can be asked of it gives an answer or an error, and a graph made of it is sound.
#![no_main]

use libfuzzer_sys::fuzz_target;
use russet_formats::checkpoint::{Options, from_gguf};
use russet_formats::gguf::{Array, Gguf, Value};
use russet_graph::verify::verify;
use russet_kernels::mem::SharedBytes;

/// Decodes every item, arrays of arrays too.
fn walk(array: &Array) {
    for item in array.items() {
        match item {
            Ok(Value::Array(inner)) => walk(&inner),
            Ok(_) => {}
            Err(_) => return,
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let Ok(file) = Gguf::read(SharedBytes::from_vec(data.to_vec())) else { return };
    for entry in file.metadata().entries() {
        if let Value::Array(array) = &entry.value {
            walk(array);
        }
    }
    for tensor in file.tensors() {
        if let Ok(bytes) = file.data(tensor) {
            assert!(bytes.len() <= data.len(), "a slice of the file");
        }
    }
    let _ = file.tokenizer();
    if let Ok(model) = from_gguf(&file, Options::default()) {
        verify(&model.module).expect("a graph that is built here is sound");
    }
});
