//! The loop that joins engine, sampler, stop tokens, stop sequences and cancellation. It has two sides, the model's and the
//! caller's: they take turns ([`generate`]), or the model's goes ahead on a thread of its own ([`generate_ahead`], contract B §5.4).

use std::panic::resume_unwind;
use std::sync::mpsc::sync_channel;
use std::thread;

use crate::choose::{Chooser, Record, TokenLogits};
use crate::detokenize::Detokenizer;
use crate::engine::{Engine, EngineError, Rewinding, Token};
use crate::grammar::{Grammar, Guide};
use crate::open::Error;
use crate::response::StopSequences;
use crate::sample::Sampling;
use crate::strategy::Strategies;
use crate::tokenizer::Tokenizer;

/// How to generate.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct GenerateOptions {
    /// How to pick tokens; greedy by default.
    pub sampling: Sampling,
    /// Takes part in picking them.
    pub strategy: Option<Strategies>,
    /// The most tokens to generate; `None` until the context is full.
    pub max_tokens: Option<usize>,
    /// Tokens that end the answer besides the model's own.
    pub stop_tokens: Vec<Token>,
    /// Texts that end the answer, of however many tokens. They are no part of it.
    pub stop_sequences: Vec<String>,
    /// Tokens to take in place of chosen ones, from the first on (contract B §5.1). They never end the answer.
    pub forced: Vec<Token>,
    /// Which logits to keep of every token.
    pub record: Record,
    /// What the answer must look like ([`Model::grammar`](crate::Model::grammar)); it ends where nothing may follow.
    pub constraint: Option<Grammar>,
    /// Special tokens that are part of the text all the same.
    pub visible_tokens: Vec<Token>,
    /// Model and text take turns, also where the model could be ahead: to see what each takes.
    pub in_turns: bool,
}

impl Default for GenerateOptions {
    fn default() -> Self {
        Self {
            sampling: Sampling::greedy(),
            strategy: None,
            max_tokens: Some(512),
            stop_tokens: Vec::new(),
            stop_sequences: Vec::new(),
            forced: Vec::new(),
            record: Record::None,
            constraint: None,
            visible_tokens: Vec::new(),
            in_turns: false,
        }
    }
}

/// Why an answer ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StopReason {
    /// A stop token.
    Stop(Token),
    /// A stop sequence.
    Sequence(String),
    /// The most tokens asked for.
    MaxTokens,
    /// The context is full.
    ContextFull,
    /// The constraint allows nothing more: the answer is whole.
    Complete,
    /// Somebody asked for it.
    Cancelled,
}

/// A finished answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Generated {
    /// Its tokens, without the stop token; with those of a stop sequence.
    pub tokens: Vec<Token>,
    /// Its text, without the stop sequence.
    pub text: String,
    /// Why it ended.
    pub reason: StopReason,
    /// What [`GenerateOptions::record`] asked for, for every token.
    pub logits: Vec<TokenLogits>,
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
    let mut answer = Answer::new(tokenizer, options, on_text);
    loop {
        match steps.next()? {
            Ok(step) => {
                if let Some(reason) = answer.push(step)? {
                    return answer.finish(reason);
                }
            }
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
    // Whether a token ends the answer only its text tells, and what came after it could not be taken back.
    let must_know = !options.stop_sequences.is_empty();
    if must_know && engine.capabilities().rewinding != Rewinding::Anywhere {
        return generate(engine, tokenizer, stops, options, on_text, cancelled);
    }
    let before = engine.history().len();
    let mut steps = Steps::new(engine, stops, options, cancelled)?;
    let mut answer = Answer::new(tokenizer, options, on_text);
    let (send, receive) = sync_channel(AHEAD);
    let reason = thread::scope(|scope| {
        let steps = &mut steps;
        let model = scope.spawn(move || {
            loop {
                let step = match steps.next()? {
                    Ok(step) => step,
                    Err(reason) => return Ok(reason),
                };
                // Nobody listens any more where the text has ended, or could not be made.
                if send.send(step).is_err() {
                    return Ok(StopReason::Cancelled);
                }
            }
        });
        let ended = receive
            .iter()
            .find_map(|step| answer.push(step).transpose());
        drop(receive);
        let reason: Result<StopReason, Error> = model.join().unwrap_or_else(|p| resume_unwind(p));
        ended.unwrap_or(reason)
    })?;
    if matches!(reason, StopReason::Sequence(_)) {
        engine.trim_kv_cache(before + answer.tokens.len());
    }
    answer.finish(reason)
}

/// A token, and of its logits what was asked for.
type Step = (Token, Option<TokenLogits>);

/// The model's side of the loop: token after token.
struct Steps<'a> {
    engine: &'a mut dyn Engine,
    chooser: Chooser,
    stops: &'a [Token],
    options: &'a GenerateOptions,
    cancelled: &'a (dyn Fn() -> bool + Sync),
    guide: Option<Guide>,
    /// Tokens made, and the last of them where the engine does not hold them yet.
    made: usize,
    unfed: Vec<Token>,
}

impl<'a> Steps<'a> {
    fn new(
        engine: &'a mut dyn Engine,
        stops: &'a [Token],
        options: &'a GenerateOptions,
        cancelled: &'a (dyn Fn() -> bool + Sync),
    ) -> Result<Self, Error> {
        let strategy = options.strategy.as_ref().map(Strategies::make);
        let mut chooser = Chooser::new(&options.sampling, strategy, options.record)?;
        chooser.begin(engine.history());
        // Logits of tokens that are not sampled would be missing.
        let jumps = options.record == Record::None && options.forced.is_empty();
        let threads = engine.threads();
        let guide = options.constraint.as_ref();
        let guide = guide.map(|g| Guide::new(g, threads, jumps));
        Ok(Self {
            engine,
            chooser,
            stops,
            options,
            cancelled,
            guide,
            made: 0,
            unfed: Vec::new(),
        })
    }

    /// The next token, or why there is none.
    fn next(&mut self) -> Result<Result<Step, StopReason>, Error> {
        if self.options.max_tokens == Some(self.made) {
            return Ok(Err(StopReason::MaxTokens));
        }
        if (self.cancelled)() {
            return Ok(Err(StopReason::Cancelled));
        }
        if let Some(token) = self.guide.as_mut().and_then(Guide::certain) {
            self.chooser.accept(token);
            return Ok(Ok(self.made((token, None))));
        }
        let left = self.options.max_tokens.map(|most| most - self.made);
        if !self.feed(left)? {
            return Ok(Err(StopReason::ContextFull));
        }
        if self.guide.as_ref().is_some_and(|g| g.mask().is_none()) {
            return Ok(Err(StopReason::Complete));
        }
        let forced = self.options.forced.get(self.made).copied();
        let token = self.pick(forced, left)?;
        let logits = self.chooser.take(self.engine.logits(), token);
        let ends = |t: &Token| self.stops.contains(t) || self.options.stop_tokens.contains(t);
        if forced.is_none() && ends(&token) {
            return Ok(Err(StopReason::Stop(token)));
        }
        if let Some(guide) = &mut self.guide {
            guide.accept(token)?;
        }
        Ok(Ok(self.made((token, logits))))
    }

    /// A token that the constraint allows and can still end after.
    fn pick(&mut self, forced: Option<Token>, left: Option<usize>) -> Result<Token, Error> {
        loop {
            let mask = self.guide.as_ref().and_then(Guide::mask);
            let token = self.chooser.pick(self.engine.logits(), forced, mask)?;
            let goes_on = match &mut self.guide {
                Some(guide) if forced.is_none() => guide.can_end_after(token, left)?,
                _ => true,
            };
            if goes_on {
                return Ok(token);
            }
        }
    }

    fn made(&mut self, step: Step) -> Step {
        self.made += 1;
        self.unfed.push(step.0);
        step
    }

    /// Gives the engine what it does not hold, while the mask of the next token is made; `false` where the context is full.
    fn feed(&mut self, left: Option<usize>) -> Result<bool, Error> {
        let (engine, unfed) = (&mut *self.engine, &self.unfed);
        let mut feed = || match unfed.is_empty() {
            true => Ok(true),
            false => match engine.feed(unfed, &|| false) {
                Err(EngineError::ContextFull { .. }) => Ok(false),
                other => other.map(|_| true).map_err(Error::from),
            },
        };
        let fed = match &mut self.guide {
            None => feed(),
            Some(guide) => guide.prepare_during(left, feed),
        };
        self.unfed.clear();
        fed
    }
}

/// The caller's side of the loop: text of tokens.
struct Answer<'a> {
    detokenizer: Detokenizer<'a>,
    stops: StopSequences,
    on_text: &'a mut dyn FnMut(&str),
    tokens: Vec<Token>,
    text: String,
    logits: Vec<TokenLogits>,
}

impl<'a> Answer<'a> {
    fn new(
        tokenizer: &'a Tokenizer,
        options: &GenerateOptions,
        on_text: &'a mut dyn FnMut(&str),
    ) -> Self {
        Self {
            detokenizer: Detokenizer::showing(tokenizer, options.visible_tokens.clone()),
            stops: StopSequences::new(&options.stop_sequences),
            on_text,
            tokens: Vec::new(),
            text: String::new(),
            logits: Vec::new(),
        }
    }

    /// Takes a token; says where its text ends the answer.
    fn push(&mut self, (token, logits): Step) -> Result<Option<StopReason>, Error> {
        self.tokens.push(token);
        self.logits.extend(logits);
        let text = self.detokenizer.push(token)?;
        Ok(self.take(&text))
    }

    fn take(&mut self, text: &str) -> Option<StopReason> {
        let (text, ended) = self.stops.push(text);
        self.emit(&text);
        ended.map(StopReason::Sequence)
    }

    fn emit(&mut self, text: &str) {
        if !text.is_empty() {
            (self.on_text)(text);
            self.text += text;
        }
    }

    fn finish(mut self, mut reason: StopReason) -> Result<Generated, Error> {
        if !matches!(reason, StopReason::Sequence(_)) {
            let rest = self.detokenizer.finish()?;
            match self.take(&rest) {
                Some(ended) => reason = ended,
                None => {
                    let held = self.stops.finish();
                    self.emit(&held);
                }
            }
        }
        Ok(Generated {
            tokens: self.tokens,
            text: self.text,
            reason,
            logits: self.logits,
        })
    }
}
