//! A matcher in the loop of generation: masks made while the model runs, and tokens that need no model.

use std::collections::VecDeque;
use std::panic::resume_unwind;
use std::thread;

use super::error::GrammarError;
use super::{Grammar, Mask, Matcher};
use crate::engine::Token;

/// Follows one answer.
pub(crate) struct Guide {
    matcher: Matcher,
    mask: Vec<u32>,
    /// What the mask says; nothing where it is of an earlier token.
    ready: Option<Mask>,
    /// Tokens that must come, which the matcher has taken.
    certain: VecDeque<Token>,
    jumps: bool,
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
