//! A tokenizer from a GGUF file's metadata: byte-level BPE with the pre-tokenizer that `tokenizer.ggml.pre` names.

use russet_formats::gguf::{GgufTokenizer, TokenKind};
use serde_json::{Value, json};

use super::{Tokenizer, TokenizerError};

/// Words with their space, digits one by one or in threes, punctuation, spaces: the split of Llama 3.
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// The same with single digits: the split of Qwen 2.
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// How text is cut before merging.
enum Split {
    /// GPT-2's own expression.
    Gpt2,
    /// Digits one by one, then GPT-2's expression.
    Digits,
    /// An expression.
    Pattern(&'static str),
}

/// Names of `tokenizer.ggml.pre` and their split.
const SPLITS: [(&str, Split); 9] = [
    ("gpt-2", Split::Gpt2),
    ("default", Split::Gpt2),
    ("smollm", Split::Digits),
    ("starcoder", Split::Digits),
    ("refact", Split::Digits),
    ("llama-bpe", Split::Pattern(LLAMA3)),
    ("llama3", Split::Pattern(LLAMA3)),
    ("llama-v3", Split::Pattern(LLAMA3)),
    ("qwen2", Split::Pattern(QWEN2)),
];

fn pre_tokenizer(split: &Split) -> Value {
    let bytes = |use_regex: bool| json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": use_regex});
    match split {
        Split::Gpt2 => bytes(true),
        Split::Digits => json!({"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": true}, bytes(true)]}),
        Split::Pattern(pattern) => json!({"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false}, bytes(false)]}),
    }
}

/// Builds the tokenizer that a GGUF file describes.
pub fn from_gguf(gguf: &GgufTokenizer) -> Result<Tokenizer, TokenizerError> {
    if &*gguf.model != "gpt2" {
        return Err(TokenizerError::Checkpoint(format!("kind {:?} is not supported (known: gpt2)", gguf.model)));
    }
    let pre = gguf.pre.as_deref().unwrap_or("default");
    let known = || SPLITS.iter().map(|(n, _)| *n).collect::<Vec<_>>().join(", ");
    let unknown = || TokenizerError::Checkpoint(format!("pre-tokenizer {pre:?} is not supported (known: {})", known()));
    let (_, split) = SPLITS.iter().find(|(name, _)| *name == pre).ok_or_else(unknown)?;
    let vocab: serde_json::Map<String, Value> = gguf.tokens.iter().zip(0u32..).map(|(t, id)| (t.to_string(), id.into())).collect();
    let merges: Vec<[&str; 2]> = gguf.merges.iter().map(|(a, b)| [&**a, &**b]).collect();
    let kinds = gguf.tokens.iter().zip(&gguf.token_types).zip(0u32..);
    let added: Vec<Value> = kinds.filter_map(|((text, kind), id)| added_token(text, *kind, id)).collect();
    let file = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": null,
        "pre_tokenizer": pre_tokenizer(split), "post_processor": null,
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                  "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "vocab": vocab, "merges": merges},
    });
    let bytes = serde_json::to_vec(&file).map_err(|e| TokenizerError::Checkpoint(e.to_string()))?;
    Tokenizer::from_json(&bytes).map_err(|e| TokenizerError::Checkpoint(e.to_string()))
}

fn added_token(text: &str, kind: TokenKind, id: u32) -> Option<Value> {
    let special = matches!(kind, TokenKind::Control | TokenKind::Unknown);
    (special || kind == TokenKind::UserDefined).then(|| {
        json!({"id": id, "content": text, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": special})
    })
}
