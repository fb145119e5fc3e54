//! The keywords that join schemas: choices, conditions, dependencies, and what speaks of names and of the rest.

use serde_json::{Map, Value, json};

use super::{Disjoint, Draught, GrammarError, Lower, Validator, opposite, pattern};

/// Elements of an array of which one is chosen to be what it must contain.
const PLACES: u64 = 16;

impl<'a> Lower<'a> {
    pub(super) fn all_of(
        &mut self,
        d: &mut Draught<'_>,
        key: &str,
        value: &Value,
    ) -> Result<(), GrammarError> {
        let out = self.each(d, key, value, false)?;
        d.out.insert(key.to_owned(), Value::Array(out));
        Ok(())
    }

    pub(super) fn any_of(
        &mut self,
        d: &mut Draught<'_>,
        key: &str,
        value: &Value,
    ) -> Result<(), GrammarError> {
        let out = self.each(d, key, value, true)?;
        d.out.insert(key.to_owned(), Value::Array(out));
        Ok(())
    }

    fn each(
        &mut self,
        d: &Draught<'_>,
        key: &str,
        value: &Value,
        may_fail: bool,
    ) -> Result<Vec<Value>, GrammarError> {
        let schemas = value
            .as_array()
            .ok_or_else(|| d.wrong(key, "is no array of schemas"))?;
        let schemas = schemas.iter().enumerate();
        schemas
            .map(|(i, s)| self.inner(d, &[key, &i.to_string()], s, may_fail))
            .collect()
    }

    /// Exactly one: any, where no two have a value in common.
    pub(super) fn one_of(
        &mut self,
        d: &mut Draught<'_>,
        key: &str,
        value: &Value,
    ) -> Result<(), GrammarError> {
        let out = self.each(d, key, value, true)?;
        let options = value.as_array().map_or(&[][..], Vec::as_slice);
        if !self.disjoint(d, options) {
            self.late(&d.at, key);
        }
        if d.out.contains_key("anyOf") {
            d.all.push(json!({"anyOf": out}));
        } else {
            d.out.insert("anyOf".to_owned(), Value::Array(out));
        }
        Ok(())
    }

    fn disjoint(&self, d: &Draught<'_>, options: &[Value]) -> bool {
        let validator = Validator {
            document: self.document,
            patterns: self.patterns,
        };
        let disjoint = Disjoint {
            document: self.document,
            validator: &validator,
            fuel: &self.fuel,
        };
        let place = |s| (s, d.at.pointer.clone());
        options.iter().enumerate().all(|(i, a)| {
            options
                .iter()
                .skip(i + 1)
                .all(|b| disjoint.are(&place(a), &place(b)))
        })
    }

    pub(super) fn not(
        &mut self,
        d: &mut Draught<'_>,
        key: &str,
        value: &Value,
    ) -> Result<(), GrammarError> {
        match opposite(self.document, value, &d.at.pointer) {
            Some(schema) if d.choices < super::CHOICES => {
                d.choices += 1;
                let schema = self.made_up(d, &schema)?;
                d.all.push(schema);
            }
            _ => self.late(&d.at, key),
        }
        Ok(())
    }

    /// `if` and `then`, or the opposite of `if` and `else`.
    pub(super) fn condition(
        &mut self,
        d: &mut Draught<'_>,
        key: &str,
        value: &Value,
    ) -> Result<(), GrammarError> {
        let branch = |name: &str| d.schema.get(name).cloned().unwrap_or(json!(true));
        let (then, other) = (branch("then"), branch("else"));
        if then == json!(true) && other == json!(true) {
            return Ok(());
        }
        let held = json!({"allOf": [
            self.inner(d, &[key], value, true)?,
            self.inner(d, &["then"], &then, true)?,
        ]});
        let other = self.inner(d, &["else"], &other, true)?;
        let failed = match opposite(self.document, value, &d.at.pointer) {
            Some(opposite) => json!({"allOf": [self.made_up(d, &opposite)?, other]}),
            None => {
                self.late(&d.at, key);
                other
            }
        };
        self.choose(d, key, &[held, failed]);
        Ok(())
    }

    /// A member that asks for others or for a schema: it is not there, or what it asks for holds.
    pub(super) fn dependencies(
        &mut self,
        d: &mut Draught<'_>,
        key: &str,
        value: &Value,
    ) -> Result<(), GrammarError> {
        let all = value
            .as_object()
            .ok_or_else(|| d.wrong(key, "is no object"))?;
        for (name, needs) in all {
            let needs = match needs {
                Value::Array(_) => json!({"required": needs}),
                Value::String(one) => json!({"required": [one]}),
                schema => self.inner(d, &[key, name], schema, true)?,
            };
            let absent = json!({"properties": {name: false}});
            let there = json!({"allOf": [{"required": [name]}, needs]});
            self.choose(d, key, &[absent, there]);
        }
        Ok(())
    }

    /// Names of members, for the shapes that become patterns or lists of names.
    pub(super) fn names(
        &mut self,
        d: &mut Draught<'_>,
        key: &str,
        value: &Value,
    ) -> Result<(), GrammarError> {
        self.inner(d, &[key], value, true)?;
        let Value::Object(names) = value else {
            if value == &Value::Bool(false) {
                d.all.push(json!({"additionalProperties": false}));
                return Ok(());
            }
            return Ok(());
        };
        let asserts: Vec<&String> = names
            .keys()
            .filter(|k| super::is_keyword(k) && *k != "type")
            .collect();
        let texts = super::type_names(names).is_none_or(|t| t.contains(&"string"));
        if asserts.is_empty() && texts {
            return Ok(());
        }
        let pattern = names.get("pattern").and_then(Value::as_str);
        let pattern = pattern.filter(|p| asserts.len() == 1 && texts && pattern::in_grammar(p));
        let listed = super::super::values::constants(names).filter(|_| asserts.len() == 1 && texts);
        let listed = listed.map(|all| {
            all.iter()
                .filter_map(|v| v.as_str().map(pattern::escaped))
                .collect::<Vec<_>>()
                .join("|")
        });
        let pattern = pattern
            .map(str::to_owned)
            .or(listed.map(|l| format!("^(?:{l})$")));
        let plain = !d.schema.contains_key("patternProperties");
        match pattern {
            Some(pattern) if plain && d.at.real => self.only_names(d, &pattern),
            _ => {
                self.late(&d.at, key);
                Ok(())
            }
        }
    }

    /// Members whose names have a pattern and no others.
    fn only_names(&mut self, d: &mut Draught<'_>, pattern: &str) -> Result<(), GrammarError> {
        let members = d.schema.get("properties").and_then(Value::as_object);
        let fits = |name: &String| json!(self.patterns.matches(pattern, name));
        let listed: Map<String, Value> = members
            .into_iter()
            .flatten()
            .map(|(k, _)| (k.clone(), fits(k)))
            .collect();
        d.all.push(json!({
            "properties": listed,
            "patternProperties": {pattern: true},
            "additionalProperties": false,
        }));
        Ok(())
    }

    pub(super) fn prefix_items(
        &mut self,
        d: &mut Draught<'_>,
        key: &str,
        value: &Value,
    ) -> Result<(), GrammarError> {
        if d.schema.get("items").is_some_and(Value::is_array) {
            return Ok(());
        }
        let out = self.each(d, key, value, false)?;
        d.out.insert("prefixItems".to_owned(), Value::Array(out));
        Ok(())
    }

    /// `items` of one schema; of an array, with `additionalItems`, as `prefixItems` and `items` are now.
    pub(super) fn items(
        &mut self,
        d: &mut Draught<'_>,
        key: &str,
        value: &Value,
    ) -> Result<(), GrammarError> {
        if !value.is_array() {
            return self.one(d, key, value);
        }
        let out = self.each(d, key, value, false)?;
        d.out.insert("prefixItems".to_owned(), Value::Array(out));
        if let Some(rest) = d.schema.get("additionalItems") {
            let rest = self.inner(d, &["additionalItems"], rest, false)?;
            d.out.insert("items".to_owned(), rest);
        }
        Ok(())
    }

    pub(super) fn unique(
        &mut self,
        d: &mut Draught<'_>,
        key: &str,
        value: &Value,
    ) -> Result<(), GrammarError> {
        let few = d
            .schema
            .get("maxItems")
            .and_then(super::count)
            .is_some_and(|n| n <= 1);
        if value == &Value::Bool(true) && !few {
            self.late(&d.at, key);
        }
        Ok(())
    }

    pub(super) fn contains(
        &mut self,
        d: &mut Draught<'_>,
        key: &str,
        value: &Value,
    ) -> Result<(), GrammarError> {
        self.inner(d, &[key], value, true)?;
        self.late(&d.at, key);
        let least = d
            .schema
            .get("minContains")
            .and_then(super::count)
            .unwrap_or(1);
        let given = d.schema.get("minItems").and_then(super::count).unwrap_or(0);
        if least > given {
            d.all.push(json!({"minItems": least}));
        }
        // In a short array one place must be kept for it: a choice of the place.
        let most = d.schema.get("maxItems").and_then(super::count);
        let most = most.filter(|n| least == 1 && (1..=PLACES).contains(n));
        if let (Some(most), false) = (most, d.schema.contains_key("maxContains")) {
            let wanted = self.made_up(d, value)?;
            let place = |at: u64| {
                let before = (0..at).map(|_| Value::Bool(true));
                let items: Vec<Value> = before.chain([wanted.clone()]).collect();
                json!({"prefixItems": items, "minItems": at + 1})
            };
            let places: Vec<Value> = (0..most).map(place).collect();
            self.choose(d, key, &places);
        }
        Ok(())
    }

    /// What no other keyword has judged. Where none joins other schemas, that is what `additionalProperties` and `items` say.
    pub(super) fn unevaluated(
        &mut self,
        d: &mut Draught<'_>,
        key: &str,
        value: &Value,
    ) -> Result<(), GrammarError> {
        if value == &Value::Bool(true) {
            return Ok(());
        }
        self.inner(d, &[key], value, true)?;
        const JOINING: [&str; 11] = [
            "allOf",
            "anyOf",
            "oneOf",
            "$ref",
            "$dynamicRef",
            "$recursiveRef",
            "not",
            "if",
            "dependentSchemas",
            "dependencies",
            "contains",
        ];
        let joined = JOINING.iter().any(|k| d.schema.contains_key(*k)) || !d.at.real;
        let listed = d.schema.get("items").is_some_and(Value::is_array);
        let (plain, word) = match (key, listed) {
            ("unevaluatedItems", true) => ("additionalItems", "items"),
            ("unevaluatedItems", false) => ("items", "items"),
            _ => ("additionalProperties", "additionalProperties"),
        };
        if d.schema.contains_key(plain) {
            return Ok(());
        }
        if joined {
            self.late(&d.at, key);
            return Ok(());
        }
        let inner = self.inner(d, &[key], value, false)?;
        d.out.insert(word.to_owned(), inner);
        Ok(())
    }
}
