//! Compiled grammars by their content: the same constraint twice is compiled once.

use std::sync::{Arc, Mutex, PoisonError};

use super::compile::Compiled;

/// Grammars kept.
const KEPT: usize = 64;

/// The grammars used last, by the text of their constraint, the latest at the end.
#[derive(Default)]
pub(super) struct Cache(Mutex<Vec<(String, Arc<Compiled>)>>);

impl Cache {
    pub(super) fn get(&self, key: &str) -> Option<Arc<Compiled>> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = kept.iter().position(|(k, _)| k == key)?;
        let entry = kept.remove(at);
        let grammar = entry.1.clone();
        kept.push(entry);
        Some(grammar)
    }

    pub(super) fn put(&self, key: String, grammar: Arc<Compiled>) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= KEPT {
            kept.remove(0);
        }
        kept.push((key, grammar));
    }
}
