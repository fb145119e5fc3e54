//! Validating whole values: the meaning of every keyword, in all drafts. It judges what grammars cannot say.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::document::{Document, Draft, child};
use super::format::has_format;
use super::pattern::Patterns;
use super::values::{bound, count, equal, is_of, type_names};

/// Schemas inside schemas; deeper ones count as violated.
const DEPTH: usize = 128;

/// Judges values by the schemas of one document.
#[derive(Debug)]
pub(super) struct Validator<'a> {
    pub(super) document: &'a Document,
    pub(super) patterns: &'a Patterns,
}

/// Members and elements that some schema has judged, for `unevaluated…`.
#[derive(Clone, Debug, Default)]
struct Seen {
    members: BTreeSet<String>,
    items: BTreeSet<usize>,
}

impl Seen {
    fn add(&mut self, other: Self) {
        self.members.extend(other.members);
        self.items.extend(other.items);
    }
}

/// One schema being applied to one value.
struct Case<'s> {
    schema: &'s Map<String, Value>,
    place: &'s str,
    value: &'s Value,
    depth: usize,
}

/// What a keyword says: nothing where the value violates it, else what it has judged.
type Rule = fn(&Validator<'_>, &Case<'_>, &Value) -> Option<Seen>;

/// All keywords that assert something on their own, in an order that does not matter.
const RULES: [(&str, Rule); 36] = [
    ("type", |_, c, _| {
        ok(type_names(c.schema).is_none_or(|t| t.iter().any(|t| is_of(c.value, t))))
    }),
    ("const", |_, c, v| ok(equal(c.value, v))),
    ("enum", |_, c, v| {
        ok(v.as_array()
            .is_none_or(|all| all.iter().any(|x| equal(c.value, x))))
    }),
    ("minimum", |_, c, _| ok(above_minimum(c))),
    ("exclusiveMinimum", |_, c, _| ok(above_minimum(c))),
    ("maximum", |_, c, _| ok(below_maximum(c))),
    ("exclusiveMaximum", |_, c, _| ok(below_maximum(c))),
    ("multipleOf", |_, c, v| ok(is_multiple(c.value, v))),
    ("minLength", |_, c, v| {
        ok(length(c.value).is_none_or(|n| at_least(n, v)))
    }),
    ("maxLength", |_, c, v| {
        ok(length(c.value).is_none_or(|n| at_most(n, v)))
    }),
    ("pattern", |d, c, v| {
        ok(text_of(c).is_none_or(|t| d.patterns.matches(v.as_str().unwrap_or(""), t)))
    }),
    ("format", |d, c, v| {
        ok(text_of(c).is_none_or(|t| has_format(t, v.as_str().unwrap_or(""), d.patterns)))
    }),
    ("minItems", |_, c, v| {
        ok(c.value.as_array().is_none_or(|a| at_least(a.len(), v)))
    }),
    ("maxItems", |_, c, v| {
        ok(c.value.as_array().is_none_or(|a| at_most(a.len(), v)))
    }),
    ("uniqueItems", |_, c, v| {
        ok(v != &Value::Bool(true) || unique(c.value))
    }),
    ("minProperties", |_, c, v| {
        ok(c.value.as_object().is_none_or(|o| at_least(o.len(), v)))
    }),
    ("maxProperties", |_, c, v| {
        ok(c.value.as_object().is_none_or(|o| at_most(o.len(), v)))
    }),
    ("required", |_, c, v| ok(has_all(c.value, v))),
    ("dependentRequired", |d, c, v| {
        d.dependencies(c, v, "dependentRequired")
    }),
    ("dependentSchemas", |d, c, v| {
        d.dependencies(c, v, "dependentSchemas")
    }),
    ("dependencies", |d, c, v| {
        d.dependencies(c, v, "dependencies")
    }),
    ("properties", |d, c, _| d.members(c)),
    ("patternProperties", |d, c, _| d.members(c)),
    ("additionalProperties", |d, c, _| d.members(c)),
    ("propertyNames", |d, c, v| d.names(c, v)),
    ("items", |d, c, _| d.items(c)),
    ("prefixItems", |d, c, _| d.items(c)),
    ("contains", |d, c, v| d.contains(c, v)),
    ("allOf", |d, c, v| d.all_of(c, v)),
    ("anyOf", |d, c, v| d.some_of(c, v, "anyOf", usize::MAX)),
    ("oneOf", |d, c, v| d.some_of(c, v, "oneOf", 1)),
    ("not", |d, c, v| {
        ok(d.apply(v, &child(c.place, "not"), c.value, c.depth)
            .is_none())
    }),
    ("if", |d, c, v| d.condition(c, v)),
    ("$ref", |d, c, v| d.reference(c, v)),
    ("$dynamicRef", |d, c, v| d.reference(c, v)),
    ("$recursiveRef", |d, c, v| d.reference(c, v)),
];

fn ok(holds: bool) -> Option<Seen> {
    holds.then(Seen::default)
}

impl Validator<'_> {
    /// Whether a value is valid under a schema that stands at a place.
    pub(super) fn accepts(&self, schema: &Value, place: &str, value: &Value) -> bool {
        self.apply(schema, place, value, DEPTH).is_some()
    }

    /// Whether a value is valid under the schema at a place of the document.
    pub(super) fn accepts_at(&self, place: &str, value: &Value) -> bool {
        let schema = self.document.at(place);
        schema.is_some_and(|s| self.accepts(s, place, value))
    }

    fn apply(&self, schema: &Value, place: &str, value: &Value, depth: usize) -> Option<Seen> {
        let depth = depth.checked_sub(1)?;
        let schema = match schema {
            Value::Bool(all) => return ok(*all),
            Value::Object(schema) => schema,
            _ => return None,
        };
        let case = Case {
            schema,
            place,
            value,
            depth,
        };
        let mut seen = Seen::default();
        if self.document.draft <= Draft::D7
            && let Some(reference) = schema.get("$ref")
        {
            return self.reference(&case, reference);
        }
        for (key, rule) in &RULES {
            if let Some(value) = schema.get(*key) {
                seen.add(rule(self, &case, value)?);
            }
        }
        self.unevaluated(&case, seen)
    }

    fn reference(&self, case: &Case<'_>, reference: &Value) -> Option<Seen> {
        let target = self.document.resolve(reference.as_str()?, case.place)?;
        self.apply(self.document.at(&target)?, &target, case.value, case.depth)
    }

    fn all_of(&self, case: &Case<'_>, all: &Value) -> Option<Seen> {
        let mut seen = Seen::default();
        for (i, schema) in all.as_array()?.iter().enumerate() {
            seen.add(self.apply(
                schema,
                &nested(case.place, "allOf", i),
                case.value,
                case.depth,
            )?);
        }
        Some(seen)
    }

    fn some_of(&self, case: &Case<'_>, all: &Value, key: &str, most: usize) -> Option<Seen> {
        let options = all.as_array()?.iter().enumerate();
        let valid = options.filter_map(|(i, s)| {
            self.apply(s, &nested(case.place, key, i), case.value, case.depth)
        });
        let valid: Vec<Seen> = valid.collect();
        let fits = !valid.is_empty() && valid.len() <= most;
        let mut seen = Seen::default();
        valid.into_iter().for_each(|s| seen.add(s));
        fits.then_some(seen)
    }

    fn condition(&self, case: &Case<'_>, condition: &Value) -> Option<Seen> {
        let judge = |schema: &Value, key: &str| {
            self.apply(schema, &child(case.place, key), case.value, case.depth)
        };
        let held = judge(condition, "if");
        let branch = if held.is_some() { "then" } else { "else" };
        let mut seen = held.unwrap_or_default();
        if let Some(schema) = case.schema.get(branch) {
            seen.add(judge(schema, branch)?);
        }
        Some(seen)
    }

    fn dependencies(&self, case: &Case<'_>, all: &Value, keyword: &str) -> Option<Seen> {
        let mut seen = Seen::default();
        for (key, needs) in all.as_object()? {
            if case.value.get(key).is_none() {
                continue;
            }
            match needs {
                Value::Array(_) => seen.add(ok(has_all(case.value, needs))?),
                Value::String(one) => seen.add(ok(case.value.get(one).is_some())?),
                schema => {
                    let place = child(&child(case.place, keyword), key);
                    seen.add(self.apply(schema, &place, case.value, case.depth)?);
                }
            }
        }
        Some(seen)
    }

    /// `properties`, `patternProperties` and `additionalProperties` together.
    fn members(&self, case: &Case<'_>) -> Option<Seen> {
        let mut seen = Seen::default();
        for (key, value) in case.value.as_object().into_iter().flatten() {
            let mut judged = false;
            for (place, schema) in member_schemas(self.patterns, case.schema, case.place, key) {
                self.apply(schema, &place, value, case.depth)?;
                judged = true;
            }
            if judged {
                seen.members.insert(key.clone());
            }
        }
        Some(seen)
    }

    fn names(&self, case: &Case<'_>, schema: &Value) -> Option<Seen> {
        let place = child(case.place, "propertyNames");
        let mut keys = case
            .value
            .as_object()
            .into_iter()
            .flatten()
            .map(|m| m.0.clone());
        let fits = keys.all(|k| {
            self.apply(schema, &place, &Value::String(k), case.depth)
                .is_some()
        });
        ok(fits)
    }

    fn items(&self, case: &Case<'_>) -> Option<Seen> {
        let mut seen = Seen::default();
        for (i, value) in case.value.as_array().into_iter().flatten().enumerate() {
            if let Some((place, schema)) = item_schema(case.schema, case.place, i) {
                self.apply(schema, &place, value, case.depth)?;
                seen.items.insert(i);
            }
        }
        Some(seen)
    }

    fn contains(&self, case: &Case<'_>, schema: &Value) -> Option<Seen> {
        let Value::Array(items) = case.value else {
            return ok(true);
        };
        let place = child(case.place, "contains");
        let mut seen = Seen::default();
        let fits = |v: &Value| self.apply(schema, &place, v, case.depth).is_some();
        seen.items = items
            .iter()
            .enumerate()
            .filter(|(_, v)| fits(v))
            .map(|(i, _)| i)
            .collect();
        let bound = |key: &str| case.schema.get(key).and_then(count);
        let found = seen.items.len() as u64;
        let enough = found >= bound("minContains").unwrap_or(1);
        (enough && found <= bound("maxContains").unwrap_or(u64::MAX)).then_some(seen)
    }

    fn unevaluated(&self, case: &Case<'_>, mut seen: Seen) -> Option<Seen> {
        if let (Some(schema), Value::Object(members)) =
            (case.schema.get("unevaluatedProperties"), case.value)
        {
            let place = child(case.place, "unevaluatedProperties");
            for (key, value) in members.iter().filter(|(k, _)| !seen.members.contains(*k)) {
                let _ = key;
                self.apply(schema, &place, value, case.depth)?;
            }
            seen.members.extend(members.keys().cloned());
        }
        if let (Some(schema), Value::Array(items)) =
            (case.schema.get("unevaluatedItems"), case.value)
        {
            let place = child(case.place, "unevaluatedItems");
            for (_, value) in items
                .iter()
                .enumerate()
                .filter(|(i, _)| !seen.items.contains(i))
            {
                self.apply(schema, &place, value, case.depth)?;
            }
            seen.items.extend(0..items.len());
        }
        Some(seen)
    }
}

fn nested(place: &str, key: &str, i: usize) -> String {
    child(&child(place, key), &i.to_string())
}

/// The schemas for a member of an object, with their places.
pub(super) fn member_schemas<'s>(
    patterns: &Patterns,
    schema: &'s Map<String, Value>,
    place: &str,
    key: &str,
) -> Vec<(String, &'s Value)> {
    let mut found = Vec::new();
    if let Some(own) = schema.get("properties").and_then(|p| p.get(key)) {
        found.push((child(&child(place, "properties"), key), own));
    }
    let by_pattern = schema.get("patternProperties").and_then(Value::as_object);
    for (pattern, own) in by_pattern.into_iter().flatten() {
        if patterns.matches(pattern, key) {
            found.push((child(&child(place, "patternProperties"), pattern), own));
        }
    }
    if let (true, Some(own)) = (found.is_empty(), schema.get("additionalProperties")) {
        found.push((child(place, "additionalProperties"), own));
    }
    found
}

/// The schema for an element of an array, with its place: `prefixItems` then `items`, or an array of `items` and then
/// `additionalItems`.
pub(super) fn item_schema<'s>(
    schema: &'s Map<String, Value>,
    place: &str,
    i: usize,
) -> Option<(String, &'s Value)> {
    let listed = |key: &str| {
        let one = schema.get(key)?.as_array()?.get(i)?;
        Some((nested(place, key, i), one))
    };
    let rest = |key: &str| Some((child(place, key), schema.get(key)?));
    if schema.get("items").is_some_and(Value::is_array) {
        return listed("items").or_else(|| rest("additionalItems"));
    }
    listed("prefixItems").or_else(|| rest("items"))
}

fn text_of<'c>(case: &Case<'c>) -> Option<&'c str> {
    case.value.as_str()
}

fn length(value: &Value) -> Option<usize> {
    value.as_str().map(|s| s.chars().count())
}

fn at_least(n: usize, bound: &Value) -> bool {
    count(bound).is_none_or(|b| n as u64 >= b)
}

fn at_most(n: usize, bound: &Value) -> bool {
    count(bound).is_none_or(|b| n as u64 <= b)
}

fn above_minimum(case: &Case<'_>) -> bool {
    let low = bound(case.schema, "minimum", "exclusiveMinimum");
    let number = case.value.as_f64();
    number
        .zip(low)
        .is_none_or(|(n, (least, open))| n > least || n == least && !open)
}

fn below_maximum(case: &Case<'_>) -> bool {
    let high = bound(case.schema, "maximum", "exclusiveMaximum");
    let number = case.value.as_f64();
    number
        .zip(high)
        .is_none_or(|(n, (most, open))| n < most || n == most && !open)
}

/// Multiples to within the precision of the division.
fn is_multiple(value: &Value, of: &Value) -> bool {
    if let (Some(n), Some(m)) = (value.as_i64(), of.as_i64()) {
        return m == 0 || n.checked_rem(m).is_none_or(|r| r == 0);
    }
    let (Some(n), Some(m)) = (value.as_f64(), of.as_f64()) else {
        return true;
    };
    let times = n / m;
    m == 0.0 || times.is_finite() && (times - times.round()).abs() <= times.abs().max(1.0) * 1e-12
}

fn unique(value: &Value) -> bool {
    let items = value.as_array().map_or(&[][..], Vec::as_slice);
    let repeated = |(i, a): (usize, &Value)| items.iter().take(i).any(|b| equal(a, b));
    !items.iter().enumerate().any(repeated)
}

fn has_all(value: &Value, names: &Value) -> bool {
    let names = names.as_array().map_or(&[][..], Vec::as_slice);
    let has = |n: &Value| n.as_str().is_none_or(|n| value.get(n).is_some());
    !value.is_object() || names.iter().all(has)
}
