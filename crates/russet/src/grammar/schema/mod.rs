//! JSON Schema, as far as a grammar can say it and further.
//!
//! [`lower()`] rewrites a schema of any draft into one that llguidance takes, which allows everything that the schema does, and
//! where it can nothing else: `not`, `if`, `oneOf`, `dependentRequired` and their like become choices between plain schemas. What
//! cannot be said is noted: [`Checks`] knows for every value, while it is written, which schemas with such keywords apply to it,
//! and looks at the value when it is whole.

mod checks;
mod disjoint;
mod document;
mod format;
mod lower;
mod negate;
mod pattern;
mod validate;
mod values;

pub(super) use checks::{Checks, Set, Unfinished};
use serde_json::Value;

use super::error::GrammarError;
use document::{Document, Draft};
pub(super) use lower::Relaxed;

/// A schema for llguidance, and what must be checked beside it.
pub(super) struct Lowered {
    pub(super) schema: Value,
    pub(super) checks: Checks,
    /// Whether `1.0` is an integer: since draft 6.
    pub(super) fractions: bool,
}

/// Rewrites a schema.
///
/// # Errors
/// [`GrammarError::Schema`] for what is malformed, what no reference resolves, and what neither a grammar nor a check can
/// enforce; [`GrammarError::Limit`] where it is too large.
pub(super) fn lower(schema: &Value, relaxed: &Relaxed) -> Result<Lowered, GrammarError> {
    let document = Document::new(schema.clone());
    let (schema, notes) = lower::document(&document, relaxed)?;
    Ok(Lowered {
        schema,
        fractions: document.draft > Draft::D4,
        checks: Checks::new(document, notes),
    })
}
