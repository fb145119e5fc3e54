//! A tokenizer from a GGUF file's metadata: byte-level BPE with the pre-tokenizer that `tokenizer.ggml.pre` names.
//!
//! The file says how to cut text by a name only; what the name stands for is known from the tokenizers that the names were
//! given to (`tokenizer.json` of the models) and from `llama.cpp`, which reads these files. Each is a list of expressions,
//! applied one after the other: every match stands alone, and so does what lies between matches.

use russet_formats::gguf::{GgufTokenizer, TokenKind};
use serde_json::{Map, Value, json};
use tokenizers::AddedToken;
use tokenizers::models::bpe::{BPE, Vocab};

use super::{Tokenizer, TokenizerError};

/// Words with their space, numbers, runs of signs, white space.
const GPT2: &[&str] = &[WORDS];
const WORDS: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
/// Digits one by one before that.
const DIGITS: &[&str] = &[r"\p{N}", WORDS];
/// Llama 3: contractions in any case, digits in threes, line breaks apart.
const LLAMA3: &[&str] = &[
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
];
/// Qwen 2: the same with single digits.
const QWEN2: &[&str] = &[
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
];
/// Files that were made before there were names: runs of punctuation first, digits in threes last.
const UNNAMED: &[&str] = &[r"[\p{P}\$\+<=>\^~\|]+", WORDS, r"\p{N}+", "[0-9][0-9][0-9]"];

/// What a name of `tokenizer.ggml.pre` stands for.
struct Pre {
    name: &'static str,
    cuts: &'static [&'static str],
    /// A piece that is a token as a whole is not merged from parts; and `bos` stands before a text unless the file says no.
    /// Both came with Llama 3.
    llama3: bool,
}

const fn pre(name: &'static str, cuts: &'static [&'static str], llama3: bool) -> Pre {
    Pre { name, cuts, llama3 }
}

const PRES: [Pre; 23] = [
    pre("default", UNNAMED, false),
    pre("gpt-2", GPT2, false),
    pre("phi-2", GPT2, false),
    pre("mpt", GPT2, false),
    pre("olmo", GPT2, false),
    pre("jais", GPT2, false),
    pre("exaone4", GPT2, false),
    pre("smollm", DIGITS, false),
    pre("starcoder", DIGITS, false),
    pre("refact", DIGITS, false),
    pre("command-r", DIGITS, false),
    pre("codeshell", DIGITS, false),
    pre("exaone", DIGITS, false),
    pre("minerva-7b", DIGITS, false),
    pre("llama-bpe", LLAMA3, true),
    pre("llama3", LLAMA3, true),
    pre("llama-v3", LLAMA3, true),
    pre("dbrx", LLAMA3, false),
    pre("smaug-bpe", LLAMA3, false),
    pre("qwen2", QWEN2, false),
    pre("stablelm2", QWEN2, false),
    pre("deepseek-r1-qwen", QWEN2, false),
    pre("hunyuan", QWEN2, false),
];

/// Builds the tokenizer that a GGUF file describes.
///
/// # Errors
/// [`TokenizerError::Checkpoint`] for an algorithm or a pre-tokenizer that is not known, and for merges of tokens that are not
/// there.
pub fn from_gguf(gguf: &GgufTokenizer) -> Result<Tokenizer, TokenizerError> {
    let fail = |reason: String| TokenizerError::Checkpoint(reason);
    if &*gguf.model != "gpt2" {
        return Err(fail(format!(
            "kind {:?} is not supported (known: gpt2)",
            gguf.model
        )));
    }
    let name = gguf.pre.as_deref().unwrap_or("default");
    let known = || PRES.iter().map(|p| p.name).collect::<Vec<_>>().join(", ");
    let pre = PRES.iter().find(|p| p.name == name);
    let pre = pre.ok_or_else(|| {
        fail(format!(
            "pre-tokenizer {name:?} is not supported (known: {})",
            known()
        ))
    })?;
    let bytes = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false});
    let cuts: Vec<Value> = pre
        .cuts
        .iter()
        .map(|c| cut(c))
        .chain([bytes.clone()])
        .collect();
    let around_it = json!({
        "version": "1.0",
        "added_tokens": [],
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": cuts},
        "post_processor": around(gguf, pre),
        "decoder": bytes,
        "model": {"type": "BPE", "vocab": {}, "merges": []},
    });
    let fail = |e: tokenizers::Error| TokenizerError::Checkpoint(e.to_string());
    let mut inner: tokenizers::Tokenizer = around_it.to_string().parse().map_err(fail)?;
    // The vocabulary goes in as it is: by way of JSON it would take several times as long.
    inner.with_model(model(gguf, pre).map_err(fail)?);
    let kinds = gguf.tokens.iter().zip(&gguf.token_types);
    let added: Vec<AddedToken> = kinds
        .filter_map(|(text, kind)| added_token(text, *kind))
        .collect();
    inner.add_tokens(&added);
    Ok(Tokenizer::wrap(inner))
}

fn cut(expression: &str) -> Value {
    json!({"type": "Split", "pattern": {"Regex": expression}, "behavior": "Isolated", "invert": false})
}

fn model(gguf: &GgufTokenizer, pre: &Pre) -> Result<BPE, tokenizers::Error> {
    let vocab: Vocab = gguf
        .tokens
        .iter()
        .zip(0u32..)
        .map(|(t, id)| (t.to_string(), id))
        .collect();
    let merges = gguf
        .merges
        .iter()
        .map(|(a, b)| (a.to_string(), b.to_string()))
        .collect();
    BPE::builder()
        .vocab_and_merges(vocab, merges)
        .ignore_merges(pre.llama3)
        .build()
}

/// The token, where it is matched whole in text.
fn added_token(text: &str, kind: TokenKind) -> Option<AddedToken> {
    let special = matches!(kind, TokenKind::Control | TokenKind::Unknown);
    let added = special || kind == TokenKind::UserDefined;
    added.then(|| AddedToken::from(text, special).normalized(false))
}

/// The tokens around a text: `bos` and `eos` where the file wants them.
fn around(gguf: &GgufTokenizer, pre: &Pre) -> Value {
    let first = gguf.bos.filter(|_| gguf.add_bos.unwrap_or(pre.llama3));
    let last = gguf.eos.filter(|_| gguf.add_eos.unwrap_or(false));
    let token = |id: u32| Some((&**gguf.tokens.get(usize::try_from(id).ok()?)?, id));
    let (first, last) = (first.and_then(token), last.and_then(token));
    let piece = |(text, _): (&str, u32)| json!({"SpecialToken": {"id": text, "type_id": 0}});
    let sequence = |id: &str| json!({"Sequence": {"id": id, "type_id": 0}});
    let wrap = |inner: Value| {
        [first.map(piece), Some(inner), last.map(piece)]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
    };
    let tokens = [first, last].into_iter().flatten();
    let tokens: Map<String, Value> = tokens
        .map(|(text, id)| {
            (
                text.to_string(),
                json!({"id": text, "ids": [id], "tokens": [text]}),
            )
        })
        .collect();
    if tokens.is_empty() {
        return Value::Null;
    }
    let pair: Vec<Value> = wrap(sequence("A"))
        .into_iter()
        .chain(wrap(sequence("B")))
        .collect();
    json!({"type": "TemplateProcessing", "single": wrap(sequence("A")), "pair": pair, "special_tokens": tokens})
}
