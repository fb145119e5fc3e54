//! A tiny llama, written as a GGUF file here, built, run by the references, and compared with the plain formulas.

use std::collections::HashMap;

use russet_graph::graph::Storage;
use russet_graph::interpret::{States, run};
use russet_graph::ops::Op;
use russet_graph::tensor::{Tensor, TensorMut};
use russet_graph::types::{DType, Type};
use russet_graph::verify::verify;
use russet_kernels::mem::SharedBytes;
use russet_kernels::quant::BlockFormat;

use super::*;
use crate::gguf::testing::{Item, Writer, assert_seed};

const VOCAB: usize = 11;
const HIDDEN: usize = 32;
const HEADS: usize = 4;
const KV_HEADS: usize = 2;
const HEAD: usize = HIDDEN / HEADS;
const WIDE: usize = 64;
const LAYERS: usize = 2;
const BASE: f64 = 100.0;
const EPS: f64 = 1e-3;

/// Deterministic numbers in -1..1, different for every name.
fn numbers(name: &str, n: usize) -> Vec<f32> {
    let mut state = name
        .bytes()
        .fold(7u32, |s, b| s.wrapping_mul(31).wrapping_add(b.into()));
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / 8_388_608.0 - 1.0
    };
    (0..n).map(|_| next()).collect()
}

/// Names and shapes of the tensors, embedding first.
fn shapes() -> Vec<(String, Vec<u64>)> {
    let narrow = (KV_HEADS * HEAD) as u64;
    let (h, w) = (HIDDEN as u64, WIDE as u64);
    let mut all = vec![
        ("token_embd.weight".to_string(), vec![VOCAB as u64, h]),
        ("output_norm.weight".into(), vec![h]),
    ];
    for layer in 0..LAYERS {
        let mut add = |name: &str, shape: &[u64]| {
            all.push((format!("blk.{layer}.{name}.weight"), shape.to_vec()));
        };
        add("attn_norm", &[h]);
        add("attn_q", &[h, h]);
        add("attn_k", &[narrow, h]);
        add("attn_v", &[narrow, h]);
        add("attn_output", &[h, h]);
        add("ffn_norm", &[h]);
        add("ffn_gate", &[w, h]);
        add("ffn_up", &[w, h]);
        add("ffn_down", &[h, w]);
    }
    all
}

fn config() -> Writer {
    Writer::new()
        .pair("general.architecture", "llama")
        .pair("llama.block_count", Item::U32(LAYERS as u32))
        .pair("llama.context_length", Item::U32(16))
        .pair("llama.embedding_length", Item::U32(HIDDEN as u32))
        .pair("llama.feed_forward_length", Item::U32(WIDE as u32))
        .pair("llama.attention.head_count", Item::U32(HEADS as u32))
        .pair("llama.attention.head_count_kv", Item::U32(KV_HEADS as u32))
        .pair(
            "llama.attention.layer_norm_rms_epsilon",
            Item::F32(EPS as f32),
        )
        .pair("llama.rope.freq_base", Item::F32(BASE as f32))
}

/// A file with plain f32 matrices.
fn plain() -> Writer {
    shapes().into_iter().fold(config(), |w, (name, shape)| {
        let n = shape.iter().product::<u64>() as usize;
        let values = numbers(&name, n);
        w.floats(&name, &shape, &values)
    })
}

/// The same model with matrices in blocks of Q8_0, whose scales are powers of two and codes small.
fn blocks() -> Writer {
    shapes().into_iter().fold(config(), |w, (name, shape)| {
        let n = shape.iter().product::<u64>() as usize;
        if shape.len() == 1 {
            return w.floats(&name, &shape, &numbers(&name, n));
        }
        let codes: Vec<u8> = numbers(&name, n)
            .iter()
            .map(|v| ((v * 100.0) as i8).cast_unsigned())
            .collect();
        let data = codes
            .chunks(32)
            .flat_map(|c| [&0x2000u16.to_le_bytes()[..], c].concat())
            .collect();
        w.tensor(&name, &shape, 8, data)
    })
}

fn open(writer: &Writer) -> Result<Checkpoint> {
    let file = Gguf::read(SharedBytes::from_vec(writer.finish())).unwrap();
    from_gguf(&file, Options::default())
}

/// Runs calls of these tokens, one after the other, and gives the logits of every token.
fn logits(checkpoint: &Checkpoint, calls: &[&[i64]]) -> Vec<f64> {
    let main = checkpoint.module.graph("main").unwrap();
    let mut states = States::new();
    for port in &main.inputs {
        if let Type::Handle(t) = &port.ty {
            let zeros = TensorMut::zeros(t.dtype, &t.fixed_shape().unwrap())
                .unwrap()
                .finish();
            states.insert(port.name.to_string(), zeros);
        }
    }
    let (mut total, mut all) = (0, Vec::new());
    for ids in calls {
        total += ids.len();
        let positions: Vec<i64> = (0..total as i64).collect();
        let ints = |v: &[i64]| Tensor::from_ints(DType::I32, &[1, v.len()], v).unwrap();
        let inputs = HashMap::from([
            ("input_ids".to_string(), ints(ids)),
            ("position_ids".to_string(), ints(&positions)),
        ]);
        let outputs = run(&checkpoint.module, main, &inputs, &mut states).unwrap();
        assert_eq!(outputs[0].0, "logits");
        assert_eq!(outputs[0].1.shape, [1, ids.len(), VOCAB]);
        all.extend(outputs[0].1.floats());
    }
    all
}

type Rows = Vec<Vec<f64>>;

/// The formulas of the model, on the values the file's tensors have.
struct Formulas<'a>(&'a dyn Fn(&str) -> Vec<f64>);

impl Formulas<'_> {
    fn times(&self, x: &Rows, name: &str) -> Rows {
        let weight = (self.0)(name);
        let row = |x: &Vec<f64>| {
            weight
                .chunks(x.len())
                .map(|w| w.iter().zip(x).map(|(a, b)| a * b).sum())
                .collect()
        };
        x.iter().map(row).collect()
    }

    fn norm(&self, x: &Rows, name: &str) -> Rows {
        let scale = (self.0)(name);
        let row = |x: &Vec<f64>| {
            let root = (x.iter().map(|v| v * v).sum::<f64>() / x.len() as f64 + EPS).sqrt();
            x.iter().zip(&scale).map(|(v, s)| v / root * s).collect()
        };
        x.iter().map(row).collect()
    }

    /// Turns neighbours: the pair (2i, 2i + 1) of a head by position · base^(-2i / d).
    fn rope(mut x: Rows) -> Rows {
        for (position, row) in x.iter_mut().enumerate() {
            for head in row.chunks_mut(HEAD) {
                for (i, pair) in head.chunks_mut(2).enumerate() {
                    let angle = position as f64 * BASE.powf(-2.0 * i as f64 / HEAD as f64);
                    let (sin, cos) = angle.sin_cos();
                    (pair[0], pair[1]) =
                        (pair[0] * cos - pair[1] * sin, pair[1] * cos + pair[0] * sin);
                }
            }
        }
        x
    }

    fn attention(&self, x: &Rows, layer: usize) -> Rows {
        let name = |part: &str| format!("blk.{layer}.{part}.weight");
        let (q, k) = (
            Self::rope(self.times(x, &name("attn_q"))),
            Self::rope(self.times(x, &name("attn_k"))),
        );
        let v = self.times(x, &name("attn_v"));
        let mut out = vec![vec![0.0; HIDDEN]; x.len()];
        for (t, h) in (0..x.len()).flat_map(|t| (0..HEADS).map(move |h| (t, h))) {
            let shared = h / (HEADS / KV_HEADS);
            let score = |s: usize| {
                let dot: f64 = (0..HEAD)
                    .map(|i| q[t][h * HEAD + i] * k[s][shared * HEAD + i])
                    .sum();
                (dot / (HEAD as f64).sqrt()).exp()
            };
            let weights: Vec<f64> = (0..=t).map(score).collect();
            let sum: f64 = weights.iter().sum();
            for i in 0..HEAD {
                out[t][h * HEAD + i] = weights
                    .iter()
                    .zip(&v)
                    .map(|(w, v)| w / sum * v[shared * HEAD + i])
                    .sum();
            }
        }
        self.times(&out, &name("attn_output"))
    }

    fn logits(&self, ids: &[i64]) -> Vec<f64> {
        let table = (self.0)("token_embd.weight");
        let mut x: Rows = ids
            .iter()
            .map(|&i| table[i as usize * HIDDEN..][..HIDDEN].to_vec())
            .collect();
        let add = |a: &Rows, b: &Rows| -> Rows {
            a.iter()
                .zip(b)
                .map(|(a, b)| a.iter().zip(b).map(|(x, y)| x + y).collect())
                .collect()
        };
        for layer in 0..LAYERS {
            let name = |part: &str| format!("blk.{layer}.{part}.weight");
            x = add(
                &x,
                &self.attention(&self.norm(&x, &name("attn_norm")), layer),
            );
            let normed = self.norm(&x, &name("ffn_norm"));
            let (mut gate, up) = (
                self.times(&normed, &name("ffn_gate")),
                self.times(&normed, &name("ffn_up")),
            );
            for (g, u) in gate.iter_mut().flatten().zip(up.iter().flatten()) {
                *g = *g / (1.0 + (-*g).exp()) * u;
            }
            x = add(&x, &self.times(&gate, &name("ffn_down")));
        }
        self.times(&self.norm(&x, "output_norm.weight"), "token_embd.weight")
            .concat()
    }
}

fn assert_close(got: &[f64], want: &[f64], tolerance: f64) {
    assert_eq!(got.len(), want.len());
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        assert!((g - w).abs() <= tolerance * (1.0 + w.abs()), "{i}: {g} {w}");
    }
}

const IDS: [i64; 6] = [3, 1, 10, 0, 7, 7];

#[test]
fn a_plain_model_computes_the_formulas_in_f32() {
    let checkpoint = open(&plain()).unwrap();
    assert_eq!(checkpoint.config.dtype, DType::F32);
    verify(&checkpoint.module).unwrap();
    let value = |name: &str| {
        let (_, shape) = shapes().into_iter().find(|(n, _)| n == name).unwrap();
        numbers(name, shape.iter().product::<u64>() as usize)
            .into_iter()
            .map(f64::from)
            .collect()
    };
    let want = Formulas(&value).logits(&IDS);
    assert_close(&logits(&checkpoint, &[&IDS]), &want, 2e-5);
    assert_close(
        &logits(&checkpoint, &[&IDS[..3], &IDS[3..4], &IDS[4..]]),
        &want,
        2e-5,
    );
}

#[test]
fn blocks_stay_compressed_and_compute_the_formulas_in_f16() {
    let checkpoint = open(&blocks()).unwrap();
    assert_eq!(
        (checkpoint.config.dtype, checkpoint.config.tied),
        (DType::F16, true)
    );
    verify(&checkpoint.module).unwrap();
    let nodes = &checkpoint.module.graph("main").unwrap().body.nodes;
    let constants = nodes.iter().filter_map(|n| {
        if let Op::Constant(c) = &n.op {
            Some(&c.0)
        } else {
            None
        }
    });
    let matrices: Vec<_> = constants.filter(|c| c.ty.rank() == 2).collect();
    assert_eq!(
        matrices.len(),
        1 + 7 * LAYERS,
        "a tied embedding is one constant"
    );
    assert!(
        matrices
            .iter()
            .all(|c| matches!(c.storage, Storage::Blocks(BlockFormat::Q8_0, _)))
    );
    let file = Gguf::read(SharedBytes::from_vec(blocks().finish())).unwrap();
    let value = |name: &str| {
        let tensor = file.tensor(name).unwrap();
        let data = file.data(tensor).unwrap();
        let mut out = vec![0f32; tensor.elements().unwrap() as usize];
        if tensor.shape().len() == 1 {
            out = numbers(name, out.len());
        } else {
            BlockFormat::Q8_0.dequantize(&data, &mut out);
        }
        out.into_iter().map(f64::from).collect()
    };
    assert_close(
        &logits(&checkpoint, &[&IDS[..5], &IDS[5..]]),
        &Formulas(&value).logits(&IDS),
        0.03,
    );
}

#[test]
fn the_function_is_that_of_a_bundle() {
    let checkpoint = open(&blocks()).unwrap();
    let main = checkpoint.module.functions().next().unwrap();
    let inputs: Vec<_> = main
        .inputs
        .iter()
        .map(|p| (&*p.name, p.ty.to_string()))
        .collect();
    assert_eq!(
        inputs[0],
        ("input_ids", "tensor<1x?xi32>".into()),
        "{inputs:?}"
    );
    assert_eq!(inputs[1].0, "position_ids");
    assert!(
        matches!(&main.inputs[2].ty, Type::Handle(t) if t.fixed_shape().unwrap() == [LAYERS, 1, KV_HEADS, 16, HEAD])
    );
    let outputs: Vec<_> = main.outputs.iter().map(|p| &*p.name).collect();
    assert_eq!(outputs, ["keyCache", "valueCache", "logits"]);
}

#[test]
fn the_context_is_bounded_by_that_of_the_file() {
    let file = Gguf::read(SharedBytes::from_vec(blocks().finish())).unwrap();
    for (asked, got) in [(None, 16), (Some(4), 4), (Some(1000), 16), (Some(0), 1)] {
        assert_eq!(
            from_gguf(
                &file,
                Options {
                    context: asked,
                    ..Options::default()
                }
            )
            .unwrap()
            .config
            .context,
            got
        );
    }
}

#[test]
fn models_that_would_be_computed_wrongly_are_refused() {
    let fails = |w: Writer| open(&w).unwrap_err().to_string();
    assert!(fails(Writer::new()).contains("\"general.architecture\" at byte 0: is missing"));
    assert!(
        fails(Writer::new().pair("general.architecture", "mamba"))
            .contains("\"mamba\" is not known")
    );
    assert!(fails(config()).contains("token_embd.weight"));
    assert!(
        fails(plain().floats("rope_freqs.weight", &[4], &[1.0; 4]))
            .contains("\"rope_freqs.weight\" has no place")
    );
    assert!(
        fails(plain().pair("llama.rope.scaling.type", "yarn"))
            .contains("\"yarn\", which is not supported")
    );
    assert!(
        fails(plain().pair("llama.expert_count", Item::U32(8)))
            .contains("is 8, which is not supported")
    );
    assert!(
        fails(plain().pair("llama.vocab_size", Item::U32(12)))
            .contains("the embedding has 11 rows")
    );
    assert!(
        fails(plain().pair("llama.rope.dimension_count", Item::U32(4)))
            .contains("only the width of a head")
    );
    let head = plain().tensor(
        "output.weight",
        &[VOCAB as u64, 256],
        10,
        vec![0; 84 * VOCAB],
    );
    assert!(fails(head).contains("has shape [11, 256] where [11, 32] is needed"));
}

#[test]
fn the_fuzzers_seed_is_current() {
    assert_seed("llama", &blocks());
}
