//! What a grammar leaves to be checked: which late schemas apply to a value, from its path, and whether it is valid under them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use serde_json::{Map, Value};

use super::document::{Document, Draft, child};
use super::lower::Notes;
use super::pattern::Patterns;
use super::validate::{Validator, item_schema, member_schemas};
use super::values::{constants, count, equal};

/// Schemas followed from one to the next at most.
const STEPS: usize = 256;

/// The checks of one schema.
#[derive(Debug)]
pub(in crate::grammar) struct Checks {
    document: Document,
    patterns: Patterns,
    /// Places of late schemas, each with a keyword.
    late: BTreeMap<String, String>,
    /// Places of schemas that must be asked about a whole value: late ones, and those with a late one that need not hold.
    asked: HashSet<String>,
    /// Places of schemas that have such a schema in them.
    above: HashSet<String>,
}

/// The schemas that hold for a value and have something to check at or below it.
#[derive(Clone, Debug, Default)]
pub(in crate::grammar) struct Set(Arc<[String]>);

impl Set {
    pub(in crate::grammar) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// An array or object that is being written.
pub(in crate::grammar) enum Unfinished<'a> {
    /// A name of a member has been written; so many members came before.
    Name(&'a str, usize),
    /// An element has been written, after these and itself.
    Element(&'a [Value]),
    /// An element begins so, after these; nothing of it is written where a comma was.
    Begun(&'a [Value], &'a str),
}

impl Checks {
    pub(super) fn new(document: Document, notes: Notes) -> Self {
        let mut outer: HashMap<&str, Vec<&str>> = HashMap::new();
        for (from, to, _) in &notes.edges {
            outer.entry(to).or_default().push(from);
        }
        let mut above: HashSet<String> = HashSet::new();
        let mut todo: Vec<&str> = notes.late.keys().map(String::as_str).collect();
        while let Some(place) = todo.pop() {
            if above.insert(place.to_owned()) {
                todo.extend(outer.get(place).into_iter().flatten());
            }
        }
        let open = notes
            .edges
            .iter()
            .filter(|(_, to, may_fail)| *may_fail && above.contains(to));
        let asked = open
            .map(|e| e.0.clone())
            .chain(notes.late.keys().cloned())
            .collect();
        Self {
            document,
            patterns: Patterns::default(),
            late: notes.late,
            asked,
            above,
        }
    }

    /// Places of schemas with keywords that are checked late.
    pub(in crate::grammar) fn pointers(&self) -> Vec<String> {
        self.late.keys().cloned().collect()
    }

    /// Such a keyword of a place.
    pub(in crate::grammar) fn keyword(&self, pointer: &str) -> String {
        self.late.get(pointer).cloned().unwrap_or_default()
    }

    /// The schemas of the whole text.
    pub(in crate::grammar) fn root(&self) -> Set {
        self.closure(vec![String::new()])
    }

    /// The schemas of a member.
    pub(in crate::grammar) fn member(&self, of: &Set, name: &str) -> Set {
        self.inner(of, |schema, place| {
            let found = member_schemas(&self.patterns, schema, place, name);
            found.into_iter().map(|f| f.0).collect()
        })
    }

    /// The schemas of an element.
    pub(in crate::grammar) fn element(&self, of: &Set, i: usize) -> Set {
        self.inner(of, |schema, place| {
            item_schema(schema, place, i)
                .into_iter()
                .map(|f| f.0)
                .collect()
        })
    }

    fn inner(&self, of: &Set, schemas: impl Fn(&Map<String, Value>, &str) -> Vec<String>) -> Set {
        if of.is_empty() {
            return Set::default();
        }
        let found = of.0.iter().filter_map(|place| {
            let schema = self.document.at(place)?.as_object()?;
            Some(schemas(schema, place))
        });
        self.closure(found.flatten().collect())
    }

    /// These schemas and what holds with them: what they refer to, and the members of `allOf`.
    fn closure(&self, start: Vec<String>) -> Set {
        let mut found: Vec<String> = Vec::new();
        let mut todo = start;
        while let Some(place) = todo.pop() {
            if !self.above.contains(&place) || found.contains(&place) || found.len() >= STEPS {
                continue;
            }
            if let Some(Value::Object(schema)) = self.document.at(&place) {
                todo.extend(self.with(schema, &place));
            }
            found.push(place);
        }
        Set(found.into())
    }

    fn with(&self, schema: &Map<String, Value>, place: &str) -> Vec<String> {
        let reference = ["$ref", "$dynamicRef", "$recursiveRef"]
            .iter()
            .find_map(|k| schema.get(*k)?.as_str());
        let mut found: Vec<String> = reference
            .and_then(|r| self.document.resolve(r, place))
            .into_iter()
            .collect();
        if reference.is_none() || self.document.draft > Draft::D7 {
            let all = schema
                .get("allOf")
                .and_then(Value::as_array)
                .map_or(0, Vec::len);
            found.extend((0..all).map(|i| child(&child(place, "allOf"), &i.to_string())));
        }
        found
    }

    fn validator(&self) -> Validator<'_> {
        Validator {
            document: &self.document,
            patterns: &self.patterns,
        }
    }

    /// Whether anything in a set asks about whole values.
    pub(in crate::grammar) fn asks(&self, of: &Set) -> bool {
        of.0.iter().any(|place| self.asked.contains(place))
    }

    /// Whether a whole value is valid under the schemas that ask.
    pub(in crate::grammar) fn whole(&self, of: &Set, value: &Value) -> bool {
        let validator = self.validator();
        let mut asking = of.0.iter().filter(|place| self.asked.contains(*place));
        asking.all(|place| validator.accepts_at(place, value))
    }

    /// Whether an unfinished value can still become valid, as far as the schemas that ask see it coming.
    pub(in crate::grammar) fn may_become(&self, of: &Set, value: &Unfinished<'_>) -> bool {
        let asking = of.0.iter().filter(|place| self.asked.contains(*place));
        let mut schemas = asking.filter_map(|p| Some((p, self.document.at(p)?.as_object()?)));
        schemas.all(|(place, schema)| match value {
            Unfinished::Name(name, before) => {
                let most = schema
                    .get("maxProperties")
                    .and_then(count)
                    .unwrap_or(u64::MAX);
                (*before as u64) < most && self.name_fits(schema, place, name)
            }
            Unfinished::Element(items) => !is_unique(schema) || last_is_new(items),
            Unfinished::Begun(items, text) => {
                !is_unique(schema) || self.one_left(schema, place, items, text)
            }
        })
    }

    fn name_fits(&self, schema: &Map<String, Value>, place: &str, name: &str) -> bool {
        let names = schema.get("propertyNames");
        let value = Value::String(name.to_owned());
        names.is_none_or(|s| {
            self.validator()
                .accepts(s, &child(place, "propertyNames"), &value)
        })
    }

    /// Whether a constant that the elements may be, and none is yet, is written with this beginning.
    fn one_left(
        &self,
        schema: &Map<String, Value>,
        place: &str,
        items: &[Value],
        text: &str,
    ) -> bool {
        let Some(all) = self.element_constants(schema, place, items.len()) else {
            return true;
        };
        if text.contains('\\') || text.starts_with(['{', '[']) {
            return true;
        }
        let left =
            |c: &Value| !items.iter().any(|i| equal(i, c)) && c.to_string().starts_with(text);
        all.iter().any(left)
    }

    /// The constants of an element, where only constants are allowed.
    fn element_constants(
        &self,
        schema: &Map<String, Value>,
        place: &str,
        i: usize,
    ) -> Option<Vec<Value>> {
        let (mut place, _) = item_schema(schema, place, i)?;
        for _ in 0..8 {
            let schema = self.document.at(&place)?.as_object()?;
            if let Some(all) = constants(schema) {
                return Some(all.into_iter().cloned().collect());
            }
            place = self
                .document
                .resolve(schema.get("$ref")?.as_str()?, &place)?;
        }
        None
    }

    /// Whether the elements of an array must differ and are constants: then each byte of one is worth a look.
    pub(in crate::grammar) fn counts_constants(&self, of: &Set, i: usize) -> bool {
        of.0.iter().any(|place| {
            let schema = self.document.at(place).and_then(Value::as_object);
            schema.is_some_and(|s| is_unique(s) && self.element_constants(s, place, i).is_some())
        })
    }
}

fn is_unique(schema: &Map<String, Value>) -> bool {
    schema.get("uniqueItems") == Some(&Value::Bool(true))
}

fn last_is_new(items: &[Value]) -> bool {
    items
        .split_last()
        .is_none_or(|(last, rest)| !rest.iter().any(|i| equal(i, last)))
}
