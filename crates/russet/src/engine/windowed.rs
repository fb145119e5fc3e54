//! A conversation without end over an engine that has one: `chunked` (contract B §5.7), as a sliding window.
//!
//! When the window is full, the oldest tokens but the first few (the sinks that attention rests on: Xiao et al., "Efficient
//! Streaming Language Models with Attention Sinks", 2024) are forgotten, so many that half of the rest of the window is free again, and
//! those that stay are processed anew, at the positions they have now. What is held depends on the number of tokens alone, not on how
//! they came, so that every engine after the same tokens holds the same. A token costs at most one more that is read as a prompt.

use super::{Capabilities, Engine, EngineError, Logits, Rewinding, Snapshot, Token, check_held};

/// See the module page.
#[derive(Debug)]
pub struct Windowed<E> {
    engine: E,
    window: Window,
    history: Vec<Token>,
}

/// How many tokens a window holds, and which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Window {
    size: usize,
    sinks: usize,
}

impl Window {
    /// Tokens that are forgotten at once.
    fn step(self) -> usize {
        ((self.size - self.sinks) / 2).max(1)
    }

    /// Tokens behind the sinks that are forgotten once there are `total`.
    fn forgotten(self, total: usize) -> usize {
        total.saturating_sub(self.size).div_ceil(self.step()) * self.step()
    }
}

impl<E: Engine> Windowed<E> {
    /// A window of what `engine` holds, whose first `sinks` tokens are never forgotten.
    ///
    /// # Errors
    /// [`EngineError::Strategy`] where the sinks leave no room for anything else.
    pub fn new(engine: E, sinks: usize) -> Result<Self, EngineError> {
        let size = engine.limit();
        if size < sinks.saturating_add(2) {
            return Err(EngineError::Strategy {
                strategy: "chunked",
                reason: format!(
                    "{sinks} attention sinks leave no room in a window of {size} tokens"
                ),
            });
        }
        Ok(Self {
            engine,
            window: Window { size, sinks },
            history: Vec::new(),
        })
    }

    /// The engine, which holds what is inside the window.
    pub fn inner(&self) -> &E {
        &self.engine
    }

    /// The tokens that are held of `history`.
    fn held(&self, history: &[Token]) -> Vec<Token> {
        let forgotten = self.window.forgotten(history.len());
        if forgotten == 0 {
            return history.to_vec();
        }
        let (sinks, rest) = history.split_at(self.window.sinks);
        [sinks, &rest[forgotten..]].concat()
    }

    /// Makes the engine hold what is held of `history`, as far as it is not cancelled; returns whether it was not.
    fn hold(
        &mut self,
        history: &[Token],
        cancelled: &dyn Fn() -> bool,
    ) -> Result<bool, EngineError> {
        let held = self.held(history);
        let common = self.engine.history().iter().zip(&held);
        let common = common.take_while(|(a, b)| a == b).count();
        let kept = match self.engine.trim_kv_cache(common) {
            Some(kept) => kept,
            None => {
                self.engine.rewind(0)?;
                0
            }
        };
        if kept == held.len() {
            return Ok(true);
        }
        Ok(self.engine.feed(&held[kept..], cancelled)? == held.len() - kept)
    }
}

impl<E: Engine> Engine for Windowed<E> {
    fn feed(
        &mut self,
        tokens: &[Token],
        cancelled: &dyn Fn() -> bool,
    ) -> Result<usize, EngineError> {
        if tokens.is_empty() {
            return Err(EngineError::Empty);
        }
        let total = self.history.len() + tokens.len();
        let before = self.window.forgotten(self.history.len());
        if self.window.forgotten(total) == before {
            let taken = self.engine.feed(tokens, cancelled)?;
            self.history.extend_from_slice(&tokens[..taken]);
            return Ok(taken);
        }
        let history = [&self.history[..], tokens].concat();
        match self.hold(&history, cancelled) {
            Ok(true) => self.history = history,
            other => {
                // Nothing of the new tokens is kept: the window slides as a whole or not at all.
                let history = std::mem::take(&mut self.history);
                let restored = self.hold(&history, &|| false);
                self.history = history;
                return other.and(restored).map(|_| 0);
            }
        }
        Ok(tokens.len())
    }

    fn logits(&self) -> Logits<'_> {
        self.engine.logits()
    }

    fn history(&self) -> &[Token] {
        &self.history
    }

    fn rewind(&mut self, to: usize) -> Result<(), EngineError> {
        let held = self.history.len();
        check_held(to, held)?;
        let forgotten = self.window.forgotten(held);
        if to == 0 {
            self.engine.rewind(0)?;
        } else if forgotten == self.window.forgotten(to) {
            // The same tokens are forgotten: what is held ends earlier.
            self.engine.rewind(to - forgotten)?;
        } else if self.capabilities().rewinding == Rewinding::Anywhere {
            let kept = self.history[..to].to_vec();
            self.hold(&kept, &|| false)?;
        } else {
            let reason = "what is before it has been forgotten".into();
            return Err(EngineError::Rewind { to, reason });
        }
        self.history.truncate(to);
        Ok(())
    }

    fn limit(&self) -> usize {
        usize::MAX
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            unbounded: true,
            ..self.engine.capabilities()
        }
    }

    fn state_bytes(&self) -> usize {
        self.engine.state_bytes()
    }

    fn threads(&self) -> usize {
        self.engine.threads()
    }

    fn snapshot(&self) -> Snapshot {
        let window = [self.window.size, self.window.sinks];
        let own = self.window.forgotten(self.history.len()) > 0;
        self.engine
            .snapshot()
            .with_tokens(&self.history, own.then_some(window))
    }

    fn restore(&mut self, snapshot: &Snapshot) -> Result<(), EngineError> {
        let history = snapshot.tokens();
        let window = [self.window.size, self.window.sinks];
        if let Some([size, sinks]) = snapshot.window().filter(|w| *w != window) {
            let reason = format!("it is of a window of {size} tokens with {sinks} sinks");
            return Err(EngineError::Snapshot(reason));
        }
        self.engine
            .restore(&snapshot.with_tokens(&self.held(history), None))?;
        self.history = history.to_vec();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_never_overfull_and_never_half_empty() {
        for (size, sinks) in [(16, 4), (17, 0), (6, 4), (100, 1), (3, 1)] {
            let window = Window { size, sinks };
            let mut last = 0;
            for total in 0..1000 {
                let forgotten = window.forgotten(total);
                assert!(
                    forgotten >= last && total - forgotten <= size,
                    "{window:?} {total}"
                );
                if forgotten > last {
                    assert!(total - forgotten > sinks, "{window:?} {total}");
                    assert_eq!(forgotten - last, window.step());
                }
                last = forgotten;
            }
            assert!(last > 0);
        }
    }
}
