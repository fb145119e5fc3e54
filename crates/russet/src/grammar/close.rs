//! Ending in time: an answer that would be cut by its limit of tokens is led to an end that the constraint allows.

use super::error::GrammarError;
use super::matcher::{Mask, Matcher};
use super::stream::Stream;
use super::vocabulary::Vocabulary;

/// Tokens left from which on the way out is kept in mind.
const WINDOW: usize = 256;

/// Tokens by which the way out may grow with one token and stay unseen.
const MARGIN: usize = 64;

/// Bytes in the order in which they lead to an end of JSON, soon.
const ORDER: &[u8] =
    b"}]\"0123456789:,ntf-.{[abcdefghijklmopqrsuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ/_@+ \n";

/// Of the tokens left, the part after which a way that was not found is looked for again.
const AGAIN: (usize, usize) = (1, 2);

/// What is known of the way to an end.
#[derive(Debug, Default)]
pub(super) struct Exit {
    /// The way that was found last, from the text so far or from a few tokens before.
    way: Option<Vec<u32>>,
    /// The way from the text and one token more, and that token; the text had so many tokens with it.
    ahead: Option<(usize, u32, Vec<u32>)>,
    /// Where none was found: it is not looked for before so few tokens are left.
    again: Option<usize>,
}

impl Exit {
    /// Whether there is more than enough room for the way.
    fn is_far(&self, left: usize) -> bool {
        let far = |w: &Vec<u32>| left > 2 * w.len() + MARGIN;
        left > WINDOW
            || self.way.as_ref().is_some_and(far)
            || self.again.is_some_and(|again| left > again)
    }
}

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
        if self.exit.is_far(left) || self.is_finished() {
            return self.fill_mask(mask);
        }
        self.find_exit(left)?;
        match &self.exit.way {
            Some(way) if !way.is_empty() && way.len() >= left => self.fill_way_out(mask),
            _ => self.fill_mask(mask),
        }
    }

    /// Looks for the way out, first where it was.
    fn find_exit(&mut self, left: usize) -> Result<(), GrammarError> {
        let here = |(count, token, _): &(usize, u32, Vec<u32>)| {
            *count == self.tokens.len() && self.tokens.last() == Some(token)
        };
        if let Some((_, _, way)) = self.exit.ahead.take().filter(here) {
            self.exit.way = Some(way);
            return Ok(());
        }
        if let Some(way) = self.known_way(left)? {
            self.exit.way = Some(way);
            return Ok(());
        }
        let found = self.close(left + left / 4)?;
        let length = found.as_ref().map(Vec::len);
        self.exit.way = found.filter(|w| w.len() <= left);
        self.exit.again = match (&self.exit.way, length) {
            (Some(_), _) => None,
            // As the text goes on, its end comes nearer.
            (None, Some(length)) => Some(left - ((length - left) / 4).clamp(1, left)),
            (None, None) => Some(left * AGAIN.0 / AGAIN.1),
        };
        Ok(())
    }

    /// The way that was found before, where it still leads to an end within `left` tokens. Most tokens leave it as it is; that is
    /// told much sooner than a new one is found.
    fn known_way(&mut self, left: usize) -> Result<Option<Vec<u32>>, GrammarError> {
        let Some(way) = self.exit.way.take() else {
            return Ok(None);
        };
        for way in [way.get(1..).unwrap_or(&[]), &way] {
            if way.len() < left && self.leads_out(way)? {
                return Ok(Some(way.to_vec()));
            }
        }
        Ok(None)
    }

    /// Whether the text is whole after these tokens.
    fn leads_out(&mut self, way: &[u32]) -> Result<bool, GrammarError> {
        let taken = way.iter().take_while(|t| self.accept(**t).is_ok()).count();
        let whole = taken == way.len() && self.can_finish();
        self.rollback(taken)?;
        Ok(whole)
    }

    /// Whether the text can still be ended within `left` tokens of which this is the first; `true` where that is far off, or
    /// cannot be had anyway.
    ///
    /// # Errors
    /// Those of [`Matcher::fill_mask`].
    pub fn can_end_after(&mut self, token: u32, left: usize) -> Result<bool, GrammarError> {
        let unknown = self.exit.way.is_none() || self.exit.is_far(left);
        if unknown || self.vocabulary().ends().contains(&token) {
            return Ok(true);
        }
        if self.accept(token).is_err() {
            return Ok(true);
        }
        let (before, left) = (self.exit.way.clone(), left.saturating_sub(1));
        let way = match self.known_way(left)? {
            None => self.close(left)?,
            known => known,
        };
        self.exit.way = before;
        self.rollback(1)?;
        let Some(way) = way else {
            return Ok(false);
        };
        self.exit.ahead = Some((self.tokens.len() + 1, token, way));
        Ok(true)
    }

    /// A mask of the first token of the way out that was found last.
    ///
    /// # Errors
    /// [`GrammarError::MaskLength`], [`GrammarError::DeadEnd`] where there is none.
    pub(super) fn fill_way_out(&self, mask: &mut [u32]) -> Result<Mask, GrammarError> {
        match &self.exit.way {
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
        tokens.iter().for_each(|t| super::set(mask, *t, true));
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
                next.extend(self.leading_out(&mut mask)?);
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

    /// The allowed token that looks most like an end. Bytes that lead out are asked about first, since a mask takes longer than
    /// several of them.
    fn leading_out(&mut self, mask: &mut [u32]) -> Result<Option<u32>, GrammarError> {
        let vocabulary = self.vocabulary().clone();
        let leads = vocabulary.leads();
        // Where a check looks at a number, a mask tells whether it can end.
        let checked = |s: &Stream| s.is_plain_checked();
        if !self.stream.as_ref().is_some_and(checked)
            && let Some(token) = leads.first(|token| self.may_come(token))
        {
            return Ok(Some(token));
        }
        match self.fill_mask(mask) {
            Ok(_) => {}
            Err(GrammarError::DeadEnd { .. }) => return Ok(None),
            Err(other) => return Err(other),
        }
        let first = leads.first(|token| super::has(mask, token));
        Ok(first.or_else(|| super::bits(mask).next()))
    }
}

/// The tokens of single bytes that lead to an end.
#[derive(Clone, Debug)]
pub(super) struct Leads {
    /// An opening brace, a closing one, and a quotation mark.
    quote: Option<[u32; 3]>,
    order: Vec<u32>,
}

impl Leads {
    pub(super) fn new(vocabulary: &Vocabulary) -> Self {
        let single = |byte: &u8| vocabulary.env.trie.token_id_at_bytes(&[*byte]);
        let all = |[a, b, c]: [u8; 3]| Some([single(&a)?, single(&b)?, single(&c)?]);
        Self {
            quote: all(*b"{}\""),
            order: ORDER.iter().filter_map(single).collect(),
        }
    }

    /// The first of those that may come.
    fn first(&self, mut may: impl FnMut(u32) -> bool) -> Option<u32> {
        // Where a brace may open and close, it is text in a string.
        let in_string = self.quote.filter(|t| t.iter().all(|t| may(*t)));
        let quote = in_string.map(|[.., quote]| quote);
        quote.or_else(|| self.order.iter().copied().find(|t| may(*t)))
    }
}
