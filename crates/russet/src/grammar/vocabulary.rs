//! A tokenizer's vocabulary as bytes, in a trie: what the matcher walks to know which tokens fit.
//!
//! What a token's text in the vocabulary means differs: byte-level tokenizers write each byte as a printable character (`Ġ` is a
//! space), byte-fallback tokenizers write text with `▁` for a space and single bytes as `<0x0A>`. The decoder in the tokenizer
//! file says which; guessing wrong makes grammars that no token fits (contract B §7.5). Numbers without a token are left out of
//! every mask, those beyond the logits are left out of the trie.

use std::sync::{Arc, OnceLock};

use llguidance::ParserFactory;
use llguidance::toktrie::{INVALID_TOKEN, TokEnv, TokRxInfo, TokTrie, TokenizerEnv};
use serde_json::Value;

use super::cache::Cache;
use super::close::Leads;
use super::error::GrammarError;
use super::forms::Forms;
use crate::tokenizer::Tokenizer;

/// The longest token that the trie takes, in bytes.
const LONGEST: usize = 1000;

/// The most tokens that the trie takes.
const MOST: usize = 1 << 21;

/// A tokenizer's tokens as a grammar sees them. Built once a model, shared by all its grammars.
pub struct Vocabulary {
    pub(super) factory: ParserFactory,
    pub(super) env: Arc<Tokens>,
    pub(super) cache: Cache,
    pub(super) ends: Vec<u32>,
    width: usize,
    quoting: OnceLock<Vec<u32>>,
    ending: OnceLock<Vec<u32>>,
    exponents: OnceLock<Vec<u32>>,
    forms: OnceLock<Forms>,
    leads: OnceLock<Leads>,
}

impl std::fmt::Debug for Vocabulary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Vocabulary")
            .field("width", &self.width)
            .field("ends", &self.ends)
            .finish_non_exhaustive()
    }
}

impl Vocabulary {
    /// The vocabulary of a tokenizer for a model with so many logits, whose turns end with any of the tokens `ends`. The logits
    /// may be more than the tokens (padding) or fewer.
    ///
    /// # Errors
    /// [`GrammarError::Vocabulary`] where the tokenizer's decoder is neither byte-level nor byte-fallback.
    pub fn new(
        tokenizer: &Tokenizer,
        ends: &[u32],
        logits: usize,
    ) -> Result<Arc<Self>, GrammarError> {
        let fail = |e: String| GrammarError::Vocabulary(e);
        if logits == 0 || logits > MOST {
            return Err(fail(format!("{logits} logits")));
        }
        let mut ends: Vec<u32> = ends.to_vec();
        ends.retain(|e| (*e as usize) < logits);
        let words = token_bytes(tokenizer, logits)?;
        let eos = ends.first().copied().unwrap_or(INVALID_TOKEN);
        let mut trie = TokTrie::from(&TokRxInfo::new(logits as u32, eos), &words);
        if !ends.is_empty() {
            trie = trie.with_eos_tokens(&ends);
        }
        let env = Arc::new(Tokens {
            trie,
            tokenizer: tokenizer.clone(),
        });
        let shared: TokEnv = env.clone();
        let mut factory = ParserFactory::new_simple(&shared).map_err(|e| fail(e.to_string()))?;
        factory.quiet();
        let limits = factory.limits_mut();
        limits.verbose_errors = false;
        limits.max_lexer_states = 50_000;
        Ok(Arc::new(Self {
            factory,
            env,
            cache: Cache::default(),
            ends,
            width: logits,
            quoting: OnceLock::new(),
            ending: OnceLock::new(),
            exponents: OnceLock::new(),
            forms: OnceLock::new(),
            leads: OnceLock::new(),
        }))
    }

    /// Logits that a mask covers.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Words of a mask: one for each 32 logits, the last padded with zeros.
    pub fn mask_words(&self) -> usize {
        self.width.div_ceil(32)
    }

    /// Tokens that end a turn.
    pub fn ends(&self) -> &[u32] {
        &self.ends
    }

    /// The bytes of a token; none for special tokens and gaps.
    pub fn bytes(&self, token: u32) -> &[u8] {
        let trie = &self.env.trie;
        if (token as usize) < self.width && !trie.is_special_token(token) {
            trie.token(token)
        } else {
            &[]
        }
    }

    /// The tokens with a quotation mark in them, as a mask.
    pub(super) fn quoting(&self) -> &[u32] {
        self.quoting
            .get_or_init(|| self.mask_of(|bytes| bytes.contains(&b'"')))
    }

    /// The tokens that may end something in JSON outside a string, as a mask, and those that end a turn: all without a bracket, a comma,
    /// white space, and a quotation mark but as their first byte, are left out.
    pub(super) fn ending(&self) -> &[u32] {
        self.ending.get_or_init(|| {
            let ends = |b: &u8| b",[]{} \n\r\t".contains(b);
            let mut mask = self.mask_of(|bytes| {
                bytes.iter().any(ends) || bytes.iter().skip(1).any(|b| *b == b'"')
            });
            self.ends
                .iter()
                .for_each(|end| super::set(&mut mask, *end, true));
            mask
        })
    }

    /// The tokens whose bytes are so.
    fn mask_of(&self, is: impl Fn(&[u8]) -> bool) -> Vec<u32> {
        let mut mask = vec![0u32; self.mask_words()];
        for (word, first) in mask.iter_mut().zip((0u32..).step_by(32)) {
            let set = (0..32).filter(|bit| is(self.bytes(first + bit)));
            *word = set.fold(0, |w, bit| w | 1 << bit);
        }
        mask
    }

    /// The tokens that lead to an end.
    pub(super) fn leads(&self) -> &Leads {
        self.leads.get_or_init(|| Leads::new(self))
    }

    /// The tokens that other forms of the same JSON are written with.
    pub(super) fn forms(&self) -> &Forms {
        self.forms.get_or_init(|| Forms::new(self))
    }

    /// The tokens with an exponent in them that has two digits or more.
    pub(super) fn exponents(&self) -> &[u32] {
        self.exponents.get_or_init(|| {
            let sign = |b: &&u8| matches!(b, b'+' | b'-');
            let is_exponent = |rest: &[u8]| {
                let signs = rest.iter().skip(1).take_while(sign).count();
                let digits = rest.iter().skip(1 + signs).take(2);
                matches!(rest.first(), Some(b'e' | b'E'))
                    && digits.filter(|b| b.is_ascii_digit()).count() == 2
            };
            let has = |bytes: &[u8]| (0..bytes.len()).any(|i| is_exponent(&bytes[i..]));
            let tokens = 0..self.width as u32;
            tokens.filter(|t| has(self.bytes(*t))).collect()
        })
    }

    /// The tokens that the tokenizer makes of a text in the middle of other text.
    pub fn tokens(&self, text: &[u8]) -> Vec<u32> {
        self.env.tokenize_bytes(text)
    }
}

/// The trie with its tokenizer: how forced text becomes the tokens that the model would have made of it.
pub(super) struct Tokens {
    pub(super) trie: TokTrie,
    tokenizer: Tokenizer,
}

impl Tokens {
    /// Tokens of a text that does not start a line, or the longest matches where the tokenizer changes the text.
    fn encode(&self, text: &str) -> Vec<u32> {
        let same = |tokens: &[u32]| self.trie.decode_raw(tokens) == text.as_bytes();
        let Ok(tokens) = self.tokenizer.encode(text, false) else {
            return self.trie.greedy_tokenize(text.as_bytes());
        };
        if same(&tokens) {
            return tokens;
        }
        // A tokenizer that puts a space before a text does not put one after a line's end.
        self.after_line(text)
            .filter(|t| same(t))
            .unwrap_or_else(|| self.trie.greedy_tokenize(text.as_bytes()))
    }

    fn after_line(&self, text: &str) -> Option<Vec<u32>> {
        let tokens = self.tokenizer.encode(&format!("\n{text}"), false).ok()?;
        let line = |t: &u32| self.trie.token(*t).ends_with(b"\n");
        let at = tokens.iter().position(line)?;
        Some(tokens.get(at + 1..)?.to_vec())
    }
}

impl TokenizerEnv for Tokens {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<u32> {
        self.trie
            .tokenize_with_greedy_fallback(bytes, |s| self.encode(s))
    }
}

/// How the vocabulary spells bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spelling {
    /// A printable character for each byte.
    ByteLevel,
    /// Text with this character for a space, and `<0x0A>` for single bytes.
    Fallback(char),
}

/// The bytes of every token below `width`, empty for gaps; special tokens behind the marker that keeps them out of text.
fn token_bytes(tokenizer: &Tokenizer, width: usize) -> Result<Vec<Vec<u8>>, GrammarError> {
    let inner = tokenizer.inner();
    let decoder = serde_json::to_value(inner.get_decoder()).unwrap_or(Value::Null);
    let spelling = spelling(&decoder).ok_or_else(|| {
        let kind = decoder.get("type").and_then(Value::as_str);
        let kind = kind.unwrap_or("none");
        GrammarError::Vocabulary(format!(
            "the decoder ({kind}) is neither byte-level nor byte-fallback"
        ))
    })?;
    let added = inner.get_added_tokens_decoder();
    let mut words = vec![Vec::new(); width];
    let table = byte_table();
    for (text, id) in inner.get_vocab(true) {
        let Some(word) = words.get_mut(id as usize) else {
            continue;
        };
        *word = match added.get(&id) {
            Some(token) => added_bytes(&text, token.special),
            None => spelling.bytes(&text, &table),
        };
        word.truncate(LONGEST);
    }
    Ok(words)
}

/// An added token stands for its own text, or, where it steers the model or looks like it, for nothing that text could spell.
fn added_bytes(text: &str, special: bool) -> Vec<u8> {
    let mark = special || (text.starts_with('<') && text.ends_with('>'));
    let mark = mark.then_some(TokTrie::SPECIAL_TOKEN_MARKER);
    mark.into_iter().chain(text.bytes()).collect()
}

/// The spelling that a decoder undoes, from its JSON form.
fn spelling(decoder: &Value) -> Option<Spelling> {
    let mut parts = vec![decoder];
    if let Some(inner) = decoder.get("decoders").and_then(Value::as_array) {
        parts.extend(inner);
    }
    let is = |p: &Value, kind: &str| p.get("type").and_then(Value::as_str) == Some(kind);
    if parts.iter().any(|p| is(p, "ByteLevel")) {
        return Some(Spelling::ByteLevel);
    }
    let replaced = |p: &Value| {
        let from = p
            .pointer("/pattern/String")
            .or_else(|| p.get("replacement"))?;
        let to_space = is(p, "Metaspace") || p.get("content")?.as_str()? == " ";
        from.as_str()?.chars().next().filter(|_| to_space)
    };
    let space = parts.iter().find_map(|p| replaced(p));
    let fallback = parts.iter().any(|p| is(p, "ByteFallback"));
    (fallback || space.is_some()).then(|| Spelling::Fallback(space.unwrap_or(' ')))
}

impl Spelling {
    fn bytes(self, text: &str, table: &[(char, u8)]) -> Vec<u8> {
        match self {
            Self::ByteLevel => {
                let byte = |c: char| {
                    let at = table.binary_search_by_key(&c, |e| e.0).ok()?;
                    Some(table.get(at)?.1)
                };
                let bytes: Option<Vec<u8>> = text.chars().map(byte).collect();
                bytes.unwrap_or_else(|| text.as_bytes().to_vec())
            }
            Self::Fallback(space) => match hex_byte(text) {
                Some(byte) => vec![byte],
                None => text.replace(space, " ").into_bytes(),
            },
        }
    }
}

/// `<0x0A>` is the byte 10.
fn hex_byte(text: &str) -> Option<u8> {
    let digits = text.strip_prefix("<0x")?.strip_suffix('>')?;
    (digits.len() == 2).then(|| u8::from_str_radix(digits, 16).ok())?
}

/// The characters that byte-level tokenizers write for bytes, sorted: printable Latin-1 for itself, the other bytes in order
/// from U+0100 (GPT-2's table).
fn byte_table() -> Vec<(char, u8)> {
    let printable = |b: u8| matches!(b, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    let mut other = (0x100u32..).filter_map(char::from_u32);
    let mut table: Vec<(char, u8)> = Vec::with_capacity(256);
    for byte in 0..=255u8 {
        let own = printable(byte).then_some(byte as char);
        table.extend(own.or_else(|| other.next()).map(|c| (c, byte)));
    }
    table.sort_unstable();
    table
}
