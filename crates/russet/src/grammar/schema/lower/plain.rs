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

    /// The grammar counts members only where all that have names are required.
    pub(super) fn members_counted(
        &mut self,
        d: &mut Draught<'_>,
        key: &str,
        value: &Value,
    ) -> Result<(), GrammarError> {
        let number = count(value).ok_or_else(|| d.wrong(key, "is no count"))?;
        let required = d
            .schema
            .get("required")
            .and_then(Value::as_array)
            .map_or(0, Vec::len);
        if key == "minProperties" && number <= required as u64 {
            return Ok(());
        }
        let optional = |p: &Map<String, Value>| {
            let needed = |name: &String| {
                d.schema
                    .get("required")
                    .and_then(Value::as_array)
                    .is_some_and(|r| r.iter().any(|n| n.as_str() == Some(name)))
            };
            p.keys().any(|name| !needed(name))
        };
        let listed = d
            .schema
            .get("properties")
            .and_then(Value::as_object)
            .is_some_and(optional);
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
        let joined = JOINING.iter().any(|k| d.schema.contains_key(*k)) || !d.at.real;
        let one = number == 1 && d.schema.get("additionalProperties") == Some(&Value::Bool(false));
        let one = one && !d.schema.contains_key("patternProperties");
        if joined || listed && !one {
            self.late(&d.at, key);
            return Ok(());
        }
        keep_value(d, key, json!(number))
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
