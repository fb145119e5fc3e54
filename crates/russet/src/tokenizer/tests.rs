//! Tokenizers on a small byte-level vocabulary.

use std::sync::Arc;

use russet_formats::gguf::{GgufTokenizer, TokenKind};
use serde_json::{Map, Value, json};

use super::*;

/// The tokenizer of the small bundles under `fixtures/lm`.
pub(crate) fn tiny() -> Tokenizer {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../fixtures/lm/qwen3-4bit/tokenizer/tokenizer.json"
    );
    Tokenizer::from_json(&std::fs::read(path).expect("a committed fixture")).expect("a tokenizer")
}

/// A tokenizer in the manner of Llama 2: 256 byte tokens, words that begin with `▁`, a decoder that strips the first space.
pub(crate) fn fallback() -> Tokenizer {
    let bytes = (0..256).map(|b| format!("<0x{b:02X}>"));
    let words = ["<s>", "▁", "▁a", "a", "b", "h", "n", "m", "e"]
        .into_iter()
        .map(str::to_owned);
    let vocab: Map<String, Value> = bytes
        .chain(words)
        .zip(0u32..)
        .map(|(t, id)| (t, id.into()))
        .collect();
    let special = json!({"id": 256, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false,
                         "normalized": false, "special": true});
    let file = json!({
        "version": "1.0", "added_tokens": [special], "pre_tokenizer": null, "post_processor": null,
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "unk_token": null, "fuse_unk": true, "byte_fallback": true, "vocab": vocab, "merges": [["▁", "a"]]},
    });
    Tokenizer::from_json(file.to_string().as_bytes()).unwrap()
}

/// A tokenizer in the manner of T5: single characters, of which `▁` is the space, chosen by a unigram model.
pub(crate) fn metaspace() -> Tokenizer {
    let characters = ('!'..='~').chain(['▁', '\n', 'é', '🦀']);
    let characters = characters.map(|c| json!([c.to_string(), -3.0]));
    let vocab: Vec<Value> = [json!(["<unk>", 0.0])]
        .into_iter()
        .chain(characters)
        .collect();
    let space =
        json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never", "split": false});
    let file = json!({
        "version": "1.0", "added_tokens": [], "normalizer": null, "post_processor": null,
        "pre_tokenizer": space, "decoder": space,
        "model": {"type": "Unigram", "unk_id": 0, "vocab": vocab, "byte_fallback": false},
    });
    Tokenizer::from_json(file.to_string().as_bytes()).unwrap()
}

#[test]
fn text_survives() {
    let t = tiny();
    for text in ["the quick brown fox", "naïve 🦀\n\ttabs", ""] {
        assert_eq!(
            t.decode(&t.encode(text, false).unwrap(), true).unwrap(),
            text
        );
    }
    let end = t.id("<|im_end|>").unwrap();
    assert_eq!(t.encode("a<|im_end|>", false).unwrap().last(), Some(&end));
    assert_eq!(t.decode(&[end], true).unwrap(), "");
    assert_eq!(t.decode(&[end], false).unwrap(), "<|im_end|>");
    assert!(t.special_tokens().any(|(id, _)| id == end));
}

#[test]
fn errors_name_the_file() {
    assert!(
        Tokenizer::from_json(b"{}")
            .unwrap_err()
            .to_string()
            .starts_with("tokenizer.json: ")
    );
}

#[test]
fn a_checkpoints_vocabulary_becomes_a_tokenizer() {
    let tokens = ["a", "b", "ab", "1", "2", "12", "<|end|>"];
    let gguf = GgufTokenizer {
        model: Arc::from("gpt2"),
        pre: Some(Arc::from("smollm")),
        tokens: tokens.iter().map(|t| Arc::from(*t)).collect(),
        token_types: (0..7)
            .map(|i| {
                if i == 6 {
                    TokenKind::Control
                } else {
                    TokenKind::Normal
                }
            })
            .collect(),
        merges: vec![("a".into(), "b".into()), ("1".into(), "2".into())],
        ..empty()
    };
    let t = from_gguf(&gguf).unwrap();
    // Digits stand alone before merging, so "12" is never one token.
    assert_eq!(t.encode("ab12<|end|>", false).unwrap(), [2, 3, 4, 6]);
    assert!(t.is_special(6) && !t.is_special(2));
    assert_eq!(t.decode(&[2, 6], true).unwrap(), "ab");
    let other = GgufTokenizer {
        pre: Some(Arc::from("martian")),
        ..gguf.clone()
    };
    assert!(
        from_gguf(&other)
            .unwrap_err()
            .to_string()
            .contains("\"martian\" is not supported")
    );
    let other = GgufTokenizer {
        model: Arc::from("llama"),
        ..gguf
    };
    assert!(
        from_gguf(&other)
            .unwrap_err()
            .to_string()
            .contains("\"llama\" is not supported")
    );
}

/// A vocabulary of all bytes, `123` with a way to it that cuts may close, and the ends of a text.
fn numbers(pre: &str) -> GgufTokenizer {
    let letters = ["1", "2", "3", "a", "Ġ", "!", "12", "123", "<s>", "</s>"];
    GgufTokenizer {
        pre: Some(Arc::from(pre)),
        tokens: letters.iter().map(|t| Arc::from(*t)).collect(),
        token_types: (0..letters.len())
            .map(|i| {
                if i < 8 {
                    TokenKind::Normal
                } else {
                    TokenKind::Control
                }
            })
            .collect(),
        merges: vec![("1".into(), "2".into())],
        bos: Some(8),
        eos: Some(9),
        ..empty()
    }
}

#[test]
fn pre_tokenizers_cut_as_their_names_say() {
    // `123` cannot be reached by merges: only a split that takes whole pieces finds it.
    let cases: [(&str, &str, &[u32]); 6] = [
        ("gpt-2", "a123", &[3, 6, 2]),
        ("smollm", "a123", &[3, 0, 1, 2]),
        ("qwen2", "a123", &[3, 0, 1, 2]),
        ("llama-bpe", "a123", &[3, 7]),
        ("llama3", "1231", &[7, 0]),
        ("default", "a!! 12", &[3, 5, 5, 4, 6]),
    ];
    for (pre, text, expected) in cases {
        let t = from_gguf(&numbers(pre)).unwrap();
        assert_eq!(t.encode(text, false).unwrap(), expected, "{pre}");
        assert_eq!(t.decode(expected, true).unwrap(), text, "{pre}");
    }
}

#[test]
fn the_file_says_what_stands_around_a_text() {
    let ends = |pre: &str, add_bos, add_eos| {
        let gguf = GgufTokenizer {
            add_bos,
            add_eos,
            ..numbers(pre)
        };
        from_gguf(&gguf).unwrap().encode("a", true).unwrap()
    };
    assert_eq!(ends("smollm", None, None), [3]);
    assert_eq!(
        ends("llama-bpe", None, None),
        [8, 3],
        "Llama 3 wants it unless the file says no"
    );
    assert_eq!(ends("llama-bpe", Some(false), None), [3]);
    assert_eq!(ends("smollm", Some(true), Some(true)), [8, 3, 9]);
}

#[test]
fn a_broken_vocabulary_is_an_error() {
    let gguf = GgufTokenizer {
        merges: vec![("x".into(), "y".into())],
        ..numbers("gpt-2")
    };
    assert!(
        from_gguf(&gguf)
            .unwrap_err()
            .to_string()
            .starts_with("the checkpoint's tokenizer: ")
    );
}

#[test]
fn truncation_from_training_is_dropped() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../fixtures/lm/qwen3-4bit/tokenizer/tokenizer.json"
    );
    let mut file: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    file["truncation"] = serde_json::json!({"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0});
    let t = Tokenizer::from_json(file.to_string().as_bytes()).unwrap();
    assert_eq!(
        t.encode("one two three", false).unwrap(),
        tiny().encode("one two three", false).unwrap()
    );
}

fn empty() -> GgufTokenizer {
    GgufTokenizer {
        model: Arc::from("gpt2"),
        pre: None,
        tokens: Vec::new(),
        token_types: Vec::new(),
        scores: Vec::new(),
        merges: Vec::new(),
        bos: None,
        eos: None,
        eot: None,
        eom: None,
        unknown: None,
        padding: None,
        add_bos: None,
        add_eos: None,
        add_space_prefix: None,
        chat_template: None,
        named_templates: Vec::new(),
    }
}
