//! The sequential engine (contract B §5.3): one dynamic function, called with the new tokens and all positions.
//!
//! A call takes `tokens i32 [1, q]` and `positions i32 [1, processed + q] = 0..processed + q`, updates the caches in place and
//! returns a row of logits for each new token. A long prompt is fed in chunks, which bounds the memory of a step.

use std::sync::Arc;

use russet_graph::exec::{Executor, Input, Plan, States, View};
use russet_graph::types::DType;
use russet_kernels::mem::bytes_of;
use russet_kernels::threads::Pool;

use super::{Engine, EngineError, Io, StateKind, Token};

/// How to run an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineOptions {
    /// The most tokens to hold.
    pub max_context: usize,
    /// Tokens of a prompt that are processed at once.
    pub chunk: usize,
    /// Prompts up to this length are processed in one piece.
    pub chunk_threshold: usize,
}

impl EngineOptions {
    /// Chunks of 512 tokens for prompts longer than 1024 (contract F 1.5).
    pub fn new(max_context: usize) -> Self {
        Self {
            max_context,
            chunk: 512,
            chunk_threshold: 1024,
        }
    }
}

/// See the module page.
#[derive(Debug)]
pub struct SequentialEngine {
    executor: Executor,
    states: States,
    io: Io,
    options: EngineOptions,
    history: Vec<Token>,
    ids: Vec<i32>,
    positions: Vec<i32>,
    logits: Vec<f32>,
}

impl SequentialEngine {
    /// An engine over a planned function. Caches whose length the graph leaves open get room for `options.max_context` tokens.
    pub fn new(
        plan: Arc<Plan>,
        pool: Arc<Pool>,
        options: EngineOptions,
    ) -> Result<Self, EngineError> {
        let io = Io::of(&plan)?;
        let states = States::new(&plan, |_, _| options.max_context)?;
        Ok(Self {
            executor: Executor::new(plan, pool),
            states,
            io,
            history: Vec::with_capacity(options.max_context),
            ids: Vec::new(),
            positions: Vec::with_capacity(options.max_context),
            options,
            logits: Vec::new(),
        })
    }

    /// The parts of the function.
    pub fn io(&self) -> &Io {
        &self.io
    }

    /// The caches.
    pub fn states(&self) -> &States {
        &self.states
    }

    /// From now on sums up the time of every step of the plan.
    pub fn start_profile(&mut self) {
        self.executor.start_profile();
    }

    /// The time each step of the plan took since [`SequentialEngine::start_profile`]; empty without it.
    pub fn profile(&self) -> &[std::time::Duration] {
        self.executor.profile()
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        self.executor.plan()
    }

    /// One call of the function. Returns the logits of every token, `[1, q, vocab]` (`[1, 1, vocab]` of
    /// the last one, where the plan was made so).
    pub fn call(&mut self, tokens: &[Token]) -> Result<View<'_>, EngineError> {
        self.room(tokens)?;
        self.ids.clear();
        for &token in tokens {
            self.ids
                .push(i32::try_from(token).map_err(|_| EngineError::Token {
                    token,
                    vocab: self.logits.len(),
                })?);
        }
        let total = self.history.len() + tokens.len();
        while self.positions.len() < total {
            self.positions.push(self.positions.len() as i32);
        }
        let (q, t) = ([1, tokens.len()], [1, total]);
        let inputs = [
            Input {
                name: &self.io.tokens,
                dtype: DType::I32,
                shape: &q,
                data: bytes_of(&self.ids),
            },
            Input {
                name: &self.io.positions,
                dtype: DType::I32,
                shape: &t,
                data: bytes_of(&self.positions[..total]),
            },
        ];
        self.executor.run(&inputs, &mut self.states)?;
        self.history.extend_from_slice(tokens);
        self.executor
            .output(&self.io.logits)
            .ok_or_else(|| EngineError::Contract {
                function: self.executor.plan().function().into(),
                reason: "it returned no logits".into(),
            })
    }

    fn room(&self, tokens: &[Token]) -> Result<(), EngineError> {
        let (position, new, limit) = (self.history.len(), tokens.len(), self.limit());
        if new == 0 {
            return Err(EngineError::Empty);
        }
        if position + new > limit {
            Err(EngineError::ContextFull {
                position,
                new,
                limit,
            })
        } else {
            Ok(())
        }
    }

    /// Tokens to process in one call of a prompt of `len`.
    fn chunk(&self, len: usize) -> usize {
        match self.io.fixed_query {
            Some(q) => q,
            None if len > self.options.chunk_threshold => self.options.chunk,
            None => len,
        }
    }
}

impl Engine for SequentialEngine {
    fn feed(
        &mut self,
        tokens: &[Token],
        cancelled: &dyn Fn() -> bool,
    ) -> Result<usize, EngineError> {
        self.room(tokens)?;
        let mut done = 0;
        for part in tokens.chunks(self.chunk(tokens.len()).max(1)) {
            if cancelled() {
                break;
            }
            let mut logits = std::mem::take(&mut self.logits);
            let view = self.call(part);
            let read = view.map(|view| last_row(&view, &mut logits));
            self.logits = logits;
            read?;
            done += part.len();
        }
        Ok(done)
    }

    fn logits(&self) -> &[f32] {
        &self.logits
    }

    fn history(&self) -> &[Token] {
        &self.history
    }

    fn rewind(&mut self, to: usize) -> Result<(), EngineError> {
        if to == self.history.len() {
            return Ok(());
        }
        if to > self.history.len() {
            return Err(EngineError::Rewind {
                to,
                reason: format!("only {} tokens are held", self.history.len()),
            });
        }
        if to == 0 {
            // What caches hold of other tokens is behind the positions that are read.
            for (index, kind) in self.io.states.iter().enumerate() {
                if *kind == StateKind::Fixed {
                    self.states.bytes_mut(index).fill(0);
                }
            }
        } else if !self.can_rewind() {
            return Err(EngineError::Rewind {
                to,
                reason: "a state of this model cannot be taken back".into(),
            });
        }
        self.history.truncate(to);
        Ok(())
    }

    fn limit(&self) -> usize {
        self.options.max_context
    }

    fn can_rewind(&self) -> bool {
        self.io.states.iter().all(|k| *k == StateKind::KvCache)
    }
}

/// The last row of `[1, q, vocab]` logits as f32.
fn last_row(view: &View<'_>, out: &mut Vec<f32>) {
    let vocab = view.shape().last().copied().unwrap_or(0);
    out.resize(vocab, 0.0);
    let rows = view.len().checked_div(vocab).unwrap_or(0);
    if rows > 0 {
        view.read_row(rows - 1, out);
    }
}
