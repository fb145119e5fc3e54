//! A matcher in the loop of generation: masks made while the model runs, and tokens that need no model.

use std::collections::VecDeque;
use std::panic::resume_unwind;
use std::thread;

use super::error::GrammarError;
use super::{Grammar, Mask, Matcher};
use crate::engine::Token;

/// Tokens refused in a step before the way to the end is taken.
const PATIENCE: usize = 8;

/// Follows one answer.
pub(crate) struct Guide {
    matcher: Matcher,
    mask: Vec<u32>,
    /// What the mask says; nothing where it is of an earlier token.
    ready: Option<Mask>,
    /// Tokens that must come, which the matcher has taken.
    certain: VecDeque<Token>,
    jumps: bool,
    /// Tokens refused in this step.
    refused: usize,
}

impl Guide {
    /// A guide for an answer; with `jumps` it says tokens that must come.
    pub(crate) fn new(grammar: &Grammar, jumps: bool) -> Self {
        let mut guide = Self {
            matcher: grammar.matcher(),
            mask: vec![0; grammar.vocabulary().mask_words()],
            ready: None,
            certain: VecDeque::new(),
            jumps,
            refused: 0,
        };
        guide.jump();
        guide
    }

    /// The next token where it must come.
    pub(crate) fn certain(&mut self) -> Option<Token> {
        self.certain.pop_front()
    }

    /// Runs the model while the mask of the next token is made, of which `left` may still come.
    ///
    /// # Errors
    /// Those of the model and of [`Matcher::fill_mask`].
    pub(crate) fn prepare_during<T, E: From<GrammarError>>(
        &mut self,
        left: Option<usize>,
        model: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let (matcher, mask) = (&mut self.matcher, &mut self.mask);
        let fill = move || match left {
            Some(left) => matcher.fill_mask_within(mask, left),
            None => matcher.fill_mask(mask),
        };
        let (ran, ready) = thread::scope(|scope| {
            let filled = scope.spawn(fill);
            let ran = model();
            (ran, filled.join().unwrap_or_else(|p| resume_unwind(p)))
        });
        let ran = ran?;
        self.ready = Some(ready?);
        Ok(ran)
    }

    /// The mask; nothing where the text is whole and nothing may follow.
    pub(crate) fn mask(&self) -> Option<&[u32]> {
        match self.ready {
            Some(Mask::Finished) => None,
            _ => Some(&self.mask),
        }
    }

    /// Whether an end is still in reach after a token, of `left` that may come. Where it is not, the mask no longer allows the
    /// token; after some of them it allows only the way to an end.
    ///
    /// # Errors
    /// Those of [`Matcher::fill_mask`].
    pub(crate) fn can_end_after(
        &mut self,
        token: Token,
        left: Option<usize>,
    ) -> Result<bool, GrammarError> {
        let fits = match left {
            Some(left) => self.matcher.can_end_after(token, left)?,
            None => true,
        };
        if fits {
            self.refused = 0;
            return Ok(true);
        }
        self.refused += 1;
        if let Some(word) = self.mask.get_mut(token as usize / 32) {
            *word &= !(1 << (token % 32));
        }
        if self.refused >= PATIENCE || self.mask.iter().all(|w| *w == 0) {
            self.matcher.fill_way_out(&mut self.mask)?;
        }
        Ok(false)
    }

    /// Takes the token that came.
    ///
    /// # Errors
    /// [`GrammarError::Rejected`] where it was not allowed.
    pub(crate) fn accept(&mut self, token: Token) -> Result<(), GrammarError> {
        self.ready = None;
        if !self.matcher.accept(token)? {
            self.jump();
        }
        Ok(())
    }

    /// Takes the tokens that must come next.
    fn jump(&mut self) {
        if !self.jumps {
            return;
        }
        for token in self.matcher.jump_forward().tokens {
            if self.matcher.accept(token).is_err() {
                return;
            }
            self.certain.push_back(token);
        }
    }
}
