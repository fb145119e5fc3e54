//! The opposite of a schema, as a schema without `not`, where there is one.

use serde_json::{Map, Value, json};

use super::document::Document;
use super::pattern::none_of;
use super::values::{TYPES, bound, count, type_names, type_of};

/// References followed into each other.
const DEPTH: usize = 8;

/// Keywords that forbid nothing.
const SILENT: [&str; 13] = [
    "$schema",
    "$id",
    "id",
    "$comment",
    "title",
    "description",
    "default",
    "examples",
    "readOnly",
    "writeOnly",
    "$defs",
    "definitions",
    "deprecated",
];

/// A schema that is valid exactly where `schema` is not; nothing where that cannot be written. References in it are those of
/// the place `pointer`.
pub(super) fn opposite(document: &Document, schema: &Value, pointer: &str) -> Option<Value> {
    Negation { document }.of(schema, pointer, DEPTH)
}

struct Negation<'a> {
    document: &'a Document,
}

type Rule = fn(&Negation<'_>, &Map<String, Value>, &Value, &str, usize) -> Option<Value>;

/// The opposites of single keywords. A keyword that is not here has none.
const RULES: [(&str, Rule); 22] = [
    ("type", |_, s, _, _, _| not_type(s)),
    ("const", |_, _, v, _, _| not_one_of(&[v])),
    ("enum", |_, _, v, _, _| {
        not_one_of(&v.as_array()?.iter().collect::<Vec<_>>())
    }),
    ("required", |_, _, v, _, _| not_required(v)),
    ("properties", |n, _, v, p, d| n.not_properties(v, p, d)),
    ("not", |_, _, v, _, _| Some(v.clone())),
    ("anyOf", |n, _, v, p, d| {
        Some(json!({"allOf": n.each(v, p, d)?}))
    }),
    ("allOf", |n, _, v, p, d| {
        Some(json!({"anyOf": n.each(v, p, d)?}))
    }),
    ("$ref", |n, _, v, p, d| n.not_reference(v, p, d)),
    ("minLength", |_, _, v, _, _| below("string", "maxLength", v)),
    ("maxLength", |_, _, v, _, _| above("string", "minLength", v)),
    ("minItems", |_, _, v, _, _| below("array", "maxItems", v)),
    ("maxItems", |_, _, v, _, _| above("array", "minItems", v)),
    ("minProperties", |_, _, v, _, _| {
        below("object", "maxProperties", v)
    }),
    ("maxProperties", |_, _, v, _, _| {
        above("object", "minProperties", v)
    }),
    ("minimum", |_, s, _, _, _| not_minimum(s)),
    ("exclusiveMinimum", |_, s, _, _, _| not_minimum(s)),
    ("maximum", |_, s, _, _, _| not_maximum(s)),
    ("exclusiveMaximum", |_, s, _, _, _| not_maximum(s)),
    ("contains", |_, _, _, _, _| None),
    ("additionalProperties", |_, _, v, _, _| always(v)),
    ("items", |_, _, v, _, _| always(v)),
];

impl Negation<'_> {
    fn of(&self, schema: &Value, pointer: &str, depth: usize) -> Option<Value> {
        let schema = match schema {
            Value::Bool(all) => return Some(Value::Bool(!all)),
            Value::Object(schema) => schema,
            _ => return None,
        };
        let depth = depth.checked_sub(1)?;
        let mut ways = Vec::new();
        for (key, value) in schema {
            if SILENT.contains(&key.as_str()) {
                continue;
            }
            let rule = RULES.iter().find(|r| r.0 == key);
            match rule {
                Some(rule) => ways.push(rule.1(self, schema, value, pointer, depth)?),
                None if super::lower::is_keyword(key) => return None,
                None => {}
            }
        }
        ways.retain(|w| *w != Value::Bool(false));
        Some(match ways.len() {
            0 => Value::Bool(false),
            1 => ways.remove(0),
            _ => json!({"anyOf": ways}),
        })
    }

    fn each(&self, schemas: &Value, pointer: &str, depth: usize) -> Option<Vec<Value>> {
        let schemas = schemas.as_array()?.iter();
        schemas.map(|s| self.of(s, pointer, depth)).collect()
    }

    fn not_properties(&self, properties: &Value, pointer: &str, depth: usize) -> Option<Value> {
        let wrong = |(key, schema): (&String, &Value)| {
            let opposite = self.of(schema, pointer, depth)?;
            Some(json!({"type": "object", "required": [key], "properties": {key: opposite}}))
        };
        let ways: Option<Vec<Value>> = properties.as_object()?.iter().map(wrong).collect();
        Some(any(ways?))
    }

    fn not_reference(&self, reference: &Value, pointer: &str, depth: usize) -> Option<Value> {
        let target = self.document.resolve(reference.as_str()?, pointer)?;
        self.of(self.document.at(&target)?, &target, depth)
            .filter(|_| self.same_base(&target, pointer))
    }

    /// Whether references of two places mean the same.
    fn same_base(&self, a: &str, b: &str) -> bool {
        self.document.base(a) == self.document.base(b)
    }
}

fn any(mut ways: Vec<Value>) -> Value {
    match ways.len() {
        0 => Value::Bool(false),
        1 => ways.remove(0),
        _ => json!({"anyOf": ways}),
    }
}

/// A keyword that is always met has the opposite `false`; another has none here.
fn always(schema: &Value) -> Option<Value> {
    let met = schema == &Value::Bool(true) || schema.as_object().is_some_and(Map::is_empty);
    met.then_some(Value::Bool(false))
}

fn not_type(schema: &Map<String, Value>) -> Option<Value> {
    let names = type_names(schema)?;
    let integer = names.contains(&"integer");
    if integer && !names.contains(&"number") {
        return None;
    }
    let rest: Vec<&str> = TYPES.into_iter().filter(|t| !names.contains(t)).collect();
    Some(match rest.is_empty() {
        true => Value::Bool(false),
        false => json!({"type": rest}),
    })
}

fn not_one_of(values: &[&Value]) -> Option<Value> {
    let of = |name: &str| {
        values
            .iter()
            .copied()
            .filter(|v| type_of(v) == name)
            .collect::<Vec<_>>()
    };
    if !of("array").is_empty() || !of("object").is_empty() {
        return None;
    }
    let untouched: Vec<&str> = TYPES.into_iter().filter(|t| of(t).is_empty()).collect();
    let mut ways = Vec::new();
    if !untouched.is_empty() {
        ways.push(json!({"type": untouched}));
    }
    let strings: Vec<&str> = of("string").into_iter().filter_map(Value::as_str).collect();
    if !strings.is_empty() {
        ways.push(json!({"type": "string", "pattern": none_of(&strings)}));
    }
    match of("boolean").as_slice() {
        [Value::Bool(one)] => ways.push(json!({"const": !one})),
        [] | [_, _, ..] => {}
        [_] => return None,
    }
    ways.extend(other_numbers(&of("number"))?);
    Some(any(ways))
}

/// The numbers between and around some.
fn other_numbers(values: &[&Value]) -> Option<Vec<Value>> {
    let mut numbers: Vec<f64> = values.iter().filter_map(|v| v.as_f64()).collect();
    numbers.sort_by(f64::total_cmp);
    let (Some(first), Some(last)) = (numbers.first(), numbers.last()) else {
        return Some(Vec::new());
    };
    let mut ways = vec![
        json!({"type": "number", "exclusiveMaximum": first}),
        json!({"type": "number", "exclusiveMinimum": last}),
    ];
    for pair in numbers.windows(2) {
        if let [a, b] = pair
            && a < b
        {
            ways.push(json!({"type": "number", "exclusiveMinimum": a, "exclusiveMaximum": b}));
        }
    }
    Some(ways)
}

fn not_required(names: &Value) -> Option<Value> {
    let without = |name: &Value| json!({"type": "object", "properties": {name.as_str().unwrap_or(""): false}});
    Some(any(names.as_array()?.iter().map(without).collect()))
}

fn below(kind: &str, keyword: &str, value: &Value) -> Option<Value> {
    let most = count(value)?.checked_sub(1);
    Some(most.map_or(Value::Bool(false), |n| json!({"type": kind, keyword: n})))
}

fn above(kind: &str, keyword: &str, value: &Value) -> Option<Value> {
    Some(json!({"type": kind, keyword: count(value)? + 1}))
}

fn not_minimum(schema: &Map<String, Value>) -> Option<Value> {
    let (least, open) = bound(schema, "minimum", "exclusiveMinimum")?;
    let keyword = if open { "maximum" } else { "exclusiveMaximum" };
    Some(json!({"type": "number", keyword: least}))
}

fn not_maximum(schema: &Map<String, Value>) -> Option<Value> {
    let (most, open) = bound(schema, "maximum", "exclusiveMaximum")?;
    let keyword = if open { "minimum" } else { "exclusiveMinimum" };
    Some(json!({"type": "number", keyword: most}))
}
