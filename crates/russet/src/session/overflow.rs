//! What happens to a conversation that no longer fits into the context.

use super::Session;
use crate::engine::{EngineError, Token};
use crate::generate::GenerateOptions;
use crate::open::Error;
use crate::template::Message;

/// Makes one text of messages that are about to be forgotten.
type Summarise = Box<dyn FnMut(&[Message]) -> Result<String, Error> + Send>;

/// What happens to a conversation that no longer fits.
#[derive(Default)]
#[non_exhaustive]
pub enum Overflow {
    /// It is an error; the conversation stays as it is.
    #[default]
    Error,
    /// The oldest turns are forgotten, the instructions are not.
    Slide,
    /// As [`Overflow::Slide`], but what a function makes of the forgotten turns is added to the instructions. It is given the
    /// summary before as a first message, and what it gives takes that one's place.
    Summarise(Summarise),
}

impl std::fmt::Debug for Overflow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Error => "Error",
            Self::Slide => "Slide",
            Self::Summarise(_) => "Summarise",
        })
    }
}

/// Of the context, the part that is kept free for an answer whose length nobody limits.
const ANSWER_SHARE: usize = 4;

impl Session {
    /// The rendered conversation, with room for an answer, and its text.
    pub(super) fn prompt_that_fits(
        &mut self,
        options: &GenerateOptions,
    ) -> Result<(Vec<Token>, String), Error> {
        loop {
            let render = self.render_options();
            let (text, special) = self.model.render(&self.messages, &render)?;
            let prompt = self.model.tokenizer()?.encode(&text, special)?;
            let limit = self.engine.limit();
            let most = (limit / ANSWER_SHARE).max(1);
            let room = options.max_tokens.unwrap_or(most).min(most);
            let fits = prompt.len().saturating_add(room) <= limit;
            if fits || matches!(self.overflow, Overflow::Error) {
                return Ok((prompt, text));
            }
            self.forget_oldest(prompt.len(), limit)?;
        }
    }

    /// Forgets the oldest turn: everything up to the second message of the user.
    fn forget_oldest(&mut self, new: usize, limit: usize) -> Result<(), Error> {
        let first = self
            .messages
            .iter()
            .take_while(|m| m.role == "system")
            .count();
        let users = self.messages.iter().enumerate().skip(first + 1);
        let next = users
            .filter(|(_, m)| m.role == "user")
            .map(|(at, _)| at)
            .next();
        let Some(next) = next else {
            return Err(Error::Engine(EngineError::ContextFull {
                position: 0,
                new,
                limit,
            }));
        };
        let forgotten: Vec<Message> = self.messages.drain(first..next).collect();
        let before = self.summary.take();
        let Overflow::Summarise(summarise) = &mut self.overflow else {
            return Ok(());
        };
        let told: Vec<Message> = before
            .iter()
            .map(|s| Message::new("system", &**s))
            .chain(forgotten)
            .collect();
        let summary = summarise(&told)?;
        let system = self.messages.first().filter(|m| m.role == "system");
        let mut text = system.map_or("", |m| &*m.content);
        // A summary takes the place of the one before.
        text = before
            .as_deref()
            .and_then(|s| text.strip_suffix(s))
            .unwrap_or(text)
            .trim_end();
        let gap = if text.is_empty() { "" } else { "\n\n" };
        self.set_system(format!("{text}{gap}{summary}"));
        self.summary = Some(summary);
        Ok(())
    }
}
