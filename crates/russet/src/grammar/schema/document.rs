//! A JSON Schema as a document: its draft, its identifiers, and what a reference points to. Nothing is fetched.

use std::collections::HashMap;

use serde_json::Value;

/// Versions of JSON Schema, the older the smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Draft {
    D4,
    D6,
    D7,
    D2019,
    D2020,
}

/// `$schema` by what it contains.
const DRAFTS: [(&str, Draft); 5] = [
    ("draft-04", Draft::D4),
    ("draft-06", Draft::D6),
    ("draft-07", Draft::D7),
    ("2019-09", Draft::D2019),
    ("2020-12", Draft::D2020),
];

/// Keywords whose values hold data and no schemas.
const DATA: [&str; 5] = ["enum", "const", "default", "examples", "example"];

/// A schema with the places of its identifiers. Schemas in it are named by JSON pointers.
#[derive(Debug)]
pub(super) struct Document {
    pub(super) root: Value,
    pub(super) draft: Draft,
    /// Places by absolute identifier, with the anchor behind `#` where it has one.
    ids: HashMap<String, String>,
    /// Names of dynamic anchors, as often as they are there; that of a recursive one is empty.
    dynamic: Vec<String>,
    /// Base identifiers by the place where they begin.
    bases: HashMap<String, String>,
}

impl Document {
    pub(super) fn new(root: Value) -> Self {
        let named = root.get("$schema").and_then(Value::as_str).unwrap_or("");
        let draft = DRAFTS.iter().find(|d| named.contains(d.0));
        let mut document = Self {
            draft: draft.map_or(Draft::D2020, |d| d.1),
            root: Value::Null,
            ids: HashMap::new(),
            dynamic: Vec::new(),
            bases: HashMap::new(),
        };
        document.bases.insert(String::new(), String::new());
        document.ids.insert(String::new(), String::new());
        document.index(&root);
        document.root = root;
        document
    }

    /// The schema at a pointer.
    pub(super) fn at(&self, pointer: &str) -> Option<&Value> {
        self.root.pointer(pointer)
    }

    /// Finds identifiers and anchors, without recursion.
    fn index(&mut self, root: &Value) {
        let mut todo = vec![(root, String::new(), String::new())];
        while let Some((value, pointer, base)) = todo.pop() {
            let base = self.identify(value, &pointer, base);
            let below: Vec<(String, &Value)> = match value {
                Value::Object(map) => map
                    .iter()
                    .filter(|(k, _)| !DATA.contains(&k.as_str()))
                    .map(|(k, v)| (k.clone(), v))
                    .collect(),
                Value::Array(items) => (0..).map(|i: usize| i.to_string()).zip(items).collect(),
                _ => continue,
            };
            let nested = below
                .into_iter()
                .filter(|(_, v)| v.is_object() || v.is_array());
            todo.extend(nested.map(|(k, v)| (v, child(&pointer, &k), base.clone())));
        }
    }

    /// Notes what one object is called, and gives the base for what is in it.
    fn identify(&mut self, value: &Value, pointer: &str, base: String) -> String {
        // Up to draft 7 what is beside a reference does not count.
        if self.draft <= Draft::D7 && value.get("$ref").is_some_and(Value::is_string) {
            return base;
        }
        let text = |key: &str| value.get(key).and_then(Value::as_str);
        if value.get("$recursiveAnchor") == Some(&Value::Bool(true)) {
            self.dynamic.push(String::new());
        }
        self.dynamic
            .extend(text("$dynamicAnchor").map(str::to_owned));
        let mut base = base;
        if let Some(id) = text("$id").or_else(|| text("id").filter(|_| self.draft == Draft::D4)) {
            let (uri, fragment) = split(id);
            if !uri.is_empty() {
                base = join(&base, uri);
                self.bases.insert(pointer.to_owned(), base.clone());
                self.ids.entry(base.clone()).or_insert(pointer.to_owned());
            }
            if !fragment.is_empty() {
                self.ids
                    .insert(format!("{base}#{fragment}"), pointer.to_owned());
            }
        }
        for anchor in ["$anchor", "$dynamicAnchor"].iter().filter_map(|k| text(k)) {
            self.ids
                .insert(format!("{base}#{anchor}"), pointer.to_owned());
        }
        base
    }

    /// Whether what a dynamic reference points to depends on how it is reached.
    pub(super) fn is_ambiguous(&self, reference: &str) -> bool {
        let name = split(reference).1;
        self.dynamic.iter().filter(|n| *n == name).count() > 1
    }

    /// The place where the resource around a place begins, and its identifier.
    fn resource(&self, pointer: &str) -> (&str, &str) {
        let mut at = pointer;
        loop {
            if let Some((place, base)) = self.bases.get_key_value(at) {
                return (place, base);
            }
            match at.rfind('/') {
                Some(cut) => at = at.get(..cut).unwrap_or(""),
                None => return ("", ""),
            }
        }
    }

    /// Where a reference that stands at a place points to.
    pub(super) fn resolve(&self, reference: &str, pointer: &str) -> Option<String> {
        let (uri, fragment) = split(reference);
        let (place, base) = self.resource(pointer);
        let (place, base) = if uri.is_empty() {
            (place.to_owned(), base.to_owned())
        } else {
            let whole = join(base, uri);
            (self.ids.get(&whole)?.clone(), whole)
        };
        let fragment = percent_decoded(fragment);
        let found = if fragment.is_empty() {
            place
        } else if fragment.starts_with('/') {
            place + &fragment
        } else {
            self.ids.get(&format!("{base}#{fragment}"))?.clone()
        };
        self.at(&found)
            .is_some_and(|v| v.is_object() || v.is_boolean())
            .then_some(found)
    }
}

/// The pointer of a member or an element.
pub(super) fn child(pointer: &str, key: &str) -> String {
    format!("{pointer}/{}", key.replace('~', "~0").replace('/', "~1"))
}

/// A reference before and after its `#`.
fn split(reference: &str) -> (&str, &str) {
    reference.split_once('#').unwrap_or((reference, ""))
}

/// A reference against a base (RFC 3986 §5.2, as far as identifiers of schemas go).
fn join(base: &str, reference: &str) -> String {
    let scheme = reference.split_once(':').map(|s| s.0);
    let absolute = |s: &str| {
        !s.is_empty()
            && s.chars()
                .all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
    };
    if scheme.is_some_and(absolute) || base.is_empty() {
        return reference.to_owned();
    }
    let host_end = base.find("://").map_or(0, |at| {
        let host = at + 3;
        base.get(host..)
            .and_then(|r| r.find('/'))
            .map_or(base.len(), |p| host + p)
    });
    let cut = if reference.starts_with('/') {
        host_end
    } else {
        base.rfind('/').map_or(0, |at| at + 1).max(host_end)
    };
    let slash = if cut == base.len() && host_end == cut && !reference.starts_with('/') {
        "/"
    } else {
        ""
    };
    format!("{}{slash}{reference}", base.get(..cut).unwrap_or(""))
}

fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let digits = tail.get(..2).and_then(|d| std::str::from_utf8(d).ok());
        match digits.and_then(|d| u8::from_str_radix(d, 16).ok()) {
            Some(byte) if *first == b'%' => {
                bytes.push(byte);
                rest = tail.get(2..).unwrap_or(&[]);
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

impl Document {
    /// What references that stand at a place are relative to.
    pub(super) fn base(&self, pointer: &str) -> &str {
        self.resource(pointer).1
    }
}
