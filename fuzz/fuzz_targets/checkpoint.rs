//! Any bytes as a checkpoint's folder: a config, a zero byte, then the file of weights. Both are refused, or the program that is
//! built of them is sound.
//!
//! The second part may also be an object of kinds and shapes, `{"model.norm.weight": ["BF16", 64], …}`: the file with these tensors,
//! all zeros, is put together here. So the fuzzer need not keep lengths and offsets true to come to what matters.
#![no_main]

use libfuzzer_sys::fuzz_target;
use russet_formats::checkpoint::{CheckpointError, Folder, Options, WEIGHTS, from_folder};
use russet_graph::verify::verify;
use russet_kernels::mem::SharedBytes;
use serde_json::{Map, Value, json};

/// Kinds of elements, and their bytes.
const KINDS: [(&str, usize); 4] = [("F32", 4), ("BF16", 2), ("F16", 2), ("I64", 8)];
/// Bytes of all tensors of a file that is put together.
const MOST: usize = 1 << 20;

/// The entry of a tensor in the header, and where its bytes end.
fn entry(tensor: &Value, first: usize) -> Option<(Value, usize)> {
    let (kind, shape) = tensor.as_array()?.split_first()?;
    let (name, size) = KINDS.iter().find(|(name, _)| kind == name)?;
    let mut extents = shape.iter().map(|d| usize::try_from(d.as_u64()?).ok());
    let bytes = extents.try_fold(*size, |n, d| n.checked_mul(d?))?;
    let end = first.checked_add(bytes).filter(|end| *end <= MOST)?;
    let entry = json!({"dtype": name, "shape": shape, "data_offsets": [first, end]});
    Some((entry, end))
}

/// The file that holds these tensors, and an index that says so.
fn file(tensors: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let tensors: Map<String, Value> = serde_json::from_slice(tensors).ok()?;
    let (mut header, mut end) = (Map::new(), 0);
    for (name, tensor) in &tensors {
        let (entry, behind) = entry(tensor, end)?;
        header.insert(name.clone(), entry);
        end = behind;
    }
    let header = serde_json::to_vec(&header).ok()?;
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header);
    bytes.resize(bytes.len() + end, 0);
    let files: Map<String, Value> = tensors.into_iter().map(|(n, _)| (n, WEIGHTS.into())).collect();
    Some((bytes, json!({"weight_map": files}).to_string().into_bytes()))
}

fn check(config: &[u8], index: Option<&[u8]>, weights: &[u8]) {
    let bytes = SharedBytes::from_vec(weights.to_vec());
    let mut open = |_: &str| Ok::<_, CheckpointError>(bytes.clone());
    let Ok(folder) = Folder::read(config, index, &mut open) else { return };
    assert!(folder.bytes() <= weights.len() as u64, "tensors lie inside the file");
    if let Ok(model) = from_folder(&folder, Options::default()) {
        verify(&model.module).expect("a graph that is built here is sound");
    }
}

fuzz_target!(|data: &[u8]| {
    let mut parts = data.splitn(2, |b| *b == 0);
    let (config, weights) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    check(config, None, weights);
    // The second part is read as an index too, whatever it is.
    check(config, Some(weights), weights);
    if let Some((bytes, index)) = file(weights) {
        check(config, None, &bytes);
        check(config, Some(&index), &bytes);
    }
});
