//! A conversation: its messages, the engine that holds them, answers, tools (contract B §8).
//!
//! Every turn renders the whole conversation and hands it to the engine, which goes on from the longest prefix it holds. What comes
//! back is told apart as it arrives ([`Event`]); calls of tools are run and answered until the model has said its last word.

mod overflow;
mod saved;
#[cfg(test)]
mod tests;
mod tools;
mod typed;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::choose::TokenLogits;
use crate::engine::{self, Engine, EngineVariant, Token};
use crate::generate::{GenerateOptions, Generated, StopReason, generate, generate_ahead};
use crate::open::{Error, Model};
use crate::response::{Piece, ResponseParser, ToolCall};
use crate::template::{Message, RenderOptions};
pub use overflow::Overflow;
pub use saved::check_session;
pub use tools::Tool;

/// Tokens and times of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Usage {
    /// Tokens of the rendered conversation before the answer.
    pub prompt_tokens: usize,
    /// How many of those were still held from before.
    pub reused_tokens: usize,
    /// Tokens of the answer.
    pub answer_tokens: usize,
    /// Time until the prompt was processed.
    pub prefill: Duration,
    /// Time for the answer itself.
    pub decode: Duration,
}

impl Usage {
    /// Tokens of the prompt processed in a second.
    pub fn prefill_rate(&self) -> f64 {
        rate(self.prompt_tokens - self.reused_tokens, self.prefill)
    }

    /// Tokens generated in a second.
    pub fn decode_rate(&self) -> f64 {
        rate(self.answer_tokens, self.decode)
    }
}

fn rate(tokens: usize, time: Duration) -> f64 {
    if time.is_zero() {
        0.0
    } else {
        tokens as f64 / time.as_secs_f64()
    }
}

/// An answer with what it cost.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Reply {
    /// Its text, without reasoning and calls.
    pub text: String,
    /// What the model said to itself.
    pub reasoning: String,
    /// Calls that nobody has answered: of tools that nothing runs, or the last of too many.
    pub tool_calls: Vec<ToolCall>,
    /// The tokens of the last answer of the turn.
    pub tokens: Vec<Token>,
    /// Logits of those tokens, where they were asked for.
    pub logits: Vec<TokenLogits>,
    /// Why it ended.
    pub reason: StopReason,
    /// What it cost: of a turn with calls of tools, the last prompt, and the answers together.
    pub usage: Usage,
}

/// What happens while an answer is made.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event<'a> {
    /// Text for the reader.
    Text(&'a str),
    /// What the model says to itself.
    Reasoning(&'a str),
    /// A tool is called.
    Call(&'a ToolCall),
    /// What it gave.
    Output(&'a ToolCall, &'a str),
    /// An answer has ended; a turn with calls has several.
    Usage(&'a Usage),
}

/// Rounds of calls in one turn, after which the model does not get another.
const ROUNDS: usize = 8;

/// One conversation over a model, with caches of its own.
pub struct Session {
    model: Model,
    engine: Box<dyn Engine>,
    messages: Vec<Message>,
    tools: Vec<Tool>,
    overflow: Overflow,
    /// What the instructions end with, of turns that are forgotten.
    summary: Option<String>,
    /// Further variables of the chat template.
    variables: std::collections::BTreeMap<String, Value>,
    cancelled: Arc<AtomicBool>,
}

impl Session {
    pub(crate) fn new(model: Model, engine: Box<dyn Engine>) -> Self {
        Self {
            model,
            engine,
            messages: Vec::new(),
            tools: Vec::new(),
            overflow: Overflow::Error,
            summary: None,
            variables: std::collections::BTreeMap::new(),
            cancelled: Arc::default(),
        }
    }

    /// The messages so far: the transcript, as the chat template sees it. Reasoning is not repeated to the model, and no part of it.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Sets the system message, replacing one that is there, and what it says of turns that are forgotten.
    pub fn set_system(&mut self, text: impl Into<String>) {
        self.messages.retain(|m| m.role != "system");
        self.messages.insert(0, Message::new("system", text));
        self.summary = None;
    }

    /// Declares a tool, in place of one of this name.
    pub fn add_tool(&mut self, tool: Tool) {
        self.tools.retain(|t| t.name() != tool.name());
        self.tools.push(tool);
    }

    /// What happens when the conversation no longer fits into the context; an error by default.
    pub fn set_overflow(&mut self, overflow: Overflow) {
        self.overflow = overflow;
    }

    /// Sets a variable of the chat template, such as `enable_thinking`.
    pub fn set_variable(&mut self, name: impl Into<String>, value: impl Into<Value>) {
        self.variables.insert(name.into(), value.into());
    }

    /// Forgets the conversation, the system message included.
    pub fn clear(&mut self) {
        self.messages.clear();
        self.summary = None;
    }

    /// The engine that holds it.
    pub fn engine(&self) -> &dyn Engine {
        &*self.engine
    }

    /// Set to `true` from another thread or a signal handler to end the answer at the next step; a new turn resets it.
    pub fn cancel_flag(&self) -> Arc<AtomicBool> {
        self.cancelled.clone()
    }

    /// Processes the part of the next prompt that is known already (instructions, tools, what has been said), and returns how many
    /// tokens that is: a first answer then starts sooner.
    ///
    /// # Errors
    /// Those of the template and of the engine.
    pub fn prewarm(&mut self) -> Result<usize, Error> {
        let with = |text: &str| {
            let next = Message::new("user", text);
            let messages: Vec<Message> = self.messages.iter().cloned().chain([next]).collect();
            self.model.prompt(&messages, &self.render_options())
        };
        // What two different questions have in common does not depend on the question.
        let (one, other) = (with("a")?, with("Why?")?);
        let common = one.iter().zip(&other).take_while(|(a, b)| a == b).count();
        if common > 0 {
            engine::resume(&mut *self.engine, &one[..common], &|| false)?;
        }
        Ok(common)
    }

    /// Says something and waits for the answer, whose text is handed to `on_text` as it is made. On an error the conversation is as
    /// before.
    ///
    /// # Errors
    /// Those of [`Session::respond`].
    pub fn send(
        &mut self,
        text: &str,
        options: &GenerateOptions,
        on_text: &mut dyn FnMut(&str),
    ) -> Result<Reply, Error> {
        self.respond(text, options, &mut |event| {
            if let Event::Text(text) = event {
                on_text(text);
            }
        })
    }

    /// Says something and waits for the answer; `on_event` hears of everything as it happens. On an error the conversation is as
    /// before.
    ///
    /// # Errors
    /// Those of the sampling numbers, the template, the engine and the tokenizer; [`engine::EngineError::ContextFull`] where the
    /// conversation does not fit and [`Overflow`] cannot help.
    pub fn respond(
        &mut self,
        text: &str,
        options: &GenerateOptions,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<Reply, Error> {
        self.turn(Message::new("user", text), options, on_event)
    }

    /// Gives the result of a call that the last reply left open, and waits for the answer.
    ///
    /// # Errors
    /// Those of [`Session::respond`].
    pub fn respond_to_call(
        &mut self,
        call: &ToolCall,
        output: &str,
        options: &GenerateOptions,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<Reply, Error> {
        self.turn(tools::output(&call.name, output), options, on_event)
    }

    /// A turn: a message, answers, and the calls between them.
    fn turn(
        &mut self,
        message: Message,
        options: &GenerateOptions,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<Reply, Error> {
        options.sampling.check()?;
        self.cancelled.store(false, Relaxed);
        let before = (self.messages.clone(), self.summary.clone());
        self.messages.push(message);
        let reply = self.rounds(options, on_event);
        let unanswered = |r: &Reply| r.reason == StopReason::Cancelled && r.tokens.is_empty();
        if reply.as_ref().map_or(true, unanswered) {
            // Nothing has been answered: nothing has been said.
            (self.messages, self.summary) = before;
        }
        reply
    }

    fn rounds(
        &mut self,
        options: &GenerateOptions,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<Reply, Error> {
        let mut before = (0, Duration::ZERO);
        let mut round = 0;
        loop {
            round += 1;
            let mut reply = self.round(options, on_event)?;
            let usage = &mut reply.usage;
            on_event(Event::Usage(usage));
            usage.answer_tokens += before.0;
            usage.decode += before.1;
            before = (usage.answer_tokens, usage.decode);
            self.messages
                .push(tools::answer(&reply.text, &reply.tool_calls));
            let ended = matches!(reply.reason, StopReason::Cancelled);
            if ended || round == ROUNDS || !self.run_calls(&mut reply.tool_calls, on_event) {
                return Ok(reply);
            }
        }
    }

    /// One answer to the conversation as it is.
    fn round(
        &mut self,
        options: &GenerateOptions,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<Reply, Error> {
        let (prompt, text) = self.prompt_that_fits(options)?;
        let mut format = self.model.response_format().clone();
        format.tools |= !self.tools.is_empty();
        let schemas = self
            .tools
            .iter()
            .map(|t| (t.name().into(), t.parameters().clone()));
        let mut parser = ResponseParser::new(&format, &text, schemas.collect());
        let mut said = Said::default();
        let mut options = options.clone();
        options.visible_tokens.extend(&format.markers);
        let mut reply = self.process(&prompt, &options, &mut |text| {
            parser.push(text, &mut |piece| said.take(piece, on_event));
        })?;
        parser.finish(&mut |piece| said.take(piece, on_event));
        reply.text = said.text;
        reply.reasoning = said.reasoning;
        reply.tool_calls = said.calls;
        Ok(reply)
    }

    /// Runs calls and says what they gave; says whether all of them, and any, could be run.
    fn run_calls(
        &mut self,
        calls: &mut Vec<ToolCall>,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> bool {
        let runs = |c: &ToolCall| self.tools.iter().all(|t| t.name() != c.name || t.runs());
        if calls.is_empty() || self.tools.is_empty() || !calls.iter().all(runs) {
            return false;
        }
        for call in calls.drain(..) {
            let output = tools::run(&mut self.tools, &call);
            on_event(Event::Output(&call, &output));
            self.messages.push(tools::output(&call.name, &output));
        }
        true
    }

    fn render_options(&self) -> RenderOptions {
        RenderOptions {
            add_generation_prompt: true,
            tools: self.tools.iter().map(Tool::declaration).collect(),
            variables: self.variables.clone(),
            ..RenderOptions::default()
        }
    }

    /// Continues raw tokens, without template, history or telling anything apart.
    ///
    /// # Errors
    /// Those of [`Session::respond`].
    pub fn answer(
        &mut self,
        prompt: &[Token],
        options: &GenerateOptions,
        on_text: &mut dyn FnMut(&str),
    ) -> Result<Reply, Error> {
        options.sampling.check()?;
        self.cancelled.store(false, Relaxed);
        self.process(prompt, options, on_text)
    }

    fn process(
        &mut self,
        prompt: &[Token],
        options: &GenerateOptions,
        on_text: &mut dyn FnMut(&str),
    ) -> Result<Reply, Error> {
        if prompt.is_empty() {
            return Err(Error::Missing("the prompt is empty".into()));
        }
        let flag = self.cancelled.clone();
        let cancelled = move || flag.load(Relaxed);
        let start = Instant::now();
        let reused_tokens = engine::resume(&mut *self.engine, prompt, &cancelled)?;
        let prefill = start.elapsed();
        // Fewer than there are where somebody did not want to wait.
        let read = self.engine.history().len().max(reused_tokens);
        let start = Instant::now();
        let run = match self.model.variant() {
            EngineVariant::Pipelined if !options.in_turns => generate_ahead,
            _ => generate,
        };
        let Generated {
            tokens,
            text,
            reason,
            logits,
        } = run(
            &mut *self.engine,
            self.model.tokenizer()?,
            self.model.stop_tokens(),
            options,
            on_text,
            &cancelled,
        )?;
        let usage = Usage {
            prompt_tokens: read,
            reused_tokens,
            answer_tokens: tokens.len(),
            prefill,
            decode: start.elapsed(),
        };
        Ok(Reply {
            text,
            reasoning: String::new(),
            tool_calls: Vec::new(),
            tokens,
            logits,
            reason,
            usage,
        })
    }
}

/// What an answer is made of.
#[derive(Default)]
struct Said {
    text: String,
    reasoning: String,
    calls: Vec<ToolCall>,
}

impl Said {
    fn take(&mut self, piece: Piece, on_event: &mut dyn FnMut(Event<'_>)) {
        match piece {
            Piece::Text(text) => {
                on_event(Event::Text(&text));
                self.text += &text;
            }
            Piece::Reasoning(text) => {
                on_event(Event::Reasoning(&text));
                self.reasoning += &text;
            }
            Piece::Call(call) => {
                on_event(Event::Call(&call));
                self.calls.push(call);
            }
        }
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("model", &self.model.name())
            .field("messages", &self.messages)
            .field("held", &self.engine.history().len())
            .finish_non_exhaustive()
    }
}
