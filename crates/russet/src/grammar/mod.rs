//! Guided generation: what a model may write, as a mask over its next token.
//!
//! A [`Constraint`] is what people write: a JSON Schema, a regular expression, a grammar, a list of choices, functions to call.
//! A [`Grammar`] is that compiled for a [`Vocabulary`], shared by all answers under it. A [`Matcher`] follows one answer: it says
//! which tokens may come ([`Matcher::fill_mask`]), takes the one that came, goes back, and knows text that must come
//! ([`Matcher::jump_forward`]), which needs no model.
//!
//! The parser is llguidance. Around it: schemas are rewritten until it can take them exactly, what it cannot say is checked on
//! values as they become whole, and what neither can do is refused by name. No keyword is silently dropped.
//!
//! ```
//! use russet::grammar::{Constraint, Grammar, Vocabulary};
//!
//! # let file = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/lm/qwen3-4bit/tokenizer/tokenizer.json"))?;
//! let tokenizer = russet::Tokenizer::from_json(&file)?;
//! let vocabulary = Vocabulary::new(&tokenizer, &[], tokenizer.largest_id() as usize + 1)?;
//! let grammar = Grammar::new(&vocabulary, &Constraint::choice(["yes", "no"]))?;
//! let mut matcher = grammar.matcher();
//! let mut mask = vec![0; vocabulary.mask_words()];
//! matcher.fill_mask(&mut mask)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod cache;
mod close;
mod compile;
mod constraint;
mod coverage;
mod ebnf;
mod error;
mod exponent;
mod forms;
mod guide;
mod matcher;
mod partial;
mod schema;
mod stream;
mod vocabulary;

pub use compile::Grammar;
pub use constraint::{Constraint, JsonOptions, ToolCalls};
pub use coverage::{CaseResult, Coverage, Instances, SchemaCase, SchemaTest, Tail, Times};
pub use error::GrammarError;
pub(crate) use guide::Guide;
pub use matcher::{Jump, Mask, Matcher};
pub use partial::unfinished_json;
pub use vocabulary::Vocabulary;

/// The numbers of the bits that are set in a word, from the lowest.
fn word_bits(word: u32) -> impl Iterator<Item = u32> {
    let next = |w: &u32| Some(w & w.wrapping_sub(1)).filter(|_| *w != 0);
    let words = std::iter::successors(Some(word).filter(|w| *w != 0), move |w| {
        next(w).filter(|w| *w != 0)
    });
    words.map(u32::trailing_zeros)
}

/// Whether a token is in a mask.
pub(crate) fn has(mask: &[u32], token: u32) -> bool {
    let word = mask.get(token as usize / 32);
    word.is_some_and(|w| w >> (token % 32) & 1 == 1)
}

/// Puts a token into a mask, or takes it out.
fn set(mask: &mut [u32], token: u32, on: bool) {
    if let Some(word) = mask.get_mut(token as usize / 32) {
        let bit = 1 << (token % 32);
        *word = if on { *word | bit } else { *word & !bit };
    }
}

/// The tokens of a mask, in order.
fn bits(mask: &[u32]) -> impl Iterator<Item = u32> {
    let words = (0u32..).zip(mask);
    words.flat_map(|(i, word)| word_bits(*word).map(move |bit| i * 32 + bit))
}

#[cfg(test)]
mod tests;
