//! What the weights are made of, against what the metadata says (contract B §2.11): exporters record what they were asked for,
//! and go on where quantising fails.

use std::collections::{BTreeMap, HashSet};

use russet_graph::graph::{Module, Storage};
use russet_graph::ops::Op;
use russet_graph::types::{Class, DType};
use serde::Serialize;
use serde_json::Value;

use super::finding::{self as rules, At, Findings};
use super::program::nodes;
use super::subject::Subject;

/// Smaller constants are shapes, factors and norms: no weights.
const SMALLEST: usize = 512;

/// What part of an asset's weights are elements of a type.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct WeightShare {
    /// The element type; scales and tables of codes count as what they are.
    pub dtype: &'static str,
    /// Elements.
    pub elements: u64,
    /// Bytes as stored.
    pub bytes: u64,
    /// Part of all bytes of weights, 0 to 1.
    pub share: f64,
}

/// Elements and bytes of weights by type; each constant of the file once.
fn weights(module: &Module) -> BTreeMap<DType, (u64, u64)> {
    let mut seen = HashSet::new();
    let mut sums = BTreeMap::new();
    for graph in &module.graphs {
        nodes(&graph.body, &mut |op| {
            let Op::Constant(constant) = op else { return };
            let Storage::Dense(bytes) = &constant.0.storage else {
                return;
            };
            let (dtype, len) = (constant.0.ty.dtype, constant.0.len());
            let place = (bytes.as_ptr().addr(), bytes.len());
            if len >= SMALLEST && is_weight(dtype) && seen.insert(place) {
                let sum: &mut (u64, u64) = sums.entry(dtype).or_default();
                sum.0 += len as u64;
                sum.1 += bytes.len() as u64;
            }
        });
    }
    sums
}

/// Floats, and integers that codes of weights have.
fn is_weight(dtype: DType) -> bool {
    match dtype.class() {
        Class::Float => true,
        Class::Signed | Class::Unsigned => dtype.bits() <= 8,
        Class::Bool | Class::Complex => false,
    }
}

/// The types of a module's weights, the largest share first.
pub(super) fn shares(module: &Module) -> Vec<WeightShare> {
    let sums = weights(module);
    let all: u64 = sums.values().map(|(_, bytes)| bytes).sum();
    let share = |(dtype, (elements, bytes)): (&DType, &(u64, u64))| WeightShare {
        dtype: dtype.name(),
        elements: *elements,
        bytes: *bytes,
        share: *bytes as f64 / all.max(1) as f64,
    };
    let mut shares: Vec<WeightShare> = sums.iter().map(share).collect();
    shares.sort_by_key(|s| std::cmp::Reverse(s.bytes));
    shares
}

/// `compression` against the weights of all assets together.
pub(super) fn declared(subject: &Subject<'_>, findings: &mut Findings) -> Option<()> {
    subject.model.as_ref()?;
    let mut sums: BTreeMap<DType, (u64, u64)> = BTreeMap::new();
    for module in subject.assets.iter().filter_map(|a| a.module.as_ref()) {
        for (dtype, (elements, bytes)) in weights(module) {
            let sum = sums.entry(dtype).or_default();
            *sum = (sum.0 + elements, sum.1 + bytes);
        }
    }
    if sums.is_empty() {
        return None;
    }
    let at = At::metadata("compression");
    let Some(value) = subject.raw("compression") else {
        unnamed(&sums, findings);
        return Some(());
    };
    let texts = texts(value);
    let bits: Vec<usize> = texts.iter().flat_map(|t| bits(t)).collect();
    let (Some(least), Some(most)) = (bits.iter().min(), bits.iter().max()) else {
        findings.add(
            &rules::COMPRESSION_UNCLEAR,
            at,
            format!(
                "{value} does not say how many bits weights have; they are {}",
                told(&sums)
            ),
            "none is needed; a name such as 4bit can be checked",
        );
        return Some(());
    };
    compare(&sums, *least, *most, &texts.join(" "), findings);
    Some(())
}

/// Whether there are weights of as few bits as declared, and whether those are most.
fn compare(
    sums: &BTreeMap<DType, (u64, u64)>,
    least: usize,
    most: usize,
    declared: &str,
    findings: &mut Findings,
) {
    let up_to = |bits: usize| {
        let fit = sums.iter().filter(|(d, _)| d.bits() <= bits);
        fit.map(|(_, (elements, _))| elements).sum::<u64>()
    };
    let all = up_to(usize::MAX).max(1);
    let at = At::metadata("compression");
    if up_to(least) == 0 {
        findings.add(
            &rules::COMPRESSION_FALSE,
            at,
            format!("{declared} is declared, and no weight has {least} bits or less: they are {}", told(sums)),
            "quantising failed when this was exported, and only its log said so: export again and read the log for \"Quantization failed\"; or set compression to null",
        );
    } else if 2 * up_to(most) < all {
        let percent = 100 * up_to(most) / all;
        findings.add(
            &rules::COMPRESSION_PARTLY,
            at,
            format!("{declared} is declared, and {percent} % of the weights have {most} bits or less: they are {}", told(sums)),
            "see whether the layers left out were meant to be (embeddings, experts), and the export's log",
        );
    }
}

fn unnamed(sums: &BTreeMap<DType, (u64, u64)>, findings: &mut Findings) {
    let narrow: u64 = sums
        .iter()
        .filter(|(d, _)| d.bits() <= 8)
        .map(|(_, s)| s.0)
        .sum();
    let all: u64 = sums.values().map(|s| s.0).sum();
    if 2 * narrow >= all {
        findings.add(
            &rules::COMPRESSION_UNNAMED,
            At::metadata("compression"),
            format!(
                "nothing is declared, and the weights are compressed: {}",
                told(sums)
            ),
            "none is needed; a name such as 4bit tells others",
        );
    }
}

/// Types and their shares of bytes, for people.
fn told(sums: &BTreeMap<DType, (u64, u64)>) -> String {
    let all: u64 = sums.values().map(|s| s.1).sum();
    let mut sorted: Vec<_> = sums.iter().collect();
    sorted.sort_by_key(|(_, s)| std::cmp::Reverse(s.1));
    let one = |(dtype, (_, bytes)): &(&DType, &(u64, u64))| {
        format!("{:.0} % {dtype}", 100.0 * *bytes as f64 / all.max(1) as f64)
    };
    let parts: Vec<String> = sorted.iter().map(one).collect();
    format!("{} of {all} bytes", parts.join(", "))
}

/// The texts of a declaration: one, or those of an object; a key like `bits` makes its number one.
fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => vec![text.clone()],
        Value::Object(map) => {
            let number = |key: &str, n: &Value| key.contains("bits").then(|| format!("{n}bit"));
            let one = |(key, v): (&String, &Value)| match v {
                Value::Number(_) => number(key, v).into_iter().collect(),
                Value::String(_) => texts(v),
                _ => Vec::new(),
            };
            map.iter().flat_map(one).collect()
        }
        _ => Vec::new(),
    }
}

/// Words after which a number of bits is not that of weights.
const OTHERS: [&str; 4] = ["kv", "activations", "activation", "cache"];
/// What number of bits names of types have before them.
const PREFIXES: [&str; 9] = [
    "uint", "int", "bfloat", "float", "bf", "fp", "lut", "nf", "w",
];

/// The numbers of bits of weights that a name such as `mixed_4bit_8bit` or `4bit_weights_8bit_kv_cache` gives.
pub(super) fn bits(declared: &str) -> Vec<usize> {
    let text = declared.to_ascii_lowercase();
    let words: Vec<&str> = text.split(|c: char| !c.is_ascii_alphanumeric()).collect();
    let number = |(i, word): (usize, &&str)| {
        let next = words.get(i + 1).copied().unwrap_or_default();
        width(word).filter(|_| !OTHERS.contains(&next))
    };
    words.iter().enumerate().filter_map(number).collect()
}

fn width(word: &str) -> Option<usize> {
    let counted = word
        .strip_suffix("bits")
        .or_else(|| word.strip_suffix("bit"));
    let typed = || PREFIXES.iter().find_map(|p| word.strip_prefix(p));
    let bits: usize = counted.or_else(typed)?.parse().ok()?;
    (1..=64).contains(&bits).then_some(bits)
}
