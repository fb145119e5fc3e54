//! Facts about JSON values and the keywords that speak of them.

use serde_json::{Map, Value};

/// The types of JSON Schema; an integer is a number too.
pub(super) const TYPES: [&str; 6] = ["null", "boolean", "number", "string", "array", "object"];

/// The type of a value.
pub(super) fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Whether a value is of a named type.
pub(super) fn is_of(value: &Value, name: &str) -> bool {
    type_of(value) == name || name == "integer" && is_integer(value)
}

/// Whether a number has no fraction: `1.0` is an integer.
pub(super) fn is_integer(value: &Value) -> bool {
    value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|f| f.fract() == 0.0)
}

/// The names in `type`, where it has one.
pub(super) fn type_names(schema: &Map<String, Value>) -> Option<Vec<&str>> {
    match schema.get("type")? {
        Value::String(name) => Some(vec![name.as_str()]),
        Value::Array(names) => Some(names.iter().filter_map(Value::as_str).collect()),
        _ => None,
    }
}

/// Equality of JSON: numbers by value, objects without order.
pub(super) fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(x), Value::Number(y)) => x == y || x.as_f64() == y.as_f64(),
        (Value::Array(x), Value::Array(y)) => {
            x.len() == y.len() && x.iter().zip(y).all(|(a, b)| equal(a, b))
        }
        (Value::Object(x), Value::Object(y)) => {
            let same = |(k, v): (&String, &Value)| y.get(k).is_some_and(|w| equal(v, w));
            x.len() == y.len() && x.iter().all(same)
        }
        _ => a == b,
    }
}

/// A count that a keyword gives, written as any number.
pub(super) fn count(value: &Value) -> Option<u64> {
    let whole = |f: f64| (f >= 0.0 && f.fract() == 0.0 && f < 1e15).then_some(f as u64);
    value.as_u64().or_else(|| value.as_f64().and_then(whole))
}

/// The values that `const` or `enum` leave.
pub(super) fn constants(schema: &Map<String, Value>) -> Option<Vec<&Value>> {
    match (schema.get("const"), schema.get("enum")) {
        (Some(one), _) => Some(vec![one]),
        (None, Some(Value::Array(all))) => Some(all.iter().collect()),
        _ => None,
    }
}

/// A bound of a number, with whether it is itself excluded; boolean `exclusive…` of draft 4 included.
pub(super) fn bound(
    schema: &Map<String, Value>,
    plain: &str,
    exclusive: &str,
) -> Option<(f64, bool)> {
    let number = |key: &str| schema.get(key).and_then(Value::as_f64);
    let strict = schema.get(exclusive).and_then(Value::as_bool) == Some(true);
    let (own, other) = (number(plain), number(exclusive));
    match (own, other) {
        (Some(a), Some(b)) => {
            let tighter = if plain == "minimum" { b >= a } else { b <= a };
            Some(if tighter { (b, true) } else { (a, false) })
        }
        (Some(a), None) => Some((a, strict)),
        (None, Some(b)) => Some((b, true)),
        (None, None) => None,
    }
}
