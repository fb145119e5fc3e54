//! Whether two schemas have no value in common: then "exactly one of them" is "one of them".
//!
//! A schema is looked at through its facets: itself, what it refers to, and the members of its `allOf`, all of which hold for
//! every value of it. For each type that both allow there must be a reason: different constants, ranges that do not meet, a
//! required member whose schemas are disjoint.

use std::cell::Cell;
use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::document::Document;
use super::pattern;
use super::validate::Validator;
use super::values::{TYPES, bound, constants, count, type_names, type_of};

/// Schemas inside schemas looked into.
const DEPTH: usize = 6;

/// Facets of one schema at most.
const FACETS: usize = 24;

/// Looks at pairs of schemas of one document.
pub(super) struct Disjoint<'a> {
    pub(super) document: &'a Document,
    pub(super) validator: &'a Validator<'a>,
    /// Pairs that may still be looked at; when there are none, nothing is disjoint.
    pub(super) fuel: &'a Cell<usize>,
}

/// A schema with the place that its references are relative to.
type Placed<'s> = (&'s Value, String);

/// Everything that holds for the values of one schema.
struct Facets<'s>(Vec<(&'s Map<String, Value>, String)>);

impl<'a> Disjoint<'a> {
    /// Whether no value is valid under both.
    pub(super) fn are(&self, a: &Placed<'a>, b: &Placed<'a>) -> bool {
        self.at_depth(a, b, DEPTH)
    }

    fn at_depth(&self, a: &Placed<'a>, b: &Placed<'a>, depth: usize) -> bool {
        if a.0 == &Value::Bool(false) || b.0 == &Value::Bool(false) {
            return true;
        }
        let (Some(depth), Some(fuel)) = (depth.checked_sub(1), self.fuel.get().checked_sub(1))
        else {
            return false;
        };
        self.fuel.set(fuel);
        let (x, y) = (self.facets(a), self.facets(b));
        if self.by_options(&x, b, depth) || self.by_options(&y, a, depth) {
            return true;
        }
        let types: Vec<&str> = TYPES
            .into_iter()
            .filter(|t| self.allows(&x, t) && self.allows(&y, t))
            .collect();
        types.iter().all(|t| {
            self.constants_differ(&x, b, t)
                || self.constants_differ(&y, a, t)
                || self.apart(&x, &y, t, depth)
        })
    }

    /// The facets of a schema, through references and `allOf`.
    fn facets(&self, schema: &Placed<'a>) -> Facets<'a> {
        let mut facets = Vec::new();
        let mut todo = vec![schema.clone()];
        while let Some((value, place)) = todo.pop() {
            let Value::Object(map) = value else { continue };
            if facets.len() >= FACETS {
                break;
            }
            let target = map.get("$ref").and_then(Value::as_str);
            if let Some(target) = target.and_then(|r| self.document.resolve(r, &place))
                && let Some(found) = self.document.at(&target)
            {
                todo.push((found, target));
            }
            let all = map.get("allOf").and_then(Value::as_array);
            todo.extend(all.into_iter().flatten().map(|s| (s, place.clone())));
            facets.push((map, place));
        }
        Facets(facets)
    }

    /// Whether all options of a choice in one are disjoint from the other.
    fn by_options(&self, x: &Facets<'a>, other: &Placed<'a>, depth: usize) -> bool {
        x.0.iter().any(|(facet, place)| {
            ["anyOf", "oneOf"].iter().any(|key| {
                let options = facet.get(*key).and_then(Value::as_array);
                options.is_some_and(|o| {
                    !o.is_empty()
                        && o.iter()
                            .all(|s| self.at_depth(&(s, place.clone()), other, depth))
                })
            })
        })
    }

    fn allows(&self, x: &Facets<'_>, name: &str) -> bool {
        x.0.iter().all(|(facet, _)| {
            let named = type_names(facet)
                .is_none_or(|t| t.contains(&name) || name == "number" && t.contains(&"integer"));
            named && constants(facet).is_none_or(|c| c.iter().any(|v| type_of(v) == name))
        })
    }

    /// Whether none of the constants of a type in one is valid in the other.
    fn constants_differ(&self, x: &Facets<'_>, other: &Placed<'a>, name: &str) -> bool {
        x.0.iter().any(|(facet, _)| {
            constants(facet).is_some_and(|all| {
                let mut of = all.iter().filter(|v| type_of(v) == name);
                of.all(|v| !self.validator.accepts(other.0, &other.1, v))
            })
        })
    }

    /// Whether two facets exclude each other for values of a type.
    fn apart(&self, x: &Facets<'a>, y: &Facets<'a>, name: &str, depth: usize) -> bool {
        let pairs = || x.0.iter().flat_map(|a| y.0.iter().map(move |b| (a.0, b.0)));
        match name {
            "number" => pairs().any(|(a, b)| numbers_apart(a, b) || numbers_apart(b, a)),
            "string" => pairs()
                .any(|(a, b)| counts_apart(a, b, "minLength", "maxLength") || patterns_apart(a, b)),
            "array" => pairs().any(|(a, b)| counts_apart(a, b, "minItems", "maxItems")),
            "object" => {
                pairs().any(|(a, b)| counts_apart(a, b, "minProperties", "maxProperties"))
                    || self.members_apart(x, y, depth)
            }
            _ => false,
        }
    }

    /// A member that one must have and the other must not, or that has disjoint schemas.
    fn members_apart(&self, x: &Facets<'a>, y: &Facets<'a>, depth: usize) -> bool {
        let required = |f: &Facets<'a>| -> BTreeSet<&'a str> {
            let all =
                f.0.iter()
                    .filter_map(|(m, _)| m.get("required")?.as_array());
            all.flatten().filter_map(Value::as_str).collect()
        };
        let mut names = required(x);
        names.extend(required(y));
        names.iter().any(|name| {
            let of = |f: &Facets<'a>| -> Vec<Placed<'a>> {
                f.0.iter()
                    .filter_map(|(m, p)| Some((self.member(m, name)?, p.clone())))
                    .collect()
            };
            let (a, b) = (of(x), of(y));
            let never = |all: &[Placed<'_>]| all.iter().any(|s| s.0 == &Value::Bool(false));
            never(&a)
                || never(&b)
                || a.iter()
                    .any(|s| b.iter().any(|t| self.at_depth(s, t, depth)))
        })
    }

    /// The schema that a facet has for a member.
    fn member(&self, facet: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
        if let Some(schema) = facet.get("properties").and_then(|p| p.get(name)) {
            return Some(schema);
        }
        let patterns = facet.get("patternProperties").and_then(Value::as_object);
        let mut patterns = patterns.into_iter().flatten();
        match patterns.find(|(p, _)| self.validator.patterns.matches(p, name)) {
            Some((_, schema)) => Some(schema),
            None => facet.get("additionalProperties"),
        }
    }
}

fn counts_apart(a: &Map<String, Value>, b: &Map<String, Value>, least: &str, most: &str) -> bool {
    let get = |m: &Map<String, Value>, key: &str| m.get(key).and_then(count);
    let over = |low: Option<u64>, high: Option<u64>| low.zip(high).is_some_and(|(l, h)| l > h);
    over(get(a, least), get(b, most)) || over(get(b, least), get(a, most))
}

fn numbers_apart(a: &Map<String, Value>, b: &Map<String, Value>) -> bool {
    let low = bound(a, "minimum", "exclusiveMinimum");
    let high = bound(b, "maximum", "exclusiveMaximum");
    low.zip(high)
        .is_some_and(|(l, h)| l.0 > h.0 || l.0 == h.0 && (l.1 || h.1))
}

fn patterns_apart(a: &Map<String, Value>, b: &Map<String, Value>) -> bool {
    let text =
        |m: &'_ Map<String, Value>| m.get("pattern").and_then(Value::as_str).map(str::to_owned);
    text(a)
        .zip(text(b))
        .is_some_and(|(a, b)| pattern::disjoint(&a, &b))
}
