//! Conversations in files.

use std::collections::HashMap;
use std::path::Path;

use super::Session;
use crate::engine::{Engine, EngineError, Snapshot, Token};
use crate::open::Error;
use crate::tensors;

/// Notes of a saved conversation: the model it is of, and its messages.
const MODEL: &str = "model";
const MESSAGES: &str = "messages";

/// Whether a conversation could be kept in a file, as far as that shows before it is: its folder is there, and its name is one.
///
/// # Errors
/// [`Error::Tensors`], as [`Session::save`] would fail.
pub fn check_session(path: &Path) -> Result<(), Error> {
    Ok(tensors::check_place(path)?)
}

impl Session {
    /// Writes the conversation to a file, with everything that its engine holds: [`Session::load`] goes on from there without
    /// processing anything again, or, with caches of another kind or length, by processing its tokens. Whatever interrupts it, what
    /// was at the path before is still there.
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

    /// Goes on with a conversation that [`Session::save`] wrote, of the same model.
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
        self.summary = None;
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
}
