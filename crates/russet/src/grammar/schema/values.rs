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
pub(super) fn bound(schema: &Map<String, Value>, plain: &str, exclusive: &str) -> Option<(f64, bool)> {
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

/// Formats that are enforced. Others are annotations, as the standard has it.
pub(super) const FORMATS: [&str; 11] = [
    "date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri", "unknown",
];

/// Whether a text has a format; true for one that is not enforced.
pub(super) fn has_format(text: &str, format: &str) -> bool {
    match format {
        "date" => is_date(text),
        "time" => is_time(text),
        "date-time" => text
            .split_once(['T', 't'])
            .is_some_and(|(d, t)| is_date(d) && is_time(t)),
        "ipv4" => text.parse::<std::net::Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<std::net::Ipv6Addr>().is_ok(),
        "uuid" => {
            let lengths = text.split('-').map(str::len);
            lengths.eq([8, 4, 4, 4, 12]) && text.chars().all(|c| c == '-' || c.is_ascii_hexdigit())
        }
        "email" => text.rsplit_once('@').is_some_and(|(n, d)| !n.is_empty() && !d.is_empty()),
        "uri" => text.split_once(':').is_some_and(|(s, _)| {
            s.starts_with(|c: char| c.is_ascii_alphabetic()) && s.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
        }),
        "hostname" => text.split('.').all(|p| {
            !p.is_empty() && p.len() < 64 && !p.starts_with('-') && !p.ends_with('-')
                && p.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
        }),
        "duration" => text.starts_with('P') && text.len() > 2 && text.ends_with(|c: char| "YMDWHS".contains(c)),
        _ => true,
    }
}

fn digits(text: &str, lengths: &[usize], between: char) -> Option<Vec<u32>> {
    let parts: Vec<&str> = text.split(between).collect();
    let shaped = parts.iter().map(|p| p.len()).eq(lengths.iter().copied());
    let numbers = parts.iter().filter(|p| p.bytes().all(|b| b.is_ascii_digit()));
    let numbers: Vec<u32> = numbers.filter_map(|p| p.parse().ok()).collect();
    (shaped && numbers.len() == lengths.len()).then_some(numbers)
}

fn is_date(text: &str) -> bool {
    let Some([_, month, day]) = digits(text, &[4, 2, 2], '-').and_then(|d| <[u32; 3]>::try_from(d).ok()) else {
        return false;
    };
    let days = match month {
        2 => 29,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => 0,
    };
    (1..=days).contains(&day)
}

fn is_time(text: &str) -> bool {
    let zone = text.find(['Z', 'z', '+', '-']).unwrap_or(text.len());
    let (clock, zone) = text.split_at_checked(zone).unwrap_or((text, ""));
    let (clock, fraction) = clock.split_once('.').map_or((clock, None), |(c, f)| (c, Some(f)));
    let clock = digits(clock, &[2, 2, 2], ':').is_some_and(|c| matches!(c.as_slice(), [0..=23, 0..=59, 0..=60]));
    let fraction = fraction.is_none_or(|f| !f.is_empty() && f.bytes().all(|b| b.is_ascii_digit()));
    let offset = |z: &str| digits(z, &[2, 2], ':').is_some_and(|o| matches!(o.as_slice(), [0..=23, 0..=59]));
    let zone = zone.eq_ignore_ascii_case("z") || zone.strip_prefix(['+', '-']).is_some_and(offset);
    clock && fraction && zone
}
