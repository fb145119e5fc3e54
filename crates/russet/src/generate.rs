//! The loop that joins engine, sampler, stop tokens and cancellation. It has two sides, the model's and the caller's: they take
//! turns ([`generate`]), or the model's goes ahead on a thread of its own ([`generate_ahead`], contract B §5.4).

use std::panic::resume_unwind;
use std::sync::mpsc::sync_channel;
use std::thread;

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

/// Tokens that the model may be ahead of what is done with them.
const AHEAD: usize = 3;

/// Generates after the tokens that the engine holds: its logits are those of the last one. `on_text` gets text as it becomes
/// certain; `cancelled` is asked before every step.
///
/// # Errors
/// Those of the sampling numbers, the engine and the tokenizer.
pub fn generate(
    engine: &mut dyn Engine,
    tokenizer: &Tokenizer,
    stops: &[Token],
    options: &GenerateOptions,
    on_text: &mut dyn FnMut(&str),
    cancelled: &(dyn Fn() -> bool + Sync),
) -> Result<Generated, Error> {
    let mut steps = Steps::new(engine, stops, options, cancelled)?;
    let mut answer = Answer::new(tokenizer, on_text);
    loop {
        match steps.next()? {
            Ok(token) => answer.push(token)?,
            Err(reason) => return answer.finish(reason),
        }
    }
}

/// The same tokens and the same text, made faster: the model goes on with a token while text is made of it and handed to `on_text`.
///
/// # Errors
/// Those of [`generate`].
pub fn generate_ahead(
    engine: &mut dyn Engine,
    tokenizer: &Tokenizer,
    stops: &[Token],
    options: &GenerateOptions,
    on_text: &mut dyn FnMut(&str),
    cancelled: &(dyn Fn() -> bool + Sync),
) -> Result<Generated, Error> {
    let mut steps = Steps::new(engine, stops, options, cancelled)?;
    let mut answer = Answer::new(tokenizer, on_text);
    let (send, receive) = sync_channel(AHEAD);
    let reason = thread::scope(|scope| {
        let model = scope.spawn(move || {
            loop {
                match steps.next()? {
                    // Nobody listens any more where the text could not be made.
                    Ok(token) if send.send(token).is_err() => return Ok(StopReason::Cancelled),
                    Ok(_) => {}
                    Err(reason) => return Ok(reason),
                }
            }
        });
        let text = receive.iter().try_for_each(|token| answer.push(token));
        drop(receive);
        let reason: Result<StopReason, Error> = model.join().unwrap_or_else(|p| resume_unwind(p));
        text.and(reason)
    })?;
    answer.finish(reason)
}

/// The model's side of the loop: token after token.
struct Steps<'a> {
    engine: &'a mut dyn Engine,
    sampler: Sampler,
    stops: &'a [Token],
    options: &'a GenerateOptions,
    cancelled: &'a (dyn Fn() -> bool + Sync),
    /// Tokens made, and the last of them where the engine does not hold it yet.
    made: usize,
    last: Option<Token>,
}

impl<'a> Steps<'a> {
    fn new(
        engine: &'a mut dyn Engine,
        stops: &'a [Token],
        options: &'a GenerateOptions,
        cancelled: &'a (dyn Fn() -> bool + Sync),
    ) -> Result<Self, Error> {
        Ok(Self {
            engine,
            sampler: Sampler::new(&options.sampling)?,
            stops,
            options,
            cancelled,
            made: 0,
            last: None,
        })
    }

    /// The next token, or why there is none.
    fn next(&mut self) -> Result<Result<Token, StopReason>, Error> {
        if self.options.max_tokens == Some(self.made) {
            return Ok(Err(StopReason::MaxTokens));
        }
        if (self.cancelled)() {
            return Ok(Err(StopReason::Cancelled));
        }
        if let Some(last) = self.last.take() {
            match self.engine.feed(&[last], &|| false) {
                Err(EngineError::ContextFull { .. }) => return Ok(Err(StopReason::ContextFull)),
                other => other?,
            };
        }
        let token = self.sampler.sample(self.engine.logits());
        if self.stops.contains(&token) || self.options.stop_tokens.contains(&token) {
            return Ok(Err(StopReason::Stop(token)));
        }
        self.made += 1;
        self.last = Some(token);
        Ok(Ok(token))
    }
}

/// The caller's side of the loop: text of tokens.
struct Answer<'a> {
    detokenizer: Detokenizer<'a>,
    on_text: &'a mut dyn FnMut(&str),
    tokens: Vec<Token>,
    text: String,
}

impl<'a> Answer<'a> {
    fn new(tokenizer: &'a Tokenizer, on_text: &'a mut dyn FnMut(&str)) -> Self {
        Self {
            detokenizer: Detokenizer::new(tokenizer, true),
            on_text,
            tokens: Vec::new(),
            text: String::new(),
        }
    }

    fn push(&mut self, token: Token) -> Result<(), Error> {
        self.tokens.push(token);
        let text = self.detokenizer.push(token)?;
        self.emit(&text);
        Ok(())
    }

    fn emit(&mut self, text: &str) {
        if !text.is_empty() {
            (self.on_text)(text);
            self.text += text;
        }
    }

    fn finish(mut self, reason: StopReason) -> Result<Generated, Error> {
        let rest = self.detokenizer.finish()?;
        self.emit(&rest);
        Ok(Generated {
            tokens: self.tokens,
            text: self.text,
            reason,
        })
    }
}
