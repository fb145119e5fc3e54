//! Small files, written here, whole and broken.

use super::testing::{Item, Writer, assert_seed, sample};
use super::*;
use russet_graph::types::DType;
use russet_kernels::quant::BlockFormat;

fn read(bytes: Vec<u8>) -> Result<Gguf> {
    Gguf::read(SharedBytes::from_vec(bytes))
}

fn error(writer: &Writer) -> GgufError {
    read(writer.finish()).unwrap_err()
}

#[test]
fn every_kind_of_value_is_read() {
    let file = read(sample().finish()).unwrap();
    let m = file.metadata();
    assert_eq!((file.version(), m.entries().len()), (3, 20));
    assert_eq!(
        m.text("general.architecture").unwrap().map(|s| &**s),
        Some("llama")
    );
    assert_eq!(m.u64("test.u8").unwrap(), Some(200));
    assert!(matches!(m.get("test.i32"), Some(Value::Signed(-5))));
    assert_eq!(m.u64("test.u64").unwrap(), Some(1 << 40));
    assert_eq!(
        (m.f64("test.f32").unwrap(), m.f64("test.f64").unwrap()),
        (Some(0.5), Some(-0.25))
    );
    assert_eq!(
        (m.bool("test.bool").unwrap(), m.bool("absent").unwrap()),
        (Some(true), None)
    );
    let nested = m.array("test.nested").unwrap().unwrap();
    let Some(Ok(Value::Array(inner))) = nested.items().next() else {
        panic!("an array of arrays")
    };
    let inner: Vec<_> = inner
        .items()
        .map(|v| {
            if let Ok(Value::Str(s)) = v {
                s
            } else {
                panic!("text")
            }
        })
        .collect();
    assert_eq!(inner.iter().map(|s| &**s).collect::<Vec<_>>(), ["a", "b"]);
}

#[test]
fn tensors_are_slices_of_the_file() {
    let bytes = SharedBytes::from_vec(sample().finish());
    let file = Gguf::read(bytes.clone()).unwrap();
    let weight = file.tensor("weight").unwrap();
    assert_eq!(
        weight.shape().collect::<Vec<_>>(),
        [2, 32],
        "outermost first"
    );
    assert_eq!(
        weight.kind().decoding(),
        Some(Decoding::Blocks(BlockFormat::Q4_1))
    );
    let data = file.data(weight).unwrap();
    assert_eq!(data[..], (0..40).collect::<Vec<u8>>());
    assert!(bytes.as_ptr_range().contains(&data.as_ptr()), "not copied");
    assert!(
        data.as_ptr()
            .addr()
            .wrapping_sub(bytes.as_ptr().addr())
            .is_multiple_of(32)
    );
    let norm = file.tensor("norm").unwrap();
    assert_eq!(norm.kind().decoding(), Some(Decoding::Dense(DType::F32)));
    assert_eq!(file.data(norm).unwrap()[4..8], 2f32.to_le_bytes());
    assert!(file.tensor("absent").is_none());
}

#[test]
fn types_that_cannot_be_decoded_are_named() {
    let file = read(sample().tensor("odd", &[3], 77, vec![]).finish()).unwrap();
    let closed = file.tensor("closed").unwrap();
    assert_eq!(
        (closed.kind().decoding(), closed.kind().to_string()),
        (None, "Q2_K".into())
    );
    assert_eq!(file.data(closed).unwrap().len(), 84);
    let odd = file
        .data(file.tensor("odd").unwrap())
        .unwrap_err()
        .to_string();
    assert!(
        odd.contains("tensor \"odd\"") && odd.contains("type 77"),
        "{odd}"
    );
}

#[test]
fn version_2_is_read_and_others_are_refused() {
    let with = |version| Writer {
        version,
        ..sample()
    };
    assert_eq!(read(with(2).finish()).unwrap().version(), 2);
    assert_eq!(error(&with(1)).problem, Problem::Version(1));
    assert_eq!(error(&with(4)).problem, Problem::Version(4));
    assert_eq!(error(&with(3u32.swap_bytes())).problem, Problem::BigEndian);
    assert_eq!(
        read(b"GGML\x03\0\0\0".to_vec()).unwrap_err().problem,
        Problem::Magic
    );
    assert_eq!(
        read(vec![]).unwrap_err().problem,
        Problem::Truncated("the magic number")
    );
}

#[test]
fn the_tokenizer_is_plain_data() {
    let t = read(sample().finish())
        .unwrap()
        .tokenizer()
        .unwrap()
        .unwrap();
    assert_eq!((&*t.model, t.pre.as_deref()), ("gpt2", Some("smollm")));
    assert_eq!(t.tokens.len(), 4);
    assert_eq!(
        t.token_types,
        [
            TokenKind::Normal,
            TokenKind::Normal,
            TokenKind::Control,
            TokenKind::Byte
        ]
    );
    assert_eq!(t.scores, [0.5, -1.0, 0.0, 2.0]);
    assert_eq!(
        t.merges,
        [("a".into(), "b".into()), ("Ġ".into(), "ab".into())]
    );
    assert_eq!((t.bos, t.eos, t.stop_tokens()), (None, Some(2), vec![2]));
    assert_eq!((t.add_bos, t.add_eos), (Some(false), None));
    assert_eq!(t.chat_template.as_deref(), Some("{{ messages }}"));
    assert_eq!(
        t.named_templates,
        [("tool_use".into(), "{{ tools }}".into())]
    );
    assert!(
        read(Writer::new().finish())
            .unwrap()
            .tokenizer()
            .unwrap()
            .is_none()
    );
}

#[test]
fn tokenizer_keys_that_contradict_are_refused() {
    let base = || Writer::new().pair("tokenizer.ggml.model", "gpt2");
    let fails = |w: Writer| {
        read(w.finish())
            .unwrap()
            .tokenizer()
            .unwrap_err()
            .to_string()
    };
    assert!(fails(base()).contains("\"tokenizer.ggml.tokens\" at byte 0: is missing"));
    let base = || base().pair("tokenizer.ggml.tokens", Item::texts(&["a"]));
    assert!(
        fails(base().pair("tokenizer.ggml.eos_token_id", Item::U32(1))).contains("token 1 of 1")
    );
    assert!(
        fails(base().pair("tokenizer.ggml.merges", Item::texts(&["ab"])))
            .contains("a space between")
    );
    let types = Item::Array(vec![Item::I32(1); 2]);
    assert!(
        fails(base().pair("tokenizer.ggml.token_type", types)).contains("2 items for 1 tokens")
    );
    assert!(
        fails(base().pair("tokenizer.ggml.bos_token_id", "x")).contains("a non-negative integer")
    );
}

#[test]
fn hostile_numbers_are_refused_with_their_place() {
    let base = Writer::new;
    assert_eq!(
        error(&base().pair("a", Item::U8(1)).pair("a", Item::U8(1))).problem,
        Problem::Twice
    );
    assert_eq!(
        error(&base().floats("t", &[1], &[0.0]).floats("t", &[1], &[0.0])).problem,
        Problem::Twice
    );
    let huge = error(&base().tensor("t", &[1 << 33, 1 << 33], 0, vec![]));
    assert_eq!(huge.place, Place::Tensor("t".into()));
    assert!(matches!(huge.problem, Problem::Extents(_)));
    let wraps = error(&base().tensor("t", &[1 << 62], 0, vec![]));
    assert!(
        matches!(wraps.problem, Problem::Extents(_)),
        "bytes overflow where elements do not"
    );
    assert!(matches!(
        error(&base().tensor("t", &[64], 0, vec![0; 8])).problem,
        Problem::OutsideFile { .. }
    ));
    assert!(matches!(
        error(&base().tensor("t", &[1; 5], 0, vec![0; 4])).problem,
        Problem::Limit { limit: 4, .. }
    ));
    assert!(matches!(
        error(&base().tensor("t", &[2, 33], 3, vec![0; 99])).problem,
        Problem::Row { row: 33, .. }
    ));
    for bad in [0, 3, u32::MAX] {
        assert_eq!(
            error(&base().pair("general.alignment", Item::U32(bad))).problem,
            Problem::Alignment(bad.into())
        );
    }
    let off = Writer {
        alignment: 8,
        ..base()
    }
    .floats("a", &[1], &[0.0])
    .floats("b", &[1], &[0.0]);
    assert!(matches!(
        error(&off).problem,
        Problem::Misaligned {
            offset: 8,
            alignment: 32
        }
    ));
    let deep = (0..20).fold(Item::U8(1), |item, _| Item::Array(vec![item]));
    let deep = error(&base().pair("deep", deep));
    assert_eq!(
        (deep.problem, deep.place),
        (Problem::Depth(8), Place::Key("deep".into()))
    );
}

/// Overwrites eight bytes.
fn with_u64(mut bytes: Vec<u8>, at: usize, value: u64) -> Vec<u8> {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
    bytes
}

#[test]
fn counts_are_checked_against_the_bytes_that_are_left() {
    let whole = sample().finish();
    for value in [whole.len() as u64, u64::from(u32::MAX), 1 << 60, u64::MAX] {
        for (at, what) in [(8, "the tensor count"), (16, "the pair count")] {
            let problem = read(with_u64(whole.clone(), at, value))
                .unwrap_err()
                .problem;
            assert!(
                matches!(problem, Problem::Limit { what: w, .. } if w == what),
                "{problem:?}"
            );
        }
        let key = read(with_u64(whole.clone(), 24, value)).unwrap_err();
        assert_eq!((key.offset, key.place), (24, Place::Pair(0)));
        let tokens = whole.windows(9).position(|w| w == b"ml.tokens").unwrap() + 9 + 8;
        let tokens = read(with_u64(whole.clone(), tokens, value)).unwrap_err();
        assert_eq!(tokens.place, Place::Key("tokenizer.ggml.tokens".into()));
        assert!(matches!(
            tokens.problem,
            Problem::Limit {
                what: "the length of an array",
                ..
            }
        ));
    }
}

/// Everything that can be asked of a file.
fn explore(bytes: Vec<u8>) -> Result<()> {
    let file = read(bytes)?;
    for entry in file.metadata().entries() {
        if let Value::Array(array) = &entry.value {
            array.items().try_for_each(|item| item.map(|_| ()))?;
        }
    }
    file.tensors()
        .iter()
        .try_for_each(|t| file.data(t).map(|_| ()))?;
    file.tokenizer().map(|_| ())
}

#[test]
fn every_cut_is_an_error_that_names_a_place() {
    let whole = sample().finish();
    let end = whole.len();
    explore(whole.clone()).unwrap();
    for cut in 0..end {
        let error = explore(whole[..cut].to_vec()).expect_err("a file that is cut");
        assert!(error.offset <= cut, "{error}");
        assert!(!error.to_string().is_empty());
    }
}

#[test]
fn every_flip_is_read_or_refused() {
    let whole = sample().finish();
    let (mut read, mut refused) = (0, 0);
    for at in 0..whole.len() {
        for bit in 0..8 {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << bit;
            if explore(bytes).is_ok() {
                read += 1;
            } else {
                refused += 1;
            }
        }
    }
    assert!(
        read > 1000 && refused > 1000,
        "{read} read, {refused} refused"
    );
}

#[test]
fn the_fuzzers_seeds_are_current() {
    let version2 = Writer {
        version: 2,
        ..sample()
    };
    assert_seed("sample", &sample());
    assert_seed("version2", &version2);
    assert_seed("empty", &Writer::new());
}
