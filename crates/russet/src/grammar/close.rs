//! Ending in time: an answer that would be cut by its limit of tokens is led to an end that the constraint allows.

use super::error::GrammarError;
use super::matcher::{Mask, Matcher};

/// Tokens left from which on the way out is kept in mind.
const WINDOW: usize = 256;

/// Tokens by which the way out may grow with one token and stay unseen.
const MARGIN: usize = 64;

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
        let near = self
            .way
            .as_ref()
            .is_none_or(|w| left <= 2 * w.len() + MARGIN);
        if left > WINDOW || !near || self.is_finished() {
            return self.fill_mask(mask);
        }
        self.way = self.close(left)?;
        match &self.way {
            Some(way) if !way.is_empty() && way.len() >= left => self.fill_way_out(mask),
            _ => self.fill_mask(mask),
        }
    }

    /// Whether the text can still be ended within `left` tokens of which this is the first; `true` where that is far off, or
    /// cannot be had anyway.
    ///
    /// # Errors
    /// Those of [`Matcher::fill_mask`].
    pub fn can_end_after(&mut self, token: u32, left: usize) -> Result<bool, GrammarError> {
        let near = self
            .way
            .as_ref()
            .is_some_and(|w| left <= 2 * w.len() + MARGIN);
        if !near || left > WINDOW || self.vocabulary().ends().contains(&token) {
            return Ok(true);
        }
        if self.accept(token).is_err() {
            return Ok(true);
        }
        let way = self.close(left - 1);
        self.rollback(1)?;
        Ok(way?.is_some())
    }

    /// A mask of the first token of the way out that was found last.
    ///
    /// # Errors
    /// [`GrammarError::MaskLength`], [`GrammarError::DeadEnd`] where there is none.
    pub(super) fn fill_way_out(&self, mask: &mut [u32]) -> Result<Mask, GrammarError> {
        match &self.way {
            Some(way) => self.only(mask, way),
            None => Err(GrammarError::DeadEnd {
                after: self.after(),
            }),
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
