//! Tokens that are given, and for each the logits that predicted it.

use super::EvaluationError;
use crate::engine::{Engine, EngineVariant, Logits, SequentialEngine, Token};
use crate::open::Model;

/// Tokens that are processed in one call: their logits are all there at once.
const CHUNK: usize = 64;

/// Runs a model over given tokens. A model opened with [`crate::OpenOptions::all_logits`] takes many at a time, any other one after
/// the other; both give the same.
pub struct Scorer {
    engine: Runs,
    vocabulary: usize,
}

enum Runs {
    /// All logits of many tokens at once.
    Many(Box<SequentialEngine>),
    /// Those of the last.
    One(Box<dyn Engine>),
}

impl Scorer {
    /// A scorer with caches of its own.
    ///
    /// # Errors
    /// Those of [`Model::engine`].
    pub fn new(model: &Model) -> Result<Self, EvaluationError> {
        let engine = match model.variant() {
            EngineVariant::StaticShape => Runs::One(model.engine()?),
            _ if model.makes_all_logits() => Runs::Many(Box::new(model.sequential()?)),
            _ => Runs::One(model.engine()?),
        };
        Ok(Self {
            engine,
            vocabulary: model.vocabulary(),
        })
    }

    /// The most tokens at a time.
    pub fn limit(&self) -> usize {
        match &self.engine {
            Runs::Many(engine) => engine.limit(),
            Runs::One(engine) => engine.limit(),
        }
    }

    /// Entries of the vocabulary, as the logits have them.
    pub fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    /// Hands `each` every token from position `from` on (1 or later) with the logits that predicted it. Tokens that the last call
    /// began with as well are not processed again.
    ///
    /// # Errors
    /// [`EvaluationError::TooShort`] where nothing is predicted; those of the engine.
    pub fn score(
        &mut self,
        tokens: &[Token],
        from: usize,
        each: &mut dyn FnMut(Token, Logits<'_>),
    ) -> Result<(), EvaluationError> {
        let from = from.max(1);
        if tokens.len() <= from {
            return Err(EvaluationError::TooShort(tokens.len()));
        }
        let kept = self.keep(&tokens[..from - 1])?;
        // The last token predicts nothing that is asked for.
        let mut at = kept;
        while at + 1 < tokens.len() {
            let end = tokens.len().min(at + 1 + CHUNK) - 1;
            let mut row = |i: usize, logits: Logits<'_>| {
                let next = at + i + 1;
                if next >= from {
                    each(tokens[next], logits);
                }
            };
            at += self.rows(&tokens[at..end], &mut row)?;
        }
        Ok(())
    }

    /// Goes back to what is held of a prefix, and returns how much that is.
    fn keep(&mut self, prefix: &[Token]) -> Result<usize, EvaluationError> {
        let engine: &mut dyn Engine = match &mut self.engine {
            Runs::Many(engine) => &mut **engine,
            Runs::One(engine) => &mut **engine,
        };
        let common = engine.history().iter().zip(prefix);
        let common = common.take_while(|(a, b)| a == b).count();
        Ok(match engine.trim_kv_cache(common) {
            Some(kept) => kept,
            None => {
                engine.rewind(0)?;
                0
            }
        })
    }

    /// Processes some tokens, as many as can be at once, and says how many that was.
    fn rows(
        &mut self,
        tokens: &[Token],
        each: &mut dyn FnMut(usize, Logits<'_>),
    ) -> Result<usize, EvaluationError> {
        match &mut self.engine {
            Runs::Many(engine) => {
                let view = engine.call(tokens)?;
                for i in 0..tokens.len() {
                    each(i, Logits::of(&view, i).unwrap_or_default());
                }
                Ok(tokens.len())
            }
            Runs::One(engine) => {
                engine.feed(&tokens[..1], &|| false)?;
                each(0, engine.logits());
                Ok(1)
            }
        }
    }
}

impl std::fmt::Debug for Scorer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Scorer")
    }
}
