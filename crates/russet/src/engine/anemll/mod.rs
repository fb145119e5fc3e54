//! The engine over Core ML models in ANEMLL's layout (contract A): embeddings, decoder chunks, a head, called one after another.
//!
//! Full batches of a prompt go through `prefill`, everything else token by token through `infer`; padding is never processed, and
//! every position is processed once and in order, but for one case: where `prefill` gives nothing that the head takes, the last
//! token of a prompt that ends with a batch goes through `infer` again, which writes the same keys and values to the same place.

mod call;
mod chain;

use std::sync::Arc;

use russet_graph::exec::{Executor, States};

use self::call::Carried;
use self::chain::Kind;
pub(crate) use self::chain::{Chain, Part};
use super::snapshot::{held_state, put_state};
use super::{
    Capabilities, Engine, EngineError, Logits, Rewinding, Snapshot, Token, check_held, check_room,
};

/// See the module page.
#[derive(Debug)]
pub struct AnemllEngine {
    chain: Arc<Chain>,
    /// An executor for every stage that has run.
    executors: Vec<Option<Executor>>,
    states: States,
    limit: usize,
    history: Vec<Token>,
    carried: Carried,
    logits: Vec<f32>,
}

impl AnemllEngine {
    /// An engine with empty states that holds up to `limit` tokens.
    pub(crate) fn new(chain: Arc<Chain>, limit: usize) -> Result<Self, EngineError> {
        Ok(Self {
            executors: (0..chain.stages()).map(|_| None).collect(),
            states: chain.states()?,
            limit: limit.min(chain.context),
            chain,
            history: Vec::new(),
            carried: Carried::default(),
            logits: Vec::new(),
        })
    }

    /// Tokens of a `prefill` call.
    pub fn batch(&self) -> usize {
        self.chain.batch
    }

    /// Names of the states, in the order of [`AnemllEngine::states`].
    pub fn state_names(&self) -> impl Iterator<Item = &str> {
        self.chain.slots.iter().map(|s| &*s.name)
    }

    /// The states.
    pub fn states(&self) -> &States {
        &self.states
    }

    /// An output that a part of the last call gave, as f32; `None` where there is none of this name.
    pub(crate) fn output(&self, name: &str) -> Option<Vec<f32>> {
        self.carried.output(name)
    }

    /// The functions for the next tokens of a prompt, and how many tokens they take: a full batch where one is left and nothing
    /// speaks against it.
    fn next(&self, left: usize) -> (Kind, usize) {
        let (chain, held) = (&self.chain, self.history.len());
        let behind = |from: usize| chain.window.is_some_and(|w| from >= w);
        let single = if behind(held) {
            Kind::InferRotate
        } else {
            Kind::Infer
        };
        let full = held + chain.batch;
        // A batch that only in part lies behind the window goes token by token.
        let whole = behind(held) || !behind(full.saturating_sub(1));
        let again = chain.last_token_output || left > chain.batch || chain.is_plain();
        let many = if behind(held) {
            Kind::PrefillRotate
        } else {
            Kind::Prefill
        };
        let batch = left >= chain.batch && full <= self.limit && whole && again;
        if batch && chain.prefill && chain.has(many) {
            return (many, chain.batch);
        }
        (
            if chain.has(single) {
                single
            } else {
                Kind::Infer
            },
            1,
        )
    }

    /// Runs every part on some tokens behind those held.
    fn call(&mut self, kind: Kind, tokens: &[Token]) -> Result<(), EngineError> {
        let at = self.history.len();
        self.position(kind, tokens, at)?;
        self.history.extend_from_slice(tokens);
        Ok(())
    }

    /// The same at some position.
    fn position(&mut self, kind: Kind, tokens: &[Token], at: usize) -> Result<(), EngineError> {
        let chain = self.chain.clone();
        self.carried.begin(tokens, at)?;
        for part in &chain.parts {
            let stage = part.stage(kind).ok_or_else(|| EngineError::Contract {
                function: part.name.clone(),
                reason: format!("it has no function {:?}", kind.name()),
            })?;
            let executor = self
                .executors
                .get_mut(stage.number)
                .ok_or(EngineError::Empty)?;
            let executor = executor
                .get_or_insert_with(|| Executor::new(stage.plan.clone(), chain.pool.clone()));
            let mut lent = self.states.lend(&stage.slots);
            let run = self.carried.run(executor, &mut lent);
            self.states.put_back(&stage.slots, lent);
            run?;
            self.carried.take(executor)?;
        }
        Ok(())
    }

    /// The logits of the last token, from what its call left.
    fn read_logits(&mut self, kind: Kind) -> Result<(), EngineError> {
        let chain = self.chain.clone();
        if kind.is_batch() && !chain.last_token_output && chain.head.is_some() {
            let last = *self.history.last().ok_or(EngineError::Empty)?;
            self.position(Kind::Infer, &[last], self.history.len() - 1)?;
        }
        let stage = match &chain.head {
            Some(head) => Some(head),
            None => chain.parts.last().and_then(|part| part.stage(kind)),
        };
        let stage = stage.ok_or(EngineError::Empty)?;
        let executor = self
            .executors
            .get_mut(stage.number)
            .ok_or(EngineError::Empty)?;
        let executor =
            executor.get_or_insert_with(|| Executor::new(stage.plan.clone(), chain.pool.clone()));
        if chain.head.is_some() {
            self.carried.run(executor, &mut States::default())?;
        }
        self.logits.clear();
        call::logits(executor, &chain, &mut self.logits)
    }

    /// Forgets everything.
    fn clear(&mut self) {
        (0..self.states.len()).for_each(|i| self.states.bytes_mut(i).fill(0));
        self.history.clear();
    }
}

impl Engine for AnemllEngine {
    fn feed(
        &mut self,
        tokens: &[Token],
        cancelled: &dyn Fn() -> bool,
    ) -> Result<usize, EngineError> {
        check_room(self.history.len(), tokens.len(), self.limit)?;
        let (mut done, mut last) = (0, None);
        while done < tokens.len() && !cancelled() {
            let (kind, count) = self.next(tokens.len() - done);
            let part = tokens.get(done..done + count).unwrap_or_default();
            if let Err(error) = self.call(kind, part) {
                // A failed call leaves running values in no known state: they start again.
                if self.capabilities().rewinding == Rewinding::ToTheStart {
                    self.clear();
                }
                return Err(error);
            }
            done += count;
            last = Some(kind);
        }
        if let Some(kind) = last {
            self.read_logits(kind)?;
        }
        Ok(done)
    }

    fn logits(&self) -> Logits<'_> {
        self.logits[..].into()
    }

    fn history(&self) -> &[Token] {
        &self.history
    }

    fn rewind(&mut self, to: usize) -> Result<(), EngineError> {
        let held = self.history.len();
        check_held(to, held)?;
        if to == 0 {
            self.clear();
            return Ok(());
        }
        let refused = |reason: String| Err(EngineError::Rewind { to, reason });
        match self.capabilities().rewinding {
            Rewinding::ToTheStart if to != held => {
                return refused("a state of this model cannot be taken back".into());
            }
            Rewinding::Within(n) if to != held && held > n => {
                return refused(format!("a cache holds the last {n} of {held} tokens only"));
            }
            _ => {}
        }
        self.history.truncate(to);
        Ok(())
    }

    fn limit(&self) -> usize {
        self.limit
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            logits: true,
            forced_continuation: true,
            rewinding: self.chain.rewinding(),
            unbounded: false,
        }
    }

    fn threads(&self) -> usize {
        self.chain.pool.threads()
    }

    fn state_bytes(&self) -> usize {
        self.states.size()
    }

    fn snapshot(&self) -> Snapshot {
        let slots = self.chain.slots.iter().enumerate();
        let states = slots.map(|(i, slot)| {
            let held = held_state(&self.states, i, &slot.role, self.history.len());
            (slot.key(), held)
        });
        Snapshot::new(&self.history, states.collect())
    }

    fn restore(&mut self, snapshot: &Snapshot) -> Result<(), EngineError> {
        let held = snapshot.tokens().len();
        if held > self.limit {
            let limit = self.limit;
            let reason = format!("it holds {held} tokens, this engine at most {limit}");
            return Err(EngineError::Snapshot(reason));
        }
        let chain = self.chain.clone();
        let keys: Vec<String> = chain.slots.iter().map(chain::Slot::key).collect();
        let typed = keys
            .iter()
            .zip(&chain.slots)
            .map(|(key, slot)| (&**key, &slot.ty));
        let roles: Vec<_> = chain.slots.iter().map(|s| s.role.clone()).collect();
        let found = snapshot.check(&typed.collect::<Vec<_>>(), &roles)?;
        self.clear();
        for (index, (role, state)) in roles.iter().zip(found).enumerate() {
            put_state(&mut self.states, index, role, state);
        }
        self.history.extend_from_slice(snapshot.tokens());
        self.logits.clear();
        Ok(())
    }
}
