//! What is given up where llguidance cannot take a schema even as rewritten: the schemas in question are noted as late and their
//! joins loosened, and it is tried again.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

/// What has been given up so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::grammar) struct Relaxed {
    /// Names of rewritten schemas that stand alone where they are referred to: they contain themselves.
    alone: BTreeSet<String>,
    /// `patternProperties` are any of their schemas.
    pub(super) patterns: bool,
    /// How little is said of strings: without bounds beside a pattern, without patterns.
    pub(super) strings: u8,
    /// How little schemas are joined: without made-up choices, without other conjuncts, without choices beside anything, with one
    /// conjunct.
    pub(super) joins: u8,
}

/// The most that joins are relaxed.
const JOINS: u8 = 4;

impl Relaxed {
    /// Gives up what an error of the engine is about; `false` where it is about nothing that can be given up.
    pub(in crate::grammar) fn after(&mut self, error: &str) -> bool {
        let before = self.clone();
        if let Some((_, name)) = error.split_once("sibling keys are not supported: #/$defs/") {
            let name = name
                .split(|c: char| !c.is_alphanumeric())
                .next()
                .unwrap_or("");
            if !self.alone.insert(name.to_owned()) {
                // A listed member that has a pattern's name too is joined with the pattern's schema.
                let more = u8::from(self.patterns);
                self.joins = JOINS.min(self.joins + more);
                self.patterns = true;
            }
        } else if error.contains("patternProperty regexes") {
            self.patterns = true;
        } else if error.contains("determine if regex is empty") {
            self.strings = 2.min(self.strings + 1);
        } else if error.contains("stack level exceeded") || error.contains("schema too large") {
            self.joins = JOINS.min(self.joins + 1);
        }
        *self != before
    }

    /// Loosens the joins of a rewritten schema; whether anything was given up.
    pub(super) fn loosen(&self, out: &mut Map<String, Value>) -> bool {
        let before = out.len() + conjuncts(out);
        if !self.alone.is_empty() {
            self.leave_alone(out);
        }
        if self.joins >= 2 && out.keys().any(|k| k != "allOf") {
            out.remove("allOf");
        }
        if self.joins >= 3 && out.contains_key("properties") {
            out.remove("anyOf");
        }
        if let (true, Some(Value::Array(all))) = (self.joins >= 4, out.get_mut("allOf")) {
            all.truncate(1);
        }
        before != out.len() + conjuncts(out)
    }

    /// Keeps of the conjuncts of a schema either one that contains itself, or the others.
    fn leave_alone(&self, out: &mut Map<String, Value>) {
        let all = out
            .get("allOf")
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default();
        let (cyclic, plain): (Vec<Value>, Vec<Value>) =
            all.into_iter().partition(|s| self.is_cyclic(s));
        let own = ["$ref", "anyOf"]
            .into_iter()
            .filter(|k| out.get(*k).is_some_and(|v| self.is_cyclic(&json!({*k: v}))));
        let own: Vec<&str> = own.collect();
        let joined = out.len() > 1 || plain.len() + cyclic.len() > 1;
        if own.is_empty() && cyclic.is_empty() || !joined {
            return;
        }
        if out.contains_key("properties")
            || out.contains_key("items")
            || plain.iter().any(|s| s.get("properties").is_some())
        {
            own.iter().for_each(|k| drop(out.remove(*k)));
            out.insert("allOf".to_owned(), Value::Array(plain));
            return;
        }
        let kept = match (own.first(), cyclic.into_iter().next()) {
            (Some(key), _) => out.remove(*key).map(|v| json!({*key: v})),
            (None, one) => one,
        };
        out.clear();
        if let Some(Value::Object(kept)) = kept {
            out.extend(kept);
        }
    }

    fn is_cyclic(&self, schema: &Value) -> bool {
        let name = schema.get("$ref").and_then(Value::as_str);
        let name = name.and_then(|r| r.strip_prefix("#/$defs/"));
        let options = ["anyOf", "allOf"]
            .iter()
            .filter_map(|k| schema.get(*k)?.as_array());
        name.is_some_and(|n| self.alone.contains(n)) || options.flatten().any(|s| self.is_cyclic(s))
    }
}

fn conjuncts(out: &Map<String, Value>) -> usize {
    out.get("allOf")
        .and_then(Value::as_array)
        .map_or(0, Vec::len)
}
