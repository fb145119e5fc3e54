//! Incremental detokenisation: text as tokens arrive, never half a character.
//!
//! Byte-level tokens can end inside a character, and some decoders strip or join at the start of a text. So the tokens since
//! the last safe boundary are decoded together, twice: without and with the new token, and what the second adds is emitted.
//! A tail that decodes to U+FFFD is held back: its character may still be completed.

use crate::tokenizer::{Tokenizer, TokenizerError};

/// Tokens that are decoded again with every new one.
const WINDOW: usize = 12;

/// Turns a stream of tokens into a stream of text.
#[derive(Debug)]
pub struct Detokenizer<'a> {
    tokenizer: &'a Tokenizer,
    skip_special: bool,
    /// Tokens whose text is emitted, kept as context, then tokens that are held back.
    tokens: Vec<u32>,
    emitted: usize,
}

impl<'a> Detokenizer<'a> {
    /// A detokenizer; special tokens give no text where `skip_special`.
    pub fn new(tokenizer: &'a Tokenizer, skip_special: bool) -> Self {
        Self { tokenizer, skip_special, tokens: Vec::new(), emitted: 0 }
    }

    /// Takes a token and gives the text that is certain now, possibly none.
    pub fn push(&mut self, token: u32) -> Result<String, TokenizerError> {
        self.tokens.push(token);
        let (before, all) = self.texts()?;
        if all.ends_with('\u{FFFD}') && self.tokens.len() - self.emitted < 8 {
            return Ok(String::new());
        }
        let text = added(&before, &all);
        self.settle();
        Ok(text)
    }

    /// Gives what is still held back.
    pub fn finish(&mut self) -> Result<String, TokenizerError> {
        let (before, all) = self.texts()?;
        let text = added(&before, &all);
        self.tokens.clear();
        self.emitted = 0;
        Ok(text)
    }

    fn texts(&self) -> Result<(String, String), TokenizerError> {
        let decode = |tokens: &[u32]| self.tokenizer.decode(tokens, self.skip_special);
        Ok((decode(&self.tokens[..self.emitted])?, decode(&self.tokens)?))
    }

    /// Everything is emitted; old context goes.
    fn settle(&mut self) {
        if self.tokens.len() > 2 * WINDOW {
            self.tokens.drain(..self.tokens.len() - WINDOW);
        }
        self.emitted = self.tokens.len();
    }
}

/// What `all` has beyond `before`; where they part earlier (a decoder changed its mind), what follows the common part.
fn added(before: &str, all: &str) -> String {
    if let Some(rest) = all.strip_prefix(before) {
        return rest.to_owned();
    }
    let common: usize = before.chars().zip(all.chars()).take_while(|(a, b)| a == b).map(|(a, _)| a.len_utf8()).sum();
    all[common..].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokenizer::tests::tiny;

    #[test]
    fn pieces_join_to_the_whole() {
        let tokenizer = tiny();
        let text = "héllo wörld 🦀🦀 {\"name\": [1, 2]} 日本語\n\n  spaces";
        let tokens = tokenizer.encode(text, false).unwrap();
        let mut d = Detokenizer::new(&tokenizer, true);
        let mut out = String::new();
        for &t in &tokens {
            let piece = d.push(t).unwrap();
            assert!(!piece.contains('\u{FFFD}'), "half a character: {piece:?}");
            out += &piece;
        }
        out += &d.finish().unwrap();
        assert_eq!(out, text);
    }

    #[test]
    fn random_tokens_join_to_the_decoded_whole() {
        let tokenizer = tiny();
        let mut state = 7u64;
        for _ in 0..200 {
            let tokens: Vec<u32> = (0..40)
                .map(|_| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    (state >> 33) as u32 % 310
                })
                .collect();
            let mut d = Detokenizer::new(&tokenizer, true);
            let mut out: String = tokens.iter().map(|&t| d.push(t).unwrap()).collect();
            out += &d.finish().unwrap();
            let whole = tokenizer.decode(&tokens, true).unwrap();
            // Broken bytes may become more or fewer replacement characters; everything else is the same.
            let clean = |s: &str| s.replace('\u{FFFD}', "");
            assert_eq!(clean(&out), clean(&whole), "{tokens:?}");
        }
    }
}
