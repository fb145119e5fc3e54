//! Any bytes as a schema or a grammar, and as what is written under it: compiling and every step end in time, and JSON that is
//! whole is valid for a validator of somebody else's.
#![no_main]

use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use libfuzzer_sys::fuzz_target;
use russet::Tokenizer;
use russet::grammar::{Constraint, Grammar, Mask, Matcher, Vocabulary};
use serde_json::{Map, Value, json};

/// The longest that one input may take: compiling, and a hundred steps.
const LONGEST: Duration = Duration::from_secs(20);
/// Tokens written under a constraint.
const STEPS: usize = 100;

static VOCABULARY: LazyLock<Arc<Vocabulary>> = LazyLock::new(|| {
    let file = include_bytes!("../../fixtures/lm/qwen3-4bit/tokenizer/tokenizer.json");
    let tokenizer = Tokenizer::from_json(file).expect("a tokenizer");
    let width = tokenizer.largest_id() as usize + 1;
    Vocabulary::new(&tokenizer, &[], width).expect("a vocabulary")
});

fuzz_target!(|data: &[u8]| {
    let start = Instant::now();
    let mut choices = Choices(data);
    let (constraint, schema) = match choices.below(8) {
        0 => text(&mut choices, |t| Constraint::json_schema_text(t).ok()),
        1 => text(&mut choices, |t| Constraint::grammar(t).ok()),
        2 => text(&mut choices, |t| Some(Constraint::regex(t))),
        3 => text(&mut choices, |t| Constraint::ebnf(t).ok()),
        _ => {
            let schema = schema(&mut choices, 3);
            (Some(Constraint::json_schema(schema.clone())), Some(schema))
        }
    };
    let grammar = constraint.and_then(|c| Grammar::new(&VOCABULARY, &c).ok());
    if let Some(grammar) = grammar {
        let mut matcher = grammar.matcher();
        let whole = walk(&mut matcher, &mut choices);
        if let (true, Some(schema)) = (whole, &schema) {
            judge(schema, &matcher);
        }
    }
    let took = start.elapsed();
    assert!(took < LONGEST, "{took:?}");
});

/// Choices from bytes; zeros where they are at an end.
struct Choices<'a>(&'a [u8]);

impl Choices<'_> {
    fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((first, rest)) => {
                self.0 = rest;
                *first
            }
            None => 0,
        }
    }

    fn below(&mut self, most: usize) -> usize {
        usize::from(self.byte()) % most
    }

    fn small(&mut self) -> i64 {
        i64::from(self.byte() as i8) / 8
    }
}

fn text(
    choices: &mut Choices<'_>,
    make: impl Fn(&str) -> Option<Constraint>,
) -> (Option<Constraint>, Option<Value>) {
    let half = choices.0.len() * 3 / 4;
    let (text, rest) = choices.0.split_at(half);
    choices.0 = rest;
    (std::str::from_utf8(text).ok().and_then(make), None)
}

/// Follows the choices among the tokens that are allowed, back and forth; whether the text is whole in the end.
fn walk(matcher: &mut Matcher, choices: &mut Choices<'_>) -> bool {
    let mut mask = vec![0u32; VOCABULARY.mask_words()];
    for _ in 0..STEPS {
        match matcher.fill_mask(&mut mask) {
            Ok(Mask::Finished) => return true,
            Ok(_) => {}
            Err(_) => return false,
        }
        let allowed: Vec<u32> = (0..VOCABULARY.width() as u32)
            .filter(|t| mask[*t as usize / 32] >> (t % 32) & 1 == 1)
            .collect();
        let token = allowed[(choices.below(256) * 256 + choices.below(256)) % allowed.len()];
        if matcher.accept(token).is_err() {
            return false;
        }
        if choices.0.is_empty() && matcher.can_finish() {
            return true;
        }
        if choices.below(16) == 15 {
            let back = choices.below(matcher.tokens().len() + 1);
            matcher.rollback(back).expect("so many tokens are held");
        }
    }
    matcher.can_finish()
}

fn judge(schema: &Value, matcher: &Matcher) {
    let bytes: Vec<u8> = matcher
        .tokens()
        .iter()
        .flat_map(|t| VOCABULARY.bytes(*t).to_vec())
        .collect();
    let value: Value = serde_json::from_slice(&bytes)
        .unwrap_or_else(|e| panic!("{e}: {schema} {:?}", String::from_utf8_lossy(&bytes)));
    if let Ok(validator) = jsonschema::validator_for(schema) {
        let valid = validator.is_valid(&value);
        assert!(valid, "{schema} {}", String::from_utf8_lossy(&bytes));
    }
}

/// A schema of the keywords that there are.
fn schema(c: &mut Choices<'_>, depth: usize) -> Value {
    let mut made = Map::new();
    for _ in 0..=c.below(3) {
        keyword(c, depth, &mut made);
    }
    Value::Object(made)
}

fn schemas(c: &mut Choices<'_>, depth: usize) -> Vec<Value> {
    (0..=c.below(3)).map(|_| schema(c, depth)).collect()
}

fn members(c: &mut Choices<'_>, depth: usize) -> Map<String, Value> {
    let count = c.below(4);
    (0..count)
        .map(|_| (name(c), schema(c, depth)))
        .collect()
}

fn name(c: &mut Choices<'_>) -> String {
    ["a", "b", "ab", "c"][c.below(4)].to_owned()
}

fn names(c: &mut Choices<'_>) -> Vec<String> {
    let mut names: Vec<String> = (0..=c.below(2)).map(|_| name(c)).collect();
    names.sort();
    names.dedup();
    names
}

fn constant(c: &mut Choices<'_>) -> Value {
    match c.below(7) {
        0 => Value::Null,
        1 => json!(c.below(2) == 1),
        2 => json!(c.small()),
        3 => json!(c.small() as f64 / 4.0),
        4 => json!(name(c)),
        5 => json!([c.small()]),
        _ => json!({name(c): c.small()}),
    }
}

fn constants(c: &mut Choices<'_>) -> Value {
    let mut made: Vec<Value> = (0..=c.below(4)).map(|_| constant(c)).collect();
    made.dedup();
    json!(made)
}

fn keyword(c: &mut Choices<'_>, depth: usize, to: &mut Map<String, Value>) {
    const KINDS: [&str; 7] = ["object", "array", "string", "integer", "number", "boolean", "null"];
    const PATTERNS: [&str; 5] = ["^a", "b$", "^[a-c]{1,3}$", "[0-9]", "^(?!ab)[a-d]*$"];
    let kind = |c: &mut Choices<'_>| KINDS[c.below(KINDS.len())];
    let pattern = |c: &mut Choices<'_>| PATTERNS[c.below(PATTERNS.len())];
    let leaf = depth == 0;
    let deeper = depth.saturating_sub(1);
    let (key, value) = match c.below(if leaf { 14 } else { 35 }) {
        0 | 1 => ("type", json!(kind(c))),
        2 => ("type", json!([kind(c), "null"].iter().collect::<std::collections::BTreeSet<_>>())),
        3 => ("enum", constants(c)),
        4 => ("const", constant(c)),
        5 => ("minimum", json!(c.small())),
        6 => ("maximum", json!(c.small() as f64 / 2.0)),
        7 => ("exclusiveMinimum", json!(c.small())),
        8 => ("multipleOf", json!([1.0, 0.5, 3.0, 0.25][c.below(4)])),
        9 => ("minLength", json!(c.below(4))),
        10 => ("maxLength", json!(c.below(6))),
        11 => ("pattern", json!(pattern(c))),
        12 => ("uniqueItems", json!(true)),
        13 => ("required", json!(names(c))),
        14 | 15 => ("properties", Value::Object(members(c, deeper))),
        16 => ("additionalProperties", if c.below(2) == 0 { json!(false) } else { schema(c, deeper) }),
        17 => ("items", schema(c, deeper)),
        18 => ("prefixItems", json!(schemas(c, deeper))),
        19 => ("minItems", json!(c.below(3))),
        20 => ("maxItems", json!(c.below(4))),
        21 => ("minProperties", json!(c.below(3))),
        22 => ("maxProperties", json!(c.below(3))),
        23 => ("allOf", json!(schemas(c, deeper))),
        24 => ("anyOf", json!(schemas(c, deeper))),
        25 => ("oneOf", json!(schemas(c, deeper))),
        26 => ("not", schema(c, deeper)),
        27 => ("if", schema(c, deeper)),
        28 => ("then", schema(c, deeper)),
        29 => ("else", schema(c, deeper)),
        30 => ("contains", schema(c, deeper)),
        31 => ("propertyNames", schema(c, deeper)),
        32 => ("patternProperties", json!({pattern(c): schema(c, deeper)})),
        33 => ("dependentRequired", json!({name(c): names(c)})),
        _ => ("dependentSchemas", json!({name(c): schema(c, deeper)})),
    };
    to.insert(key.to_owned(), value);
}
