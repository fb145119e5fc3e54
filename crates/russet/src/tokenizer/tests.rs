//! Tokenizers on a small byte-level vocabulary.

use std::sync::Arc;

use russet_formats::gguf::{GgufTokenizer, TokenKind};

use super::*;

/// The tokenizer of the small bundles under `fixtures/lm`.
pub(crate) fn tiny() -> Tokenizer {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/lm/qwen3-4bit/tokenizer/tokenizer.json");
    Tokenizer::from_json(&std::fs::read(path).expect("a committed fixture")).expect("a tokenizer")
}

#[test]
fn text_survives() {
    let t = tiny();
    for text in ["the quick brown fox", "naïve 🦀\n\ttabs", ""] {
        assert_eq!(t.decode(&t.encode(text, false).unwrap(), true).unwrap(), text);
    }
    let end = t.id("<|im_end|>").unwrap();
    assert_eq!(t.encode("a<|im_end|>", false).unwrap().last(), Some(&end));
    assert_eq!(t.decode(&[end], true).unwrap(), "");
    assert_eq!(t.decode(&[end], false).unwrap(), "<|im_end|>");
    assert!(t.special_tokens().any(|(id, _)| id == end));
}

#[test]
fn errors_name_the_file() {
    assert!(Tokenizer::from_json(b"{}").unwrap_err().to_string().starts_with("tokenizer.json: "));
}

#[test]
fn a_checkpoints_vocabulary_becomes_a_tokenizer() {
    let tokens = ["a", "b", "ab", "1", "2", "12", "<|end|>"];
    let gguf = GgufTokenizer {
        model: Arc::from("gpt2"),
        pre: Some(Arc::from("smollm")),
        tokens: tokens.iter().map(|t| Arc::from(*t)).collect(),
        token_types: (0..7).map(|i| if i == 6 { TokenKind::Control } else { TokenKind::Normal }).collect(),
        merges: vec![("a".into(), "b".into()), ("1".into(), "2".into())],
        ..empty()
    };
    let t = from_gguf(&gguf).unwrap();
    // Digits stand alone before merging, so "12" is never one token.
    assert_eq!(t.encode("ab12<|end|>", false).unwrap(), [2, 3, 4, 6]);
    let other = GgufTokenizer { pre: Some(Arc::from("martian")), ..gguf.clone() };
    assert!(from_gguf(&other).unwrap_err().to_string().contains("\"martian\" is not supported"));
    let other = GgufTokenizer { model: Arc::from("llama"), ..gguf };
    assert!(from_gguf(&other).unwrap_err().to_string().contains("\"llama\" is not supported"));
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
