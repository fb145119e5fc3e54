//! Bounds of numbers with a fraction.
//!
//! llguidance takes under `"maximum": 1.25` no number of fewer decimal places than the bound where only its
//! first places are equal: `1.20` but not `1.2`. So for each number of places there is a range of its own, up to the bound rounded
//! inwards. Between an integer that is excluded and a bound less than one away it takes the integer all the same: that is checked.

use serde_json::{Map, Value, json};

use super::super::values::{bound, type_names};

/// Decimal places for which there are ranges.
const PLACES: usize = 6;

/// A bound that is allowed, one that is not, and the rounding that leads inwards.
type Bound = (&'static str, &'static str, fn(f64) -> f64);

const BOUNDS: [Bound; 2] = [
    ("minimum", "exclusiveMinimum", f64::ceil),
    ("maximum", "exclusiveMaximum", f64::floor),
];

/// The ranges of a schema that has bounds with two decimal places or more, the last the bounds themselves.
pub(super) fn ranges(schema: &Map<String, Value>) -> Option<Vec<Value>> {
    let bounds = BOUNDS.map(|(plain, exclusive, _)| bound(schema, plain, exclusive));
    let places = bounds.iter().flatten().map(|b| places(b.0)).max()?;
    if only_integers(schema) || !(2..=PLACES).contains(&places) {
        return None;
    }
    let mut ranges: Vec<Value> = (1..places).filter_map(|p| rounded(&bounds, p)).collect();
    let keywords = BOUNDS.iter().flat_map(|b| [b.0, b.1]);
    let own = keywords.filter_map(|k| Some((k.to_owned(), schema.get(k)?.clone())));
    ranges.push(Value::Object(own.collect()));
    Some(ranges)
}

/// The keyword of a bound that llguidance does not exclude though it should: an integer, with less than one to the other bound.
pub(super) fn unsound(schema: &Map<String, Value>) -> Option<&'static str> {
    let [low, high] = BOUNDS.map(|(plain, exclusive, _)| bound(schema, plain, exclusive));
    let (low, high) = (low?, high?);
    let short = high.0 - low.0 < 1.0 && !only_integers(schema);
    let excluded = |(end, open): (f64, bool)| short && open && end.fract() == 0.0;
    let keyword = |end, i: usize| excluded(end).then_some(BOUNDS[i].1);
    keyword(low, 0).or_else(|| keyword(high, 1))
}

fn only_integers(schema: &Map<String, Value>) -> bool {
    type_names(schema).is_some_and(|names| !names.contains(&"number"))
}

/// Decimal places that a number is written with; many where it is written with an exponent.
fn places(number: f64) -> usize {
    let text = number.to_string();
    text.split_once('.').map_or(0, |(_, places)| places.len())
}

/// The range of the numbers with so many places.
fn rounded(bounds: &[Option<(f64, bool)>; 2], places: usize) -> Option<Value> {
    let scale = 10f64.powi(i32::try_from(places).ok()?);
    let mut range = Map::new();
    let mut ends = [f64::NEG_INFINITY, f64::INFINITY];
    for (i, (plain, exclusive, round)) in BOUNDS.iter().enumerate() {
        let Some((end, open)) = bounds[i] else {
            continue;
        };
        let inner = round(end * scale) / scale;
        // Never wider than the bound, whatever floating point makes of it.
        let fits = if i == 0 { inner >= end } else { inner <= end };
        let keyword = if open && inner == end {
            exclusive
        } else {
            plain
        };
        fits.then(|| range.insert((*keyword).to_owned(), json!(inner)))?;
        ends[i] = inner;
    }
    (ends[0] <= ends[1]).then_some(Value::Object(range))
}
