//! Ending in time: an answer that would be cut by its limit of tokens is led to an end that the constraint allows.

use super::error::GrammarError;
use super::matcher::{Mask, Matcher};

/// Tokens left from which on the way out is kept in mind.
const WINDOW: usize = 256;

/// Tokens by which the way out may grow with one token.
const MARGIN: usize = 8;

/// Bytes in the order in which they lead to an end of JSON, soon.
const ORDER: &[u8] =
    b"}]\"0123456789:,ntf-.{[abcdefghijklmopqrsuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ/_@+ \n";

impl Matcher {
    /// [`Matcher::fill_mask`] where `left` tokens may still come: when they are only just enough to end the text, the mask leads
    /// to that end.
    ///
    /// # Errors
    /// Those of [`Matcher::fill_mask`].
    pub fn fill_mask_within(
        &mut self,
        mask: &mut [u32],
        left: usize,
    ) -> Result<Mask, GrammarError> {
        let near = self.closing.is_none_or(|c| left <= 2 * c + 4 * MARGIN);
        if left > WINDOW || !near || self.is_finished() {
            return self.fill_mask(mask);
        }
        let way = self.close(left)?;
        self.closing = way.as_ref().map(Vec::len);
        match way {
            Some(way) if way.len() + MARGIN >= left => self.only(mask, &way),
            _ => self.fill_mask(mask),
        }
    }

    /// A mask of the first token of a way out; of the end tokens where the text is whole already.
    fn only(&self, mask: &mut [u32], way: &[u32]) -> Result<Mask, GrammarError> {
        let needed = self.vocabulary().mask_words();
        if mask.len() != needed {
            let given = mask.len();
            return Err(GrammarError::MaskLength { given, needed });
        }
        mask.fill(0);
        let ends = self.vocabulary().ends();
        let tokens = way.get(..1).unwrap_or(ends);
        for token in tokens {
            if let Some(word) = mask.get_mut(*token as usize / 32) {
                *word |= 1 << (token % 32);
            }
        }
        Ok(if tokens.is_empty() {
            Mask::Finished
        } else {
            Mask::Constrained
        })
    }

    /// At most `limit` tokens that make the text a whole one, where a short way is found. The matcher is as before.
    ///
    /// # Errors
    /// Those of [`Matcher::fill_mask`], but a dead end on the way is no error.
    pub fn close(&mut self, limit: usize) -> Result<Option<Vec<u32>>, GrammarError> {
        let mut mask = vec![0; self.vocabulary().mask_words()];
        let mut way = Vec::new();
        let found = loop {
            if self.can_finish() {
                break true;
            }
            if way.len() >= limit {
                break false;
            }
            let mut next = self.jump_forward().tokens;
            next.truncate(limit - way.len());
            if next.is_empty() {
                match self.fill_mask(&mut mask) {
                    Ok(_) => next.extend(self.leading_out(&mask)),
                    Err(GrammarError::DeadEnd { .. }) => {}
                    Err(other) => return Err(other),
                }
            }
            let taken = next.iter().take_while(|t| self.accept(**t).is_ok()).count();
            way.extend_from_slice(next.get(..taken).unwrap_or(&[]));
            if taken == 0 {
                break false;
            }
        };
        self.rollback(way.len())?;
        Ok(found.then_some(way))
    }

    /// The allowed token that looks most like an end.
    fn leading_out(&self, mask: &[u32]) -> Option<u32> {
        let trie = &self.vocabulary().env.trie;
        let allowed = |t: &u32| {
            mask.get(*t as usize / 32)
                .is_some_and(|w| w & (1 << (t % 32)) != 0)
        };
        let single = |byte: &u8| trie.token_id_at_bytes(&[*byte]).filter(allowed);
        let any = || {
            let word = mask.iter().position(|w| *w != 0)?;
            Some(word as u32 * 32 + mask.get(word)?.trailing_zeros())
        };
        // Where a brace may open and close, it is text in a string.
        let in_string = single(&b'{').is_some() && single(&b'}').is_some();
        let quote = in_string.then(|| single(&b'"')).flatten();
        quote.or_else(|| ORDER.iter().find_map(single)).or_else(any)
    }
}
