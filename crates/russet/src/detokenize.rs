//! Incremental detokenisation: text as tokens arrive, never half a character.
//!
//! A token's text depends on its neighbours: byte-level tokens can end inside a character, and decoders strip or join where a
//! text starts. So tokens are decoded together since the last boundary, a point where the text so far ended with a whole
//! character, with one earlier token before them as context. A text that ends with U+FFFD is held back, because its character
//! may still be completed; no more than `LIMIT` tokens ever are, so the cost of a text is linear in its length.
//!
//! For byte-level tokenizers the pieces joined are exactly the text of all tokens, broken bytes included: UTF-8 decoding starts
//! afresh at every boundary. A byte-fallback decoder (`<0x0A>`) spoils a whole run of byte tokens for one broken byte in it; here
//! the characters that were complete before are out already, and stay.

use crate::tokenizer::{Tokenizer, TokenizerError};

/// Tokens held back at most. A character has four bytes and a token at least one, so a longer tail holds a boundary.
const LIMIT: usize = 8;

/// Turns a stream of tokens into a stream of text.
#[derive(Debug)]
pub struct Detokenizer<'a> {
    tokenizer: &'a Tokenizer,
    skip_special: bool,
    /// Special tokens that give text all the same.
    visible: Vec<u32>,
    /// The last token before the boundary that is no byte token, so that the first held token is not taken for a start.
    context: Option<u32>,
    held: Vec<u32>,
}

impl<'a> Detokenizer<'a> {
    /// A detokenizer; special tokens give no text where `skip_special`.
    pub fn new(tokenizer: &'a Tokenizer, skip_special: bool) -> Self {
        Self {
            tokenizer,
            skip_special,
            visible: Vec::new(),
            context: None,
            held: Vec::with_capacity(LIMIT),
        }
    }

    /// A detokenizer that leaves out special tokens, except for these.
    pub fn showing(tokenizer: &'a Tokenizer, visible: Vec<u32>) -> Self {
        Self {
            visible,
            ..Self::new(tokenizer, true)
        }
    }

    /// Takes a token and gives the text that is certain now, possibly none.
    ///
    /// # Errors
    /// [`TokenizerError::Use`] where the tokenizer's decoder fails.
    pub fn push(&mut self, token: u32) -> Result<String, TokenizerError> {
        let special = self.skip_special && self.tokenizer.is_special(token);
        if special && self.visible.contains(&token) {
            return self.visible(token);
        }
        if special || self.tokenizer.token(token).is_none() {
            return Ok(String::new());
        }
        self.held.push(token);
        let text = self.text(&self.held)?;
        if !text.ends_with(char::REPLACEMENT_CHARACTER) {
            self.settle(self.held.len());
            return Ok(text);
        }
        if self.held.len() < LIMIT {
            Ok(String::new())
        } else {
            self.cut(&text)
        }
    }

    /// The text of a special token that is shown: a boundary before it and after it.
    fn visible(&mut self, token: u32) -> Result<String, TokenizerError> {
        let before = self.text(&self.held)?;
        self.settle(self.held.len());
        Ok(before + &self.tokenizer.token(token).unwrap_or_default())
    }

    /// Gives what is still held back; the next token starts another text.
    ///
    /// # Errors
    /// [`TokenizerError::Use`] where the tokenizer's decoder fails.
    pub fn finish(&mut self) -> Result<String, TokenizerError> {
        let text = self.text(&self.held)?;
        self.held.clear();
        self.context = None;
        Ok(text)
    }

    /// Gives the held text up to the last boundary inside it: where both sides alone decode to what they do together.
    fn cut(&mut self, whole: &str) -> Result<String, TokenizerError> {
        for at in (1..self.held.len()).rev() {
            let (head, tail) = self.held.split_at(at);
            let text = self.text(head)?;
            if whole.strip_prefix(text.as_str()) == Some(self.after(head, tail)?.as_str()) {
                self.settle(at);
                return Ok(text);
            }
        }
        self.settle(self.held.len());
        Ok(whole.to_owned())
    }

    /// Takes the first tokens for emitted.
    fn settle(&mut self, count: usize) {
        self.context = self.new_context(&self.held[..count]);
        self.held.drain(..count);
    }

    fn new_context(&self, tokens: &[u32]) -> Option<u32> {
        let whole = |t: &&u32| {
            self.tokenizer
                .token(**t)
                .is_some_and(|text| !is_byte(&text))
        };
        let last = tokens.iter().rev().find(whole).copied();
        // A text that has begun with bytes only has begun all the same.
        last.or(self.context).or_else(|| self.tokenizer.id("a"))
    }

    /// The text of tokens at the boundary.
    fn text(&self, tokens: &[u32]) -> Result<String, TokenizerError> {
        self.following(self.context, tokens)
    }

    /// The text of tokens after the ones in `head`.
    fn after(&self, head: &[u32], tokens: &[u32]) -> Result<String, TokenizerError> {
        self.following(self.new_context(head), tokens)
    }

    fn following(&self, context: Option<u32>, tokens: &[u32]) -> Result<String, TokenizerError> {
        let Some(context) = context else {
            return self.tokenizer.decode(tokens, self.skip_special);
        };
        let before = self.tokenizer.decode(&[context], self.skip_special)?;
        let all: Vec<u32> = [context]
            .into_iter()
            .chain(tokens.iter().copied())
            .collect();
        let all = self.tokenizer.decode(&all, self.skip_special)?;
        // Where the decoder changed its mind about the context itself, only what follows the common part is new.
        let same = |(a, b): &((usize, char), char)| a.1 == *b;
        let common = all
            .char_indices()
            .zip(before.chars())
            .take_while(same)
            .map(|((at, c), _)| at + c.len_utf8())
            .last();
        Ok(all[common.unwrap_or(0)..].to_owned())
    }
}

/// Whether a token is one raw byte (`<0x0A>`).
fn is_byte(token: &str) -> bool {
    token.len() == 6 && token.starts_with("<0x") && token.ends_with('>')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::SplitMix64;
    use crate::tokenizer::tests::{fallback, tiny};

    fn pieces(tokenizer: &Tokenizer, tokens: &[u32], skip_special: bool) -> Vec<String> {
        let mut d = Detokenizer::new(tokenizer, skip_special);
        let mut out: Vec<String> = Vec::new();
        for &t in tokens {
            out.push(d.push(t).unwrap());
            assert!(d.held.len() < LIMIT);
        }
        out.push(d.finish().unwrap());
        out
    }

    const TEXT: &str = " héllo wörld 🦀🦀 {\"name\": [1, 2]} 日本語\n\n  spaces ";

    #[test]
    fn pieces_join_to_the_whole() {
        for tokenizer in [tiny(), fallback()] {
            let tokens = tokenizer.encode(TEXT, false).unwrap();
            let pieces = pieces(&tokenizer, &tokens, true);
            assert!(
                pieces
                    .iter()
                    .all(|p| !p.contains(char::REPLACEMENT_CHARACTER)),
                "half a character: {pieces:?}"
            );
            assert_eq!(pieces.concat(), tokenizer.decode(&tokens, true).unwrap());
            assert_eq!(pieces.concat().trim_start(), TEXT.trim_start());
        }
    }

    #[test]
    fn text_is_not_held_longer_than_it_must() {
        let tokenizer = tiny();
        let tokens = tokenizer.encode("é!", false).unwrap();
        let expected: Vec<&str> = if tokens.len() == 3 {
            vec!["", "é", "!", ""]
        } else {
            vec!["é", "!", ""]
        };
        assert_eq!(pieces(&tokenizer, &tokens, true), expected);
        // Half a character at the end comes out with the end.
        assert_eq!(
            pieces(&tokenizer, &tokens[..1], true)
                .last()
                .map(String::as_str),
            Some("\u{FFFD}")
        );
    }

    #[test]
    fn any_byte_level_tokens_join_to_the_decoded_whole() {
        let tokenizer = tiny();
        let mut rng = SplitMix64::new(7);
        for round in 0..600 {
            // Some ids are beyond the vocabulary, some tokens are special; single bytes outweigh whole words.
            let tokens: Vec<u32> = (0..60).map(|_| (rng.next_u64() % 310) as u32).collect();
            let skip_special = round % 2 == 0;
            let whole = tokenizer.decode(&tokens, skip_special).unwrap();
            assert_eq!(
                pieces(&tokenizer, &tokens, skip_special).concat(),
                whole,
                "{tokens:?}"
            );
        }
    }

    #[test]
    fn whole_characters_of_a_byte_fallback_tokenizer_join_too() {
        let tokenizer = fallback();
        let mut rng = SplitMix64::new(3);
        let parts: Vec<Vec<u32>> = ["▁", "▁a", "b", "<s>", "日", "é", "🦀"]
            .iter()
            .map(|p| spell(&tokenizer, p))
            .collect();
        for _ in 0..300 {
            let tokens: Vec<u32> = (0..30)
                .flat_map(|_| parts[(rng.next_u64() % parts.len() as u64) as usize].clone())
                .collect();
            let whole = tokenizer.decode(&tokens, true).unwrap();
            assert_eq!(
                pieces(&tokenizer, &tokens, true).concat(),
                whole,
                "{tokens:?}"
            );
        }
    }

    #[test]
    fn broken_bytes_spoil_no_character_that_is_out() {
        let tokenizer = fallback();
        let tokens: Vec<u32> = spell(&tokenizer, "日")
            .into_iter()
            .chain(std::iter::repeat_n(0xFF, 40))
            .collect();
        let text = pieces(&tokenizer, &tokens, true).concat();
        assert_eq!(text, format!("日{}", "\u{FFFD}".repeat(40)));
    }

    /// A token's id, or its bytes' ids.
    fn spell(tokenizer: &Tokenizer, text: &str) -> Vec<u32> {
        tokenizer
            .id(text)
            .map_or_else(|| text.bytes().map(u32::from).collect(), |id| vec![id])
    }
}
