//! Sampling of one's own (contract B §9.3): a [`Strategy`] sees every row of logits before the filters do, and may pick the token
//! itself. It works wherever tokens are made: [`crate::generate`], sessions, evaluation, the command line.
//!
//! A repetition penalty of one's own, with a list of words that never come:
//!
//! ```
//! use russet::{GenerateOptions, Model, OpenOptions, Strategies, Strategy, Token};
//!
//! struct Careful { said: Vec<Token>, banned: Vec<Token> }
//!
//! impl Strategy for Careful {
//!     fn adjust(&mut self, logits: &mut [f32]) {
//!         for token in &self.said {
//!             logits[*token as usize] -= 1.5;
//!         }
//!         for token in &self.banned {
//!             logits[*token as usize] = f32::NEG_INFINITY;
//!         }
//!     }
//!     fn accept(&mut self, token: Token) {
//!         self.said.push(token);
//!     }
//! }
//!
//! # fn main() -> Result<(), russet::Error> {
//! let bundle = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/turns/llama");
//! let model = Model::open(bundle, &OpenOptions::default())?;
//! let prompt = model.plain_prompt("hello")?;
//! let mut session = model.session()?;
//! let mut options = GenerateOptions::default();
//! options.max_tokens = Some(8);
//! let free = session.answer(&prompt, &options, &mut |_| ())?;
//!
//! // The tokens that came are the ones that may not come now.
//! let banned = free.tokens.clone();
//! options.strategy = Some(Strategies::new(move || Careful { said: vec![], banned: banned.clone() }));
//! let careful = session.answer(&prompt, &options, &mut |_| ())?;
//! assert!(careful.tokens.iter().all(|t| !free.tokens.contains(t)));
//! let mut twice = careful.tokens.clone();
//! twice.sort_unstable();
//! twice.dedup();
//! assert!(twice.len() > 1, "the penalty keeps it from saying one thing over and over");
//!
//! // The same below the session.
//! let mut engine = model.engine()?;
//! engine.feed(&prompt, &|| false)?;
//! let mut said = String::new();
//! let generated = russet::generate(
//!     &mut *engine, model.tokenizer()?, model.stop_tokens(), &options, &mut |text| said += text, &|| false,
//! )?;
//! assert_eq!((generated.tokens, generated.text), (careful.tokens, said));
//! # Ok(()) }
//! ```

use std::fmt;
use std::sync::Arc;

use crate::engine::Token;

/// Takes part in the choice of every token of one answer.
pub trait Strategy: Send {
    /// Before the first token: those of the prompt.
    fn begin(&mut self, _prompt: &[Token]) {}

    /// Changes the logits that filters and draw will work on, one for each entry of the vocabulary. What a constraint forbids is
    /// minus infinity, and stays so. Penalties and biases of the sampling come first.
    fn adjust(&mut self, _logits: &mut [f32]) {}

    /// Picks the token; `None` leaves it to the sampling. A token that a constraint forbids is not taken.
    fn pick(&mut self, _logits: &[f32]) -> Option<Token> {
        None
    }

    /// After every token of the answer, also where it was given and not chosen.
    fn accept(&mut self, _token: Token) {}
}

/// Makes a strategy for every answer, so that nothing of one answer lives on in the next.
#[derive(Clone)]
pub struct Strategies(Arc<dyn Fn() -> Box<dyn Strategy> + Send + Sync>);

impl Strategies {
    /// Strategies made by a function.
    pub fn new<S: Strategy + 'static>(make: impl Fn() -> S + Send + Sync + 'static) -> Self {
        Self(Arc::new(move || Box::new(make())))
    }

    /// One for an answer.
    pub fn make(&self) -> Box<dyn Strategy> {
        (self.0)()
    }
}

impl fmt::Debug for Strategies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Strategies")
    }
}
