//! The keywords that speak of one value: types, bounds, strings, listed members.

use serde_json::{Map, Value, json};

use super::{
    Draught, Format, GrammarError, Lower, TYPES, count, counted, format, keep_value, pattern,
    type_names,
};

impl Lower<'_> {
    pub(super) fn types(
        &mut self,
        d: &mut Draught<'_>,
        key: &str,
        value: &Value,
    ) -> Result<(), GrammarError> {
        let names =
            type_names(d.schema).ok_or_else(|| d.wrong(key, "is neither a name nor names"))?;
        if let Some(name) = names
            .iter()
            .find(|n| !TYPES.contains(n) && **n != "integer")
        {
            return Err(d.wrong(key, &format!("{name:?} is no type")));
        }
        keep_value(d, key, value.clone())
    }

    pub(super) fn multiple(
        &mut self,
        d: &mut Draught<'_>,
        key: &str,
        value: &Value,
    ) -> Result<(), GrammarError> {
        let of = value.as_f64().filter(|f| *f > 0.0);
        let of = of.ok_or_else(|| d.wrong(key, "is no positive number"))?;
        // The grammar counts in 32 bits and in decimal places.
        let places = (0..9).find(|p| (of * 10f64.powi(*p)).fract() == 0.0);
        if places.is_some_and(|p| of * 10f64.powi(p) < 1e6) {
            return keep_value(d, key, value.clone());
        }
        self.late(&d.at, key);
        Ok(())
    }

    /// The grammar counts members only where all that have names are required; of a few others it is told which there are.
    pub(super) fn members_counted(
        &mut self,
        d: &mut Draught<'_>,
        key: &str,
        value: &Value,
    ) -> Result<(), GrammarError> {
        let number = count(value).ok_or_else(|| d.wrong(key, "is no count"))?;
        let required = required(d.schema);
        if key == "minProperties" && number <= required.len() as u64 {
            return Ok(());
        }
        let optional: Vec<&String> = listed(d.schema)
            .filter(|name| !required.contains(&name.as_str()))
            .collect();
        let closed = is_closed(d.schema) && required.iter().all(|r| is_listed(d.schema, r));
        let joined = JOINING.iter().any(|k| d.schema.contains_key(*k)) || !d.at.real;
        if !joined && (optional.is_empty() || number == 1 && closed) {
            return keep_value(d, key, json!(number));
        }
        self.late(&d.at, key);
        let free = number.saturating_sub(required.len() as u64);
        let free = usize::try_from(free).unwrap_or(usize::MAX);
        if closed && free < optional.len() {
            let sets = subsets(&optional, free);
            let option = |set: &Vec<&String>| match key {
                "minProperties" => json!({"required": set}),
                _ => without(optional.iter().filter(|name| !set.contains(name))),
            };
            let options: Vec<Value> = sets.iter().flatten().map(option).collect();
            if !options.is_empty() {
                self.choose(d, key, &options);
            }
        }
        Ok(())
    }

    pub(super) fn pattern(
        &mut self,
        d: &mut Draught<'_>,
        key: &str,
        value: &Value,
    ) -> Result<(), GrammarError> {
        let text = value.as_str().ok_or_else(|| d.wrong(key, "is no text"))?;
        if pattern::in_grammar(text) && self.relaxed.strings < 2 {
            return keep_value(d, key, value.clone());
        }
        if !self.patterns.knows(text) {
            return Err(d.wrong(key, &format!("{text:?} is no regular expression")));
        }
        self.late(&d.at, key);
        Ok(())
    }

    pub(super) fn format(
        &mut self,
        d: &mut Draught<'_>,
        key: &str,
        value: &Value,
    ) -> Result<(), GrammarError> {
        let name = value.as_str().ok_or_else(|| d.wrong(key, "is no text"))?;
        match format(name) {
            None => return Ok(()),
            _ if self.relaxed.strings > 0 && d.schema.contains_key("pattern") => {
                self.late(&d.at, key);
            }
            Some(Format::Known) => return keep_value(d, key, value.clone()),
            Some(Format::Pattern(pattern)) => d.all.push(json!({"pattern": pattern})),
            Some(Format::Late) => self.late(&d.at, key),
        }
        Ok(())
    }

    /// The length of a string, by the grammar unless it has given that up beside a pattern.
    pub(super) fn length(
        &mut self,
        d: &mut Draught<'_>,
        key: &str,
        value: &Value,
    ) -> Result<(), GrammarError> {
        if self.relaxed.strings > 0 && d.schema.contains_key("pattern") {
            count(value).ok_or_else(|| d.wrong(key, "is no count"))?;
            self.late(&d.at, key);
            return Ok(());
        }
        counted(self, d, key, value)
    }

    pub(super) fn one(
        &mut self,
        d: &mut Draught<'_>,
        key: &str,
        value: &Value,
    ) -> Result<(), GrammarError> {
        let inner = self.inner(d, &[key], value, false)?;
        keep_value(d, key, inner)
    }

    pub(super) fn properties(
        &mut self,
        d: &mut Draught<'_>,
        key: &str,
        value: &Value,
    ) -> Result<(), GrammarError> {
        let members = value
            .as_object()
            .ok_or_else(|| d.wrong(key, "is no object"))?;
        let mut out = Map::new();
        for (name, schema) in members {
            out.insert(name.clone(), self.inner(d, &[key, name], schema, false)?);
        }
        keep_value(d, key, Value::Object(out))
    }

    pub(super) fn pattern_properties(
        &mut self,
        d: &mut Draught<'_>,
        key: &str,
        value: &Value,
    ) -> Result<(), GrammarError> {
        let members = value
            .as_object()
            .ok_or_else(|| d.wrong(key, "is no object"))?;
        let mut out = Map::new();
        for (name, schema) in members {
            if !pattern::in_grammar(name) && !self.patterns.knows(name) {
                return Err(d.wrong(key, &format!("{name:?} is no regular expression")));
            }
            out.insert(name.clone(), self.inner(d, &[key, name], schema, false)?);
        }
        let names: Vec<&String> = out.keys().collect();
        let apart =
            |(i, a): (usize, &&String)| names.iter().skip(i + 1).all(|b| pattern::disjoint(a, b));
        let exact = !self.relaxed.patterns && names.iter().all(|n| pattern::in_grammar(n));
        if exact && names.iter().enumerate().all(apart) {
            return keep_value(d, key, Value::Object(out));
        }
        // A member whose name has several of the patterns: any of their schemas, and the check.
        self.late(&d.at, key);
        let mut any: Vec<Value> = out.into_iter().map(|p| p.1).collect();
        match d.schema.get("additionalProperties") {
            Some(rest) => any.push(self.inner(d, &["additionalProperties"], rest, false)?),
            None => any.push(json!(true)),
        }
        d.all.push(json!({"type": TYPES, "additionalProperties": {"anyOf": any}, "properties": self.listed(d)}));
        d.out.remove("additionalProperties");
        Ok(())
    }

    /// The names of listed members, free of any schema.
    pub(super) fn listed(&self, d: &Draught<'_>) -> Value {
        let members = d.schema.get("properties").and_then(Value::as_object);
        members
            .into_iter()
            .flatten()
            .map(|(k, _)| (k.clone(), json!(true)))
            .collect()
    }
}

/// Keywords that may say more of the members of an object than stands beside them.
const JOINING: [&str; 8] = [
    "allOf",
    "anyOf",
    "oneOf",
    "$ref",
    "not",
    "if",
    "dependencies",
    "dependentRequired",
];

/// Sets of members that one is chosen of at most.
const SETS: usize = 24;

fn required(schema: &Map<String, Value>) -> Vec<&str> {
    let names = schema.get("required").and_then(Value::as_array);
    let mut names: Vec<&str> = names
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

fn listed(schema: &Map<String, Value>) -> impl Iterator<Item = &String> {
    let members = schema.get("properties").and_then(Value::as_object);
    members.into_iter().flat_map(|m| m.keys())
}

fn is_listed(schema: &Map<String, Value>, name: &str) -> bool {
    listed(schema).any(|n| n == name)
}

/// Whether there are only members that are listed.
fn is_closed(schema: &Map<String, Value>) -> bool {
    schema.get("additionalProperties") == Some(&Value::Bool(false))
        && !schema.contains_key("patternProperties")
}

/// An object without some members.
fn without<'n>(names: impl Iterator<Item = &'n &'n String>) -> Value {
    let none: Map<String, Value> = names.map(|n| ((*n).clone(), json!(false))).collect();
    json!({"properties": none})
}

/// The sets of so many of some names; nothing where there are too many.
fn subsets<'n>(names: &[&'n String], size: usize) -> Option<Vec<Vec<&'n String>>> {
    let mut sets: Vec<Vec<&String>> = vec![Vec::new()];
    for (i, name) in names.iter().enumerate() {
        let left = names.len() - i - 1;
        let with = |set: &Vec<&'n String>| [&set[..], &[*name]].concat();
        let more: Vec<_> = sets.iter().filter(|s| s.len() < size).map(with).collect();
        sets.retain(|s| s.len() + left >= size);
        sets.extend(more);
        if sets.len() > 4 * SETS {
            return None;
        }
    }
    (sets.len() <= SETS).then_some(sets)
}
