//! A conversation: messages, the engine that holds them, and answers.

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::engine::{self, Engine, EngineError, EngineVariant, Snapshot, Token};
use crate::generate::{GenerateOptions, Generated, StopReason, generate, generate_ahead};
use crate::open::{Error, Model};
use crate::template::{Message, RenderOptions};
use crate::tensors;

/// An answer with what it cost.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Reply {
    /// Its text.
    pub text: String,
    /// Its tokens.
    pub tokens: Vec<Token>,
    /// Why it ended.
    pub reason: StopReason,
    /// Tokens of the rendered conversation before the answer.
    pub prompt_tokens: usize,
    /// How many of those were still held from before.
    pub reused_tokens: usize,
    /// Time until the prompt was processed.
    pub prefill: Duration,
    /// Time for the answer itself.
    pub decode: Duration,
}

impl Reply {
    /// Tokens of the prompt processed in a second.
    pub fn prefill_rate(&self) -> f64 {
        rate(self.prompt_tokens - self.reused_tokens, self.prefill)
    }

    /// Tokens generated in a second.
    pub fn decode_rate(&self) -> f64 {
        rate(self.tokens.len(), self.decode)
    }
}

fn rate(tokens: usize, time: Duration) -> f64 {
    if time.is_zero() {
        0.0
    } else {
        tokens as f64 / time.as_secs_f64()
    }
}

/// Notes of a saved conversation: the model it is of, and its messages.
const MODEL: &str = "model";
const MESSAGES: &str = "messages";

/// Whether a conversation could be kept in a file, as far as that shows before it is: its folder is there, and its name is one.
///
/// # Errors
/// [`Error::Tensors`], as [`Chat::save`] would fail.
pub fn check_session(path: &Path) -> Result<(), Error> {
    Ok(tensors::check_place(path)?)
}

/// One conversation over a model, with caches of its own.
pub struct Chat<'a> {
    model: &'a Model,
    engine: Box<dyn Engine>,
    messages: Vec<Message>,
    cancelled: std::sync::Arc<std::sync::atomic::AtomicBool>,
}

impl<'a> Chat<'a> {
    pub(crate) fn new(model: &'a Model, engine: Box<dyn Engine>) -> Self {
        Self {
            model,
            engine,
            messages: Vec::new(),
            cancelled: std::sync::Arc::default(),
        }
    }

    /// The messages so far.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Sets the system message, replacing one that is there.
    pub fn set_system(&mut self, text: impl Into<String>) {
        self.messages.retain(|m| m.role != "system");
        self.messages.insert(0, Message::new("system", text));
    }

    /// Forgets the conversation, the system message included.
    pub fn clear(&mut self) {
        self.messages.clear();
    }

    /// The engine that holds it.
    pub fn engine(&self) -> &dyn Engine {
        &*self.engine
    }

    /// Writes the conversation to a file, with everything that its engine holds: [`Chat::load`] goes on from there without
    /// processing anything again, or, with caches of another kind or length, by processing its tokens. Whatever interrupts it, what was at the path before is still there.
    ///
    /// # Errors
    /// [`Error::Tensors`] where the file cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), Error> {
        let messages = serde_json::to_string(&self.messages).unwrap_or_default();
        let notes = [
            (MODEL, self.model.fingerprint().to_owned()),
            (MESSAGES, messages),
        ];
        let notes: HashMap<String, String> =
            notes.into_iter().map(|(k, v)| (k.to_owned(), v)).collect();
        self.engine.snapshot().write(path, notes)
    }

    /// Goes on with a conversation that [`Chat::save`] wrote, of the same model.
    ///
    /// # Errors
    /// [`Error::Tensors`] where the file cannot be read, [`EngineError::Snapshot`] where it is of another model. The conversation
    /// is then as before.
    pub fn load(&mut self, path: &Path) -> Result<(), Error> {
        let (snapshot, notes) = Snapshot::read(path)?;
        let misfit = |what: &str| EngineError::Snapshot(format!("{} {what}", path.display()));
        let model = self.model.fingerprint();
        if notes.get(MODEL).is_none_or(|m| m != model) {
            let other = notes.get(MODEL).map_or("another model", String::as_str);
            return Err(misfit(&format!("is of {other:?}, not of {model:?}")).into());
        }
        let messages = notes.get(MESSAGES).map(|m| serde_json::from_str(m));
        let messages = messages.and_then(Result::ok);
        let messages = messages.ok_or_else(|| misfit("holds no messages"))?;
        let vocab = self.model.vocabulary();
        if let Some(token) = snapshot.tokens().iter().find(|t| **t as usize >= vocab) {
            return Err(misfit(&format!("holds token {token} of a vocabulary of {vocab}")).into());
        }
        match self.engine.restore(&snapshot) {
            // Other caches than it was saved with: what they hold follows from the tokens.
            Err(EngineError::Snapshot(_)) => self.engine = self.read_again(snapshot.tokens())?,
            other => other?,
        }
        self.messages = messages;
        Ok(())
    }

    /// An engine that has processed these tokens.
    fn read_again(&self, tokens: &[Token]) -> Result<Box<dyn Engine>, Error> {
        let mut engine = self.model.engine()?;
        if !tokens.is_empty() {
            engine.feed(tokens, &|| false)?;
        }
        Ok(engine)
    }

    /// Set to `true` from another thread or a signal handler to end the answer at the next step; `send` resets it.
    pub fn cancel_flag(&self) -> std::sync::Arc<std::sync::atomic::AtomicBool> {
        self.cancelled.clone()
    }

    /// Says something and waits for the answer, which is handed to `on_text` as it is made. On an error the conversation is as
    /// before.
    pub fn send(
        &mut self,
        text: &str,
        options: &GenerateOptions,
        on_text: &mut dyn FnMut(&str),
    ) -> Result<Reply, Error> {
        self.messages.push(Message::new("user", text));
        let render = RenderOptions {
            add_generation_prompt: true,
            ..RenderOptions::default()
        };
        let reply = self
            .model
            .prompt(&self.messages, &render)
            .and_then(|prompt| self.answer(&prompt, options, on_text));
        match &reply {
            // Nothing has been answered: nothing has been said.
            Ok(reply) if reply.reason == StopReason::Cancelled && reply.tokens.is_empty() => {
                self.messages.pop();
            }
            Ok(reply) => self
                .messages
                .push(Message::new("assistant", reply.text.clone())),
            Err(_) => {
                self.messages.pop();
            }
        }
        reply
    }

    /// Continues raw tokens, without template or history.
    pub fn answer(
        &mut self,
        prompt: &[Token],
        options: &GenerateOptions,
        on_text: &mut dyn FnMut(&str),
    ) -> Result<Reply, Error> {
        use std::sync::atomic::Ordering::Relaxed;
        options.sampling.check()?;
        if prompt.is_empty() {
            return Err(Error::Missing("the prompt is empty".into()));
        }
        self.cancelled.store(false, Relaxed);
        let flag = self.cancelled.clone();
        let cancelled = move || flag.load(Relaxed);
        let start = Instant::now();
        let reused_tokens = engine::resume(&mut *self.engine, prompt, &cancelled)?;
        let prefill = start.elapsed();
        // Fewer than there are where somebody did not want to wait.
        let read = self.engine.history().len().max(reused_tokens);
        let start = Instant::now();
        let run = match self.model.variant() {
            EngineVariant::Pipelined => generate_ahead,
            EngineVariant::Sequential | EngineVariant::StaticShape => generate,
        };
        let Generated {
            tokens,
            text,
            reason,
        } = run(
            &mut *self.engine,
            self.model.tokenizer()?,
            self.model.stop_tokens(),
            options,
            on_text,
            &cancelled,
        )?;
        Ok(Reply {
            text,
            tokens,
            reason,
            prompt_tokens: read,
            reused_tokens,
            prefill,
            decode: start.elapsed(),
        })
    }
}

impl std::fmt::Debug for Chat<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Chat")
            .field("model", &self.model.name())
            .field("messages", &self.messages)
            .field("held", &self.engine.history().len())
            .finish_non_exhaustive()
    }
}
