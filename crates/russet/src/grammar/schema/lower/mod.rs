//! Rewriting a schema, keyword by keyword, into one that llguidance takes.
//!
//! The result allows everything that the schema allows. Where it allows more, the schema is noted as *late*, with the keyword
//! that asks for more. What schemas refer to is rewritten once each, under `$defs`.

mod fractions;
mod joining;
mod plain;
mod relax;

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};

use serde_json::{Map, Value, json};

use super::disjoint::Disjoint;
use super::document::{Document, Draft, child};
use super::format::{Format, format};
use super::negate::opposite;
use super::pattern::{self, Patterns};
use super::validate::Validator;
use super::values::{TYPES, count, type_names};
use crate::grammar::error::GrammarError;
pub(in crate::grammar) use relax::Relaxed;

/// Schemas inside schemas at most.
const DEPTH: usize = 100;

/// Schemas in a document at most, the rewritten ones included.
const SCHEMAS: usize = 50_000;

/// Bounds of numbers that the grammar spells out are below this.
const LARGEST: f64 = 1e19;

/// And those below zero above this.
const SMALLEST: f64 = -9.2e18;

/// Pairs of schemas compared in a document at most.
const PAIRS: usize = 4_000;

/// Choices that one schema may be multiplied by: each doubles what is made of it.
const CHOICES: usize = 4;

/// What the grammar leaves to be checked, and which schemas are part of which.
#[derive(Debug, Default)]
pub(super) struct Notes {
    /// Places of schemas with keywords that the grammar does not enforce, with one of those.
    pub(super) late: BTreeMap<String, String>,
    /// Outer and inner schema, and whether the inner one need not hold.
    pub(super) edges: Vec<(String, String, bool)>,
}

/// The whole document, rewritten.
pub(super) fn document(
    document: &Document,
    relaxed: &Relaxed,
) -> Result<(Value, Notes), GrammarError> {
    let patterns = Patterns::default();
    let mut lower = Lower {
        document,
        relaxed,
        patterns: &patterns,
        notes: Notes::default(),
        names: HashMap::new(),
        todo: Vec::new(),
        schemas: 0,
        depth: 0,
        fuel: Cell::new(PAIRS),
    };
    let root = lower.schema(&document.root, &At::whole())?;
    let mut defs = Map::new();
    while let Some((name, target)) = lower.todo.pop() {
        let schema = document.at(&target).unwrap_or(&Value::Bool(true));
        let at = At {
            pointer: target,
            real: true,
        };
        defs.insert(name, lower.schema(schema, &at)?);
    }
    let root = match root {
        Value::Object(mut map) if !defs.is_empty() => {
            map.insert("$defs".to_owned(), Value::Object(defs));
            Value::Object(map)
        }
        other => other,
    };
    Ok((root, lower.notes))
}

/// Where a schema stands; one that was made up stands where it was made.
#[derive(Clone, Debug)]
struct At {
    pointer: String,
    real: bool,
}

impl At {
    fn whole() -> Self {
        Self {
            pointer: String::new(),
            real: true,
        }
    }

    fn made_up(&self) -> Self {
        Self {
            pointer: self.pointer.clone(),
            real: false,
        }
    }

    fn below(&self, path: &[&str]) -> Self {
        let step = |p: String, k: &&str| child(&p, k);
        Self {
            pointer: if self.real {
                path.iter().fold(self.pointer.clone(), step)
            } else {
                self.pointer.clone()
            },
            real: self.real,
        }
    }
}

struct Lower<'a> {
    document: &'a Document,
    relaxed: &'a Relaxed,
    patterns: &'a Patterns,
    notes: Notes,
    names: HashMap<String, String>,
    todo: Vec<(String, String)>,
    schemas: usize,
    depth: usize,
    /// Pairs of schemas that may still be compared.
    fuel: Cell<usize>,
}

/// A schema while it is rewritten.
struct Draught<'s> {
    schema: &'s Map<String, Value>,
    at: At,
    out: Map<String, Value>,
    /// Schemas that hold besides.
    all: Vec<Value>,
    choices: usize,
}

type Rule =
    for<'a, 's> fn(&mut Lower<'a>, &mut Draught<'s>, &str, &'s Value) -> Result<(), GrammarError>;

/// What becomes of each keyword. One that is not here is an annotation.
const RULES: [(&str, Rule); 45] = [
    ("type", |l, d, k, v| l.types(d, k, v)),
    ("const", keep),
    ("enum", |_, d, k, v| {
        v.as_array().ok_or_else(|| d.wrong(k, "is no array"))?;
        keep_value(d, k, v.clone())
    }),
    ("$ref", |l, d, k, v| l.reference(d, k, v)),
    ("$dynamicRef", |l, d, k, v| l.reference(d, k, v)),
    ("$recursiveRef", |l, d, k, v| l.reference(d, k, v)),
    ("minimum", number),
    ("maximum", number),
    ("exclusiveMinimum", exclusive),
    ("exclusiveMaximum", exclusive),
    ("multipleOf", |l, d, k, v| l.multiple(d, k, v)),
    ("minLength", |l, d, k, v| l.length(d, k, v)),
    ("maxLength", |l, d, k, v| l.length(d, k, v)),
    ("minItems", counted),
    ("maxItems", counted),
    ("minProperties", |l, d, k, v| l.members_counted(d, k, v)),
    ("maxProperties", |l, d, k, v| l.members_counted(d, k, v)),
    ("pattern", |l, d, k, v| l.pattern(d, k, v)),
    ("format", |l, d, k, v| l.format(d, k, v)),
    ("properties", |l, d, k, v| l.properties(d, k, v)),
    ("patternProperties", |l, d, k, v| {
        l.pattern_properties(d, k, v)
    }),
    ("additionalProperties", |l, d, k, v| l.one(d, k, v)),
    ("required", |_, d, k, v| required(d, k, v)),
    ("propertyNames", |l, d, k, v| l.names(d, k, v)),
    ("dependentRequired", |l, d, k, v| l.dependencies(d, k, v)),
    ("dependentSchemas", |l, d, k, v| l.dependencies(d, k, v)),
    ("dependencies", |l, d, k, v| l.dependencies(d, k, v)),
    ("prefixItems", |l, d, k, v| l.prefix_items(d, k, v)),
    ("items", |l, d, k, v| l.items(d, k, v)),
    ("additionalItems", |_, _, _, _| Ok(())),
    ("uniqueItems", |l, d, k, v| l.unique(d, k, v)),
    ("contains", |l, d, k, v| l.contains(d, k, v)),
    ("minContains", |_, _, _, _| Ok(())),
    ("maxContains", |_, _, _, _| Ok(())),
    ("allOf", |l, d, k, v| l.all_of(d, k, v)),
    ("anyOf", |l, d, k, v| l.any_of(d, k, v)),
    ("oneOf", |l, d, k, v| l.one_of(d, k, v)),
    ("not", |l, d, k, v| l.not(d, k, v)),
    ("if", |l, d, k, v| l.condition(d, k, v)),
    ("then", |_, _, _, _| Ok(())),
    ("else", |_, _, _, _| Ok(())),
    ("unevaluatedProperties", |l, d, k, v| l.unevaluated(d, k, v)),
    ("unevaluatedItems", |l, d, k, v| l.unevaluated(d, k, v)),
    ("extends", |_, d, k, _| {
        Err(d.wrong(k, "is a keyword of drafts before 4"))
    }),
    ("disallow", |_, d, k, _| {
        Err(d.wrong(k, "is a keyword of drafts before 4"))
    }),
];

/// Whether a keyword asserts something.
pub(super) fn is_keyword(key: &str) -> bool {
    RULES.iter().any(|r| r.0 == key)
}

impl Draught<'_> {
    fn wrong(&self, keyword: &str, reason: &str) -> GrammarError {
        GrammarError::schema(&self.at.pointer, keyword, reason)
    }
}

fn keep_value(d: &mut Draught<'_>, key: &str, value: Value) -> Result<(), GrammarError> {
    d.out.insert(key.to_owned(), value);
    Ok(())
}

fn keep(
    _: &mut Lower<'_>,
    d: &mut Draught<'_>,
    key: &str,
    value: &Value,
) -> Result<(), GrammarError> {
    keep_value(d, key, value.clone())
}

fn number(
    l: &mut Lower<'_>,
    d: &mut Draught<'_>,
    key: &str,
    value: &Value,
) -> Result<(), GrammarError> {
    let bound = value.as_f64().ok_or_else(|| d.wrong(key, "is no number"))?;
    bounded(l, d, key, value, bound)
}

/// A bound that the grammar can count to, or that is checked.
fn bounded(
    l: &mut Lower<'_>,
    d: &mut Draught<'_>,
    key: &str,
    value: &Value,
    bound: f64,
) -> Result<(), GrammarError> {
    if bound < LARGEST && bound > SMALLEST {
        return keep_value(d, key, value.clone());
    }
    l.late(&d.at, key);
    Ok(())
}

fn exclusive(
    l: &mut Lower<'_>,
    d: &mut Draught<'_>,
    key: &str,
    value: &Value,
) -> Result<(), GrammarError> {
    let fits = value.is_number() || value.is_boolean();
    fits.then_some(())
        .ok_or_else(|| d.wrong(key, "is no number"))?;
    bounded(l, d, key, value, value.as_f64().unwrap_or(0.0))
}

fn counted(
    _: &mut Lower<'_>,
    d: &mut Draught<'_>,
    key: &str,
    value: &Value,
) -> Result<(), GrammarError> {
    let number = count(value).ok_or_else(|| d.wrong(key, "is no count"))?;
    keep_value(d, key, json!(number))
}

fn required(d: &mut Draught<'_>, key: &str, value: &Value) -> Result<(), GrammarError> {
    let names = value
        .as_array()
        .ok_or_else(|| d.wrong(key, "is no array of names"))?;
    if !names.iter().all(Value::is_string) {
        return Err(d.wrong(key, "is no array of names"));
    }
    keep_value(d, key, value.clone())
}

impl<'a> Lower<'a> {
    fn schema(&mut self, schema: &Value, at: &At) -> Result<Value, GrammarError> {
        let map = match schema {
            Value::Bool(_) => return Ok(schema.clone()),
            Value::Object(map) => map,
            _ => {
                return Err(GrammarError::schema(
                    &at.pointer,
                    "schema",
                    "is neither an object nor a boolean",
                ));
            }
        };
        self.schemas += 1;
        if self.schemas > SCHEMAS || self.depth >= DEPTH {
            let what = format!(
                "the schema at {:?} is nested too deeply or too large",
                at.pointer
            );
            return Err(GrammarError::Limit(what));
        }
        self.depth += 1;
        let out = self.object(map, at);
        self.depth -= 1;
        out
    }

    fn object(&mut self, schema: &Map<String, Value>, at: &At) -> Result<Value, GrammarError> {
        let mut d = Draught {
            schema,
            at: at.clone(),
            out: Map::new(),
            all: Vec::new(),
            choices: 0,
        };
        // Up to draft 7 a reference stands alone, whatever is beside it.
        let alone = schema.contains_key("$ref") && self.document.draft <= Draft::D7;
        for (key, value) in schema.iter().filter(|(k, _)| !alone || *k == "$ref") {
            if let Some((_, rule)) = RULES.iter().find(|r| r.0 == key) {
                rule(self, &mut d, key, value)?;
            }
        }
        let Draught {
            mut out, mut all, ..
        } = d;
        if let Some(keyword) = fractions::unsound(&out) {
            self.late(at, keyword);
        }
        if let Some(ranges) = fractions::ranges(&out).filter(|_| self.relaxed.joins == 0) {
            all.push(json!({"anyOf": ranges}));
        }
        if self.relaxed.joins > 0 && !all.is_empty() {
            self.late(at, "allOf");
        } else if !all.is_empty() {
            let given = out.remove("allOf");
            let mut conjuncts = given
                .and_then(|a| a.as_array().cloned())
                .unwrap_or_default();
            conjuncts.extend(all);
            out.insert("allOf".to_owned(), Value::Array(conjuncts));
        }
        if self.relaxed.loosen(&mut out) {
            self.late(at, "allOf");
        }
        Ok(Value::Object(out))
    }

    /// Notes that the grammar allows more than a keyword.
    fn late(&mut self, at: &At, keyword: &str) {
        let late = &mut self.notes.late;
        late.entry(at.pointer.clone())
            .or_insert_with(|| keyword.to_owned());
    }

    /// A schema inside a schema.
    fn inner(
        &mut self,
        d: &Draught<'_>,
        path: &[&str],
        schema: &Value,
        may_fail: bool,
    ) -> Result<Value, GrammarError> {
        let at = d.at.below(path);
        if at.real {
            self.notes
                .edges
                .push((d.at.pointer.clone(), at.pointer.clone(), may_fail));
        }
        self.schema(schema, &at)
    }

    /// A schema that was made up of parts of one.
    fn made_up(&mut self, d: &Draught<'_>, schema: &Value) -> Result<Value, GrammarError> {
        self.schema(schema, &d.at.made_up())
    }

    /// A conjunct that offers a choice, unless there are too many already.
    fn choose(&mut self, d: &mut Draught<'_>, keyword: &str, options: &[Value]) {
        d.choices += 1;
        if d.choices > CHOICES {
            self.late(&d.at, keyword);
        } else {
            d.all.push(json!({"anyOf": options}));
        }
    }

    fn reference(
        &mut self,
        d: &mut Draught<'_>,
        key: &str,
        value: &Value,
    ) -> Result<(), GrammarError> {
        let text = value.as_str().ok_or_else(|| d.wrong(key, "is no text"))?;
        if key != "$ref" && self.document.is_ambiguous(text) {
            return Err(d.wrong(
                key,
                "points to one of several places, depending on how it is reached",
            ));
        }
        let target = self.document.resolve(text, &d.at.pointer);
        let target = target.ok_or_else(|| {
            d.wrong(
                key,
                &format!("{text:?} is not in the schema; nothing is fetched"),
            )
        })?;
        self.has_an_end(&target)
            .then_some(())
            .ok_or_else(|| d.wrong(key, "refers to itself and nothing else"))?;
        if d.at.real {
            self.notes
                .edges
                .push((d.at.pointer.clone(), target.clone(), false));
        } else {
            self.notes
                .edges
                .push((d.at.pointer.clone(), target.clone(), true));
        }
        let reference = json!(format!("#/$defs/{}", self.name(target)));
        if d.out.contains_key("$ref") {
            d.all.push(json!({"$ref": reference}));
            return Ok(());
        }
        keep_value(d, "$ref", reference)
    }

    /// Whether a chain of mere references ends somewhere.
    fn has_an_end(&self, target: &str) -> bool {
        let mut at = target.to_owned();
        for _ in 0..64 {
            let Some(next) = self.document.at(&at).and_then(|s| s.get("$ref")?.as_str()) else {
                return true;
            };
            match self.document.resolve(next, &at) {
                Some(next) => at = next,
                None => return true,
            }
        }
        false
    }

    /// What the rewritten schema of a place is called.
    fn name(&mut self, target: String) -> String {
        let next = format!("d{}", self.names.len());
        let name = self
            .names
            .entry(target.clone())
            .or_insert_with(|| next.clone())
            .clone();
        if name == next {
            self.todo.push((name.clone(), target));
        }
        name
    }
}
