//! The tokenizer in the metadata, as plain data: whoever tokenises builds from it what it needs.

use std::sync::Arc;

use super::error::{Problem, Result};
use super::metadata::{Metadata, Value};

/// What a token is for (`enum llama_token_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TokenKind {
    /// Part of text.
    Normal,
    /// Stands for what has no token.
    Unknown,
    /// Steers the model; never part of text (`<|im_end|>`).
    Control,
    /// Added by a user; matched whole in text.
    UserDefined,
    /// Not used.
    Unused,
    /// One raw byte.
    Byte,
    /// A code this reader does not know.
    Other(i64),
}

impl TokenKind {
    fn from_value(value: &Value) -> Option<Self> {
        let code = match value {
            Value::Signed(v) => *v,
            Value::Unsigned(v) => i64::try_from(*v).ok()?,
            _ => return None,
        };
        Some(match code {
            1 => Self::Normal,
            2 => Self::Unknown,
            3 => Self::Control,
            4 => Self::UserDefined,
            5 => Self::Unused,
            6 => Self::Byte,
            other => Self::Other(other),
        })
    }
}

/// The `tokenizer.` keys of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct GgufTokenizer {
    /// The algorithm (`tokenizer.ggml.model`): `gpt2` is byte-level BPE, `llama` SentencePiece, `bert` WordPiece.
    pub model: Arc<str>,
    /// How text is cut before merging (`tokenizer.ggml.pre`), such as `smollm` or `llama-bpe`.
    pub pre: Option<Arc<str>>,
    /// The text of every token, by id.
    pub tokens: Vec<Arc<str>>,
    /// What every token is for, by id. All [`TokenKind::Normal`] where the file does not say.
    pub token_types: Vec<TokenKind>,
    /// Scores by id (SentencePiece); empty where the file has none.
    pub scores: Vec<f32>,
    /// Pairs that merge, best first (BPE); empty where the file has none.
    pub merges: Vec<(Box<str>, Box<str>)>,
    /// Starts a text.
    pub bos: Option<u32>,
    /// Ends a text.
    pub eos: Option<u32>,
    /// Ends a turn.
    pub eot: Option<u32>,
    /// Ends a message.
    pub eom: Option<u32>,
    /// Stands for what has no token.
    pub unknown: Option<u32>,
    /// Fills up a batch.
    pub padding: Option<u32>,
    /// Whether `bos` is put before a text; `None` where the file leaves it to the algorithm.
    pub add_bos: Option<bool>,
    /// Whether `eos` is put after a text.
    pub add_eos: Option<bool>,
    /// Whether a space is put before a text.
    pub add_space_prefix: Option<bool>,
    /// The template that renders a conversation (Jinja).
    pub chat_template: Option<Arc<str>>,
    /// Further templates with their names (`tokenizer.chat_template.NAME`), such as `tool_use`.
    pub named_templates: Vec<(Arc<str>, Arc<str>)>,
}

const TOKENS: &str = "tokenizer.ggml.tokens";
const TYPES: &str = "tokenizer.ggml.token_type";
const SCORES: &str = "tokenizer.ggml.scores";
const MERGES: &str = "tokenizer.ggml.merges";

impl GgufTokenizer {
    pub(super) fn read(metadata: &Metadata) -> Result<Option<Self>> {
        let Some(model) = metadata.text("tokenizer.ggml.model")? else {
            return Ok(None);
        };
        let tokens = metadata.required(TOKENS, metadata.texts(TOKENS)?)?;
        let count = tokens.len();
        let kinds = per_token(metadata, TYPES, "an integer", count, TokenKind::from_value)?;
        let scores = per_token(metadata, SCORES, "a number", count, |v| {
            v.as_f64().map(|s| s as f32)
        })?;
        let id = |name: &str| token_id(metadata, &format!("tokenizer.ggml.{name}_token_id"), count);
        let flag = |name: &str| metadata.bool(&format!("tokenizer.ggml.{name}"));
        Ok(Some(Self {
            model: model.clone(),
            pre: metadata.text("tokenizer.ggml.pre")?.cloned(),
            token_types: kinds.unwrap_or_else(|| vec![TokenKind::Normal; count]),
            scores: scores.unwrap_or_default(),
            merges: merges(metadata)?,
            bos: id("bos")?,
            eos: id("eos")?,
            eot: id("eot")?,
            eom: id("eom")?,
            unknown: id("unknown")?,
            padding: id("padding")?,
            add_bos: flag("add_bos_token")?,
            add_eos: flag("add_eos_token")?,
            add_space_prefix: flag("add_space_prefix")?,
            chat_template: metadata.text("tokenizer.chat_template")?.cloned(),
            named_templates: named_templates(metadata),
            tokens,
        }))
    }

    /// The tokens after which an answer is over, each once: end of text, of turn and of message.
    pub fn stop_tokens(&self) -> Vec<u32> {
        let mut stops: Vec<u32> = [self.eos, self.eot, self.eom]
            .into_iter()
            .flatten()
            .collect();
        stops.sort_unstable();
        stops.dedup();
        stops
    }
}

/// An array with one item for each token.
fn per_token<T>(
    metadata: &Metadata,
    key: &str,
    expected: &'static str,
    count: usize,
    read: impl Fn(&Value) -> Option<T>,
) -> Result<Option<Vec<T>>> {
    let list = metadata.list(key, expected, read)?;
    match &list {
        Some(items) if items.len() != count => {
            let problem = Problem::Value(format!("has {} items for {count} tokens", items.len()));
            Err(metadata.error(key, problem))
        }
        _ => Ok(list),
    }
}

/// The id of a special token. An id the vocabulary does not have is an error.
fn token_id(metadata: &Metadata, key: &str, count: usize) -> Result<Option<u32>> {
    let Some(id) = metadata.u64(key)? else {
        return Ok(None);
    };
    let known = u32::try_from(id).ok().filter(|&i| (i as usize) < count);
    let outside = || metadata.error(key, Problem::Value(format!("token {id} of {count}")));
    known.map(Some).ok_or_else(outside)
}

/// Each merge is two tokens with a space between; a token of byte-level BPE has no space, but may start a line with one.
fn merges(metadata: &Metadata) -> Result<Vec<(Box<str>, Box<str>)>> {
    let split = |v: &Value| {
        let Value::Str(pair) = v else { return None };
        let first = pair.chars().next()?.len_utf8();
        let (head, tail) = pair.split_at_checked(first)?;
        let (rest, right) = tail.split_once(' ')?;
        Some((format!("{head}{rest}").into(), right.into()))
    };
    Ok(metadata
        .list(MERGES, "two tokens with a space between", split)?
        .unwrap_or_default())
}

fn named_templates(metadata: &Metadata) -> Vec<(Arc<str>, Arc<str>)> {
    let named = |e: &super::Entry| {
        let name = e.key.strip_prefix("tokenizer.chat_template.")?;
        if let Value::Str(text) = &e.value {
            Some((name.into(), text.clone()))
        } else {
            None
        }
    };
    metadata.entries().iter().filter_map(named).collect()
}
