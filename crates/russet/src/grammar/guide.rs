//! A matcher in the loop of generation: masks made while the model runs, and tokens that need no model.

use std::collections::VecDeque;
use std::panic::resume_unwind;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use russet_kernels::machine::cpus;

use super::error::GrammarError;
use super::{Grammar, Mask, Matcher};
use crate::engine::Token;

/// Tokens refused in a step before the way to the end is taken.
const PATIENCE: usize = 8;

/// Follows one answer.
pub(crate) struct Guide {
    matcher: Arc<Mutex<Matcher>>,
    mask: Vec<u32>,
    /// Makes masks while the model runs, where the model leaves a core for it. Where it does not, its threads would wait for a mask
    /// all the same, and for the system to change threads besides: the mask is then made when the model has run.
    helper: Option<Helper>,
    /// What the mask says; nothing where it is of an earlier token.
    ready: Option<Mask>,
    /// Tokens that must come, which the matcher has taken.
    certain: VecDeque<Token>,
    jumps: bool,
    /// Tokens refused in this step.
    refused: usize,
}

impl Guide {
    /// A guide for an answer of a model that computes with so many threads; with `jumps` it says tokens that must come.
    pub(crate) fn new(grammar: &Grammar, threads: usize, jumps: bool) -> Self {
        let matcher = Arc::new(Mutex::new(grammar.matcher()));
        let mut guide = Self {
            helper: (threads < cpus()).then(|| Helper::new(matcher.clone())),
            matcher,
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
        let Some(helper) = &mut self.helper else {
            let ran = model()?;
            self.ready = Some(fill(&mut held(&self.matcher), &mut self.mask, left)?);
            return Ok(ran);
        };
        helper.begin(std::mem::take(&mut self.mask), left);
        let ran = model();
        let (mask, ready) = helper.wait();
        self.mask = mask;
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
        let mut matcher = held(&self.matcher);
        let fits = match left {
            Some(left) => matcher.can_end_after(token, left)?,
            None => true,
        };
        if fits {
            self.refused = 0;
            return Ok(true);
        }
        self.refused += 1;
        super::set(&mut self.mask, token, false);
        if self.refused >= PATIENCE || self.mask.iter().all(|w| *w == 0) {
            matcher.fill_way_out(&mut self.mask)?;
        }
        Ok(false)
    }

    /// Takes the token that came.
    ///
    /// # Errors
    /// [`GrammarError::Rejected`] where it was not allowed.
    pub(crate) fn accept(&mut self, token: Token) -> Result<(), GrammarError> {
        self.ready = None;
        let finished = held(&self.matcher).accept(token)?;
        if !finished {
            self.jump();
        }
        Ok(())
    }

    /// Takes the tokens that must come next.
    fn jump(&mut self) {
        if !self.jumps {
            return;
        }
        let mut matcher = held(&self.matcher);
        for token in matcher.jump_forward().tokens {
            if matcher.accept(token).is_err() {
                return;
            }
            self.certain.push_back(token);
        }
    }
}

/// The matcher, which nobody else has: the helper only while the model runs.
fn held(matcher: &Mutex<Matcher>) -> MutexGuard<'_, Matcher> {
    matcher.lock().unwrap_or_else(PoisonError::into_inner)
}

fn fill(
    matcher: &mut Matcher,
    mask: &mut [u32],
    left: Option<usize>,
) -> Result<Mask, GrammarError> {
    match left {
        Some(left) => matcher.fill_mask_within(mask, left),
        None => matcher.fill_mask(mask),
    }
}

/// A mask to be made, and how many tokens may still come.
type Order = (Vec<u32>, Option<usize>);
/// A mask that is made.
type Made = (Vec<u32>, Result<Mask, GrammarError>);

/// A thread that makes masks, one at a time. It ends with its owner.
struct Helper {
    orders: SyncSender<Order>,
    made: Receiver<Made>,
    thread: Option<JoinHandle<()>>,
}

impl Helper {
    fn new(matcher: Arc<Mutex<Matcher>>) -> Self {
        let (orders, ordered) = sync_channel::<Order>(1);
        let (done, made) = sync_channel(1);
        let thread = thread::spawn(move || {
            for (mut mask, left) in ordered {
                let ready = fill(&mut held(&matcher), &mut mask, left);
                if done.send((mask, ready)).is_err() {
                    return;
                }
            }
        });
        Self {
            orders,
            made,
            thread: Some(thread),
        }
    }

    fn begin(&self, mask: Vec<u32>, left: Option<usize>) {
        // Where nobody listens any more, `wait` says why.
        let _ = self.orders.send((mask, left));
    }

    /// The mask that was begun.
    fn wait(&mut self) -> Made {
        if let Ok(made) = self.made.recv() {
            return made;
        }
        let ended = self.thread.take().map(JoinHandle::join);
        match ended {
            Some(Err(panic)) => resume_unwind(panic),
            _ => (
                Vec::new(),
                Err(GrammarError::Limit(
                    "the thread that makes masks has ended".into(),
                )),
            ),
        }
    }
}
