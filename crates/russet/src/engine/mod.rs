//! Engines: what turns tokens into logits.
//!
//! The trait holds only what every engine must answer; what an engine can do besides, [`Engine::capabilities`] says. A model's
//! structure chooses the engine ([`EngineVariant::select`]): [`SequentialEngine`] for one dynamic function (contract B §5.3; the
//! pipelined way to generate, §5.4, runs on it too), [`StaticShapeEngine`] for functions of fixed shapes (§5.5), [`AnemllEngine`] for Core ML models in parts (contract A). [`Windowed`] makes
//! either go on for ever.

mod anemll;
mod error;
mod io;
mod ladder;
mod logits;
mod sequential;
mod snapshot;
mod static_shape;
mod structure;
mod windowed;

pub use anemll::AnemllEngine;
pub(crate) use anemll::{Chain, Part};
pub use error::EngineError;
pub use io::{Io, MaskInput, StateKind, StateRole};
pub(crate) use io::{LOGITS, MASK, POSITIONS, TOKENS, logits_of, pads};
pub use ladder::Ladder;
pub(crate) use ladder::{Purpose, Rung};
pub use logits::Logits;
pub use sequential::{EngineOptions, SequentialEngine};
pub use snapshot::Snapshot;
pub use static_shape::StaticShapeEngine;
pub use structure::{EngineVariant, KvCacheStrategy, ModelStructure};
pub use windowed::Windowed;

/// A token's number in the vocabulary.
pub type Token = u32;

/// How far an engine can go back without processing tokens again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rewinding {
    /// To every earlier position.
    Anywhere,
    /// To every earlier position while no more than this many tokens are held, afterwards only to the start.
    Within(usize),
    /// Only to the start: a state is a running value.
    ToTheStart,
}

/// What an engine can do. Known before anything has run, and it stays true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// Logits of the last token can be read after every step.
    pub logits: bool,
    /// Given tokens can be processed in place of sampled ones, with the logits of each.
    pub forced_continuation: bool,
    /// How it goes back.
    pub rewinding: Rewinding,
    /// It forgets the oldest tokens instead of being full.
    pub unbounded: bool,
}

/// What every engine answers.
pub trait Engine: Send {
    /// Processes tokens after those already held; afterwards [`Engine::logits`] are those of the last one. `cancelled` is asked
    /// between chunks: where it says so, the engine stops early and returns how many tokens it took.
    ///
    /// # Errors
    /// [`EngineError`]; the tokens held are then those from before the chunk that failed, or none where a state cannot be taken
    /// back.
    fn feed(
        &mut self,
        tokens: &[Token],
        cancelled: &dyn Fn() -> bool,
    ) -> Result<usize, EngineError>;

    /// Logits of the last token processed, where the model left them: one number for each entry of the vocabulary; none before the
    /// first token. After going back they are still those of the token processed last.
    fn logits(&self) -> Logits<'_>;

    /// Tokens processed so far, in order.
    fn history(&self) -> &[Token];

    /// Forgets all tokens from position `to` on.
    ///
    /// # Errors
    /// [`EngineError::Rewind`] where fewer tokens are held or a state cannot be taken back.
    fn rewind(&mut self, to: usize) -> Result<(), EngineError>;

    /// The most tokens it can hold; of an engine that forgets, `usize::MAX`.
    fn limit(&self) -> usize;

    /// What it can do.
    fn capabilities(&self) -> Capabilities;

    /// Goes back towards position `to`, for a prompt that shares a prefix with what is held (contract B §6.3). Returns how many
    /// tokens are kept: `to`, or all where fewer are held. [`Engine::feed`] then takes the tokens from there on, never the whole
    /// sequence. `None` where the states cannot be taken back there: nothing has changed, and only `rewind(0)` is left.
    fn trim_kv_cache(&mut self, to: usize) -> Option<usize> {
        let kept = to.min(self.history().len());
        self.rewind(kept).ok().map(|()| kept)
    }

    /// Bytes of caches and other states that this engine holds.
    fn state_bytes(&self) -> usize;

    /// Threads that it computes with, the calling one among them.
    fn threads(&self) -> usize;

    /// Everything that must be kept to go on from here later.
    fn snapshot(&self) -> Snapshot;

    /// Goes on from a snapshot of an engine over the same function.
    ///
    /// # Errors
    /// [`EngineError::Snapshot`] where it is of another model or more than fits; the engine is as before.
    fn restore(&mut self, snapshot: &Snapshot) -> Result<(), EngineError>;
}

impl<E: Engine + ?Sized> Engine for Box<E> {
    fn feed(
        &mut self,
        tokens: &[Token],
        cancelled: &dyn Fn() -> bool,
    ) -> Result<usize, EngineError> {
        (**self).feed(tokens, cancelled)
    }
    fn logits(&self) -> Logits<'_> {
        (**self).logits()
    }
    fn history(&self) -> &[Token] {
        (**self).history()
    }
    fn rewind(&mut self, to: usize) -> Result<(), EngineError> {
        (**self).rewind(to)
    }
    fn limit(&self) -> usize {
        (**self).limit()
    }
    fn capabilities(&self) -> Capabilities {
        (**self).capabilities()
    }
    fn trim_kv_cache(&mut self, to: usize) -> Option<usize> {
        (**self).trim_kv_cache(to)
    }
    fn state_bytes(&self) -> usize {
        (**self).state_bytes()
    }
    fn threads(&self) -> usize {
        (**self).threads()
    }
    fn snapshot(&self) -> Snapshot {
        (**self).snapshot()
    }
    fn restore(&mut self, snapshot: &Snapshot) -> Result<(), EngineError> {
        (**self).restore(snapshot)
    }
}

/// Brings an engine to hold exactly `tokens`, reusing the longest prefix it already holds, and returns how many tokens were
/// reused. At least the last token is processed anew, so that its logits are there.
///
/// # Errors
/// Those of [`Engine::feed`]; [`EngineError::Empty`] where there are no tokens.
pub fn resume(
    engine: &mut dyn Engine,
    tokens: &[Token],
    cancelled: &dyn Fn() -> bool,
) -> Result<usize, EngineError> {
    let last = tokens.len().checked_sub(1).ok_or(EngineError::Empty)?;
    // Before anything is forgotten for it.
    check_room(0, tokens.len(), engine.limit())?;
    let common = engine.history().iter().zip(tokens);
    let common = common.take_while(|(a, b)| a == b).count().min(last);
    let kept = match engine.trim_kv_cache(common) {
        Some(kept) => kept,
        None => {
            engine.rewind(0)?;
            0
        }
    };
    engine.feed(&tokens[kept..], cancelled)?;
    Ok(kept)
}

/// Going back to where nothing has been yet.
fn check_held(to: usize, held: usize) -> Result<(), EngineError> {
    if to <= held {
        return Ok(());
    }
    let reason = format!("only {held} tokens are held");
    Err(EngineError::Rewind { to, reason })
}

/// Room that has been asked for and is not there.
fn check_room(held: usize, new: usize, limit: usize) -> Result<(), EngineError> {
    if new == 0 {
        return Err(EngineError::Empty);
    }
    if new > limit.saturating_sub(held) {
        return Err(EngineError::ContextFull {
            position: held,
            new,
            limit,
        });
    }
    Ok(())
}
