//! Tokenizers: text to tokens and back, by the `tokenizers` crate.

mod gguf;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::HashMap;

pub use gguf::from_gguf;

/// Why a tokenizer cannot be built or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenizerError {
    /// `tokenizer.json` is not one.
    #[error("tokenizer.json: {0}")]
    Load(String),
    /// The tokenizer of a checkpoint is of a kind that is not supported.
    #[error("the checkpoint's tokenizer: {0}")]
    Checkpoint(String),
    /// Text or tokens that it cannot take.
    #[error("{0}")]
    Use(String),
}

/// A tokenizer with its special tokens.
#[derive(Clone, Debug)]
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    special: HashMap<u32, String>,
}

impl Tokenizer {
    /// Reads `tokenizer.json`. Truncation and padding that were left in it from training are dropped, as Hugging Face's
    /// tokenizers do when they are called.
    ///
    /// # Errors
    /// [`TokenizerError::Load`] where it is not a tokenizer.
    pub fn from_json(bytes: &[u8]) -> Result<Self, TokenizerError> {
        let load = |e: tokenizers::Error| TokenizerError::Load(e.to_string());
        let mut inner = tokenizers::Tokenizer::from_bytes(bytes).map_err(load)?;
        inner
            .with_truncation(None)
            .map_err(load)?
            .with_padding(None);
        Ok(Self::wrap(inner))
    }

    fn wrap(inner: tokenizers::Tokenizer) -> Self {
        let added = inner.get_added_tokens_decoder();
        let special = added
            .into_iter()
            .filter(|(_, t)| t.special)
            .map(|(id, t)| (id, t.content))
            .collect();
        Self { inner, special }
    }

    /// What it is made of.
    pub(crate) fn inner(&self) -> &tokenizers::Tokenizer {
        &self.inner
    }

    /// Text to tokens; with `special`, the tokens that the tokenizer puts around a text are added. Special tokens written in
    /// the text are recognised.
    pub fn encode(&self, text: &str, special: bool) -> Result<Vec<u32>, TokenizerError> {
        let encoding = self
            .inner
            .encode_fast(text, special)
            .map_err(|e| TokenizerError::Use(e.to_string()))?;
        Ok(encoding.get_ids().to_vec())
    }

    /// Tokens to text, without special tokens where `skip_special`. Broken characters become U+FFFD; unknown tokens vanish.
    pub fn decode(&self, tokens: &[u32], skip_special: bool) -> Result<String, TokenizerError> {
        self.inner
            .decode(tokens, skip_special)
            .map_err(|e| TokenizerError::Use(e.to_string()))
    }

    /// The token of this exact text.
    pub fn id(&self, text: &str) -> Option<u32> {
        self.inner.token_to_id(text)
    }

    /// The text of a token as it stands in the vocabulary.
    pub fn token(&self, id: u32) -> Option<String> {
        self.inner.id_to_token(id)
    }

    /// Entries of the vocabulary, special tokens included.
    pub fn vocab_size(&self) -> usize {
        self.inner.get_vocab_size(true)
    }

    /// The largest number of a token; 0 where there is none.
    pub fn largest_id(&self) -> u32 {
        let vocabulary = self.inner.get_vocab(true);
        vocabulary.into_values().max().unwrap_or(0)
    }

    /// Whether a token is special: it steers the model and is left out of text.
    pub fn is_special(&self, id: u32) -> bool {
        self.special.contains_key(&id)
    }

    /// Special tokens: id and text, in no order.
    pub fn special_tokens(&self) -> impl Iterator<Item = (u32, &str)> {
        self.special.iter().map(|(&id, text)| (id, text.as_str()))
    }
}
