//! The one loop that joins engine, sampler, stop tokens and cancellation.

use crate::detokenize::Detokenizer;
use crate::engine::{Engine, EngineError, Token};
use crate::open::Error;
use crate::sample::{Sampler, Sampling};
use crate::tokenizer::Tokenizer;

/// How to generate.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct GenerateOptions {
    /// How to pick tokens; greedy by default.
    pub sampling: Sampling,
    /// The most tokens to generate; `None` until the context is full.
    pub max_tokens: Option<usize>,
    /// Tokens that end the answer besides the model's own.
    pub stop_tokens: Vec<Token>,
}

impl Default for GenerateOptions {
    fn default() -> Self {
        Self {
            sampling: Sampling::greedy(),
            max_tokens: Some(512),
            stop_tokens: Vec::new(),
        }
    }
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StopReason {
    /// A stop token.
    Stop(Token),
    /// The most tokens asked for.
    MaxTokens,
    /// The context is full.
    ContextFull,
    /// Somebody asked for it.
    Cancelled,
}

/// A finished answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Generated {
    /// Its tokens, without the stop token.
    pub tokens: Vec<Token>,
    /// Its text.
    pub text: String,
    /// Why it ended.
    pub reason: StopReason,
}

/// Generates after the tokens that the engine holds: its logits are those of the last one. `on_text` gets text as it becomes
/// certain; `cancelled` is asked before every step.
pub fn generate(
    engine: &mut dyn Engine,
    tokenizer: &Tokenizer,
    stops: &[Token],
    options: &GenerateOptions,
    on_text: &mut dyn FnMut(&str),
    cancelled: &dyn Fn() -> bool,
) -> Result<Generated, Error> {
    let mut sampler = Sampler::new(&options.sampling)?;
    let mut detokenizer = Detokenizer::new(tokenizer, true);
    let mut out = Generated {
        tokens: Vec::new(),
        text: String::new(),
        reason: StopReason::MaxTokens,
    };
    let mut emit = |text: String, out: &mut Generated| {
        if !text.is_empty() {
            on_text(&text);
            out.text += &text;
        }
    };
    while options.max_tokens.is_none_or(|max| out.tokens.len() < max) {
        if cancelled() {
            out.reason = StopReason::Cancelled;
            break;
        }
        let token = sampler.sample(engine.logits());
        if stops.contains(&token) || options.stop_tokens.contains(&token) {
            out.reason = StopReason::Stop(token);
            break;
        }
        out.tokens.push(token);
        emit(detokenizer.push(token)?, &mut out);
        if options.max_tokens == Some(out.tokens.len()) {
            break;
        }
        match engine.feed(&[token], &|| false) {
            Err(EngineError::ContextFull { .. }) => {
                out.reason = StopReason::ContextFull;
                break;
            }
            other => other?,
        };
    }
    emit(detokenizer.finish()?, &mut out);
    Ok(out)
}
