//! A JSON document as its text: changed in places, and everywhere else byte for byte what it was.
//!
//! Reading a document and writing it anew would lose how numbers are spelled, how lines are indented and what is there twice.
//! Here only the places that change are found, in text that a parser has accepted.

use std::ops::Range;

use super::error::BundleError;

/// The text of a JSON object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Document {
    text: String,
}

/// A member of an object, or an item of a list.
struct Child {
    /// The key, where there is one.
    key: Option<String>,
    /// Where it begins, its key included.
    start: usize,
    value: Range<usize>,
}

impl Document {
    /// A document that a parser has accepted as an object.
    pub(super) fn new(text: String) -> Self {
        Self { text }
    }

    pub(super) fn into_text(self) -> String {
        self.text
    }

    /// Sets a member of the object at a path to a text.
    ///
    /// # Errors
    /// [`BundleError::Field`] where no object is at the path.
    pub(super) fn set(&mut self, path: &[&str], key: &str, text: &str) -> Result<(), BundleError> {
        let object = self.container(path, '{', "an object")?;
        let value = quoted(text);
        let members = self.children(&object);
        // Where a key is there twice, the last one counts.
        match members.iter().rev().find(|m| m.key.as_deref() == Some(key)) {
            Some(member) => self.text.replace_range(member.value.clone(), &value),
            None => self.insert(object, &format!("{}: {value}", quoted(key))),
        }
        Ok(())
    }

    /// Adds an empty object or list to the object at a path, unless something is there already.
    ///
    /// # Errors
    /// As for [`Document::set`].
    pub(super) fn ensure(
        &mut self,
        path: &[&str],
        key: &str,
        empty: &str,
    ) -> Result<(), BundleError> {
        let object = self.container(path, '{', "an object")?;
        let members = self.children(&object);
        match members.iter().rev().find(|m| m.key.as_deref() == Some(key)) {
            Some(member) if &self.text[member.value.clone()] == "null" => {
                self.text.replace_range(member.value.clone(), empty);
            }
            Some(_) => {}
            None => self.insert(object, &format!("{}: {empty}", quoted(key))),
        }
        Ok(())
    }

    /// Adds a text to the list at a path, unless it is there already.
    ///
    /// # Errors
    /// [`BundleError::Field`] where no list is at the path.
    pub(super) fn push(&mut self, path: &[&str], text: &str) -> Result<(), BundleError> {
        let list = self.container(path, '[', "a list")?;
        let text = quoted(text);
        let items = self.children(&list);
        if items.iter().all(|i| self.text[i.value.clone()] != text) {
            self.insert(list, &text);
        }
        Ok(())
    }

    /// The object or list at a path.
    fn container(
        &self,
        path: &[&str],
        opening: char,
        what: &str,
    ) -> Result<Range<usize>, BundleError> {
        let mut found = skip_space(&self.text, 0)..self.text.len();
        for key in path {
            let members = self.children(&found);
            let member = members
                .into_iter()
                .rev()
                .find(|m| m.key.as_deref() == Some(*key));
            found = member.map_or(0..0, |m| m.value);
        }
        match self.text[found.clone()].starts_with(opening) {
            true => Ok(found),
            false => Err(BundleError::Field {
                field: path.join("."),
                expected: what.into(),
            }),
        }
    }

    fn children(&self, container: &Range<usize>) -> Vec<Child> {
        let text = &self.text;
        let is_object = text[container.clone()].starts_with('{');
        let mut children = Vec::new();
        let mut at = skip_space(text, container.start + 1);
        while at < container.end && !text[at..].starts_with(['}', ']']) {
            let start = at;
            let mut key = None;
            if is_object {
                let end = value_end(text, at);
                key = serde_json::from_str(&text[at..end]).ok();
                at = skip_space(text, skip_space(text, end) + 1);
            }
            let end = value_end(text, at);
            children.push(Child {
                key,
                start,
                value: at..end,
            });
            at = skip_space(text, end);
            if text[at..].starts_with(',') {
                at = skip_space(text, at + 1);
            }
        }
        children
    }

    /// Adds a child behind those of a container, spaced as they are.
    fn insert(&mut self, container: Range<usize>, child: &str) {
        let children = self.children(&container);
        let Some(last) = children.last() else {
            return self.fill(&container, child);
        };
        let first_space = &self.text[container.start + 1..children[0].start];
        let space = match children.get(1) {
            Some(second) => {
                let between = &self.text[children[0].value.end..second.start];
                between.split_once(',').map_or("", |(_, space)| space)
            }
            None if first_space.contains('\n') => first_space,
            None => " ",
        };
        let added = format!(",{space}{child}");
        self.text.insert_str(last.value.end, &added);
    }

    /// Puts the only child into an empty container, on a line of its own where the document has lines.
    fn fill(&mut self, container: &Range<usize>, child: &str) {
        let root = skip_space(&self.text, 0);
        let step = &self.text[root + 1..skip_space(&self.text, root + 1)];
        let filled = match step.rfind('\n') {
            None => child.to_owned(),
            Some(end) => {
                let (line_end, unit) = step.split_at(end + 1);
                let line = self.text[..container.start]
                    .rfind('\n')
                    .map_or(0, |n| n + 1);
                let rest = &self.text[line..];
                let indent = &rest[..rest.len() - rest.trim_start_matches([' ', '\t']).len()];
                format!("{line_end}{indent}{unit}{child}{line_end}{indent}")
            }
        };
        let inner = container.start + 1..skip_space(&self.text, container.start + 1);
        self.text.replace_range(inner, &filled);
    }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn skip_space(text: &str, at: usize) -> usize {
    let rest = text.get(at..).unwrap_or("");
    at + (rest.len() - rest.trim_start_matches([' ', '\t', '\r', '\n']).len())
}

/// Where the value that begins at a place ends.
fn value_end(text: &str, start: usize) -> usize {
    let mut depth = 0_usize;
    let mut in_text = false;
    let mut escaped = false;
    for (i, byte) in text.bytes().enumerate().skip(start) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => {
                in_text = !in_text;
                if !in_text && depth == 0 {
                    return i + 1;
                }
            }
            _ if in_text => {}
            b'{' | b'[' => depth += 1,
            b'}' | b']' if depth == 0 => return i,
            b'}' | b']' => {
                depth -= 1;
                if depth == 0 {
                    return i + 1;
                }
            }
            b',' | b' ' | b'\t' | b'\r' | b'\n' if depth == 0 => return i,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    /// What a document is after a change of `assets` and of `compilation.targets`.
    fn changed(text: &str) -> String {
        let mut document = Document::new(text.into());
        document.ensure(&[], "assets", "{}").unwrap();
        document.set(&["assets"], "main", "new \"x\"").unwrap();
        document.ensure(&[], "compilation", "{}").unwrap();
        document.ensure(&["compilation"], "targets", "[]").unwrap();
        document.push(&["compilation", "targets"], "t").unwrap();
        document.into_text()
    }

    #[test]
    fn only_the_places_that_change_change() {
        let cases = [
            (
                "{\"assets\":{\"main\" : \"old\"},\"n\":1.50e+01,\"compilation\":{\"targets\":[ ]}}\n",
                "{\"assets\":{\"main\" : \"new \\\"x\\\"\"},\"n\":1.50e+01,\"compilation\":{\"targets\":[\"t\"]}}\n",
            ),
            (
                "{\n  \"assets\": {\"v\": \"w\"},\n  \"compilation\": {\n    \"targets\": []\n  },\n  \"z\": 0.10\n}",
                "{\n  \"assets\": {\"v\": \"w\", \"main\": \"new \\\"x\\\"\"},\n  \"compilation\": {\n    \"targets\": [\n      \"t\"\n    ]\n  },\n  \"z\": 0.10\n}",
            ),
            (
                "{\r\n\t\"a,}\\\"\": [1 , 2],\r\n\t\"assets\": {},\r\n\t\"compilation\": null\r\n}",
                "{\r\n\t\"a,}\\\"\": [1 , 2],\r\n\t\"assets\": {\r\n\t\t\"main\": \"new \\\"x\\\"\"\r\n\t},\r\n\t\"compilation\": {\r\n\t\t\"targets\": [\r\n\t\t\t\"t\"\r\n\t\t]\r\n\t}\r\n}",
            ),
            (
                "{\"compilation\": {\"targets\": [\"a\",  \"b\"]}}",
                "{\"compilation\": {\"targets\": [\"a\",  \"b\",  \"t\"]}, \"assets\": {\"main\": \"new \\\"x\\\"\"}}",
            ),
            (
                "{\"assets\": {\"main\": 1, \"main\": 2}, \"compilation\": {\"targets\": [\"t\"]}}",
                "{\"assets\": {\"main\": 1, \"main\": \"new \\\"x\\\"\"}, \"compilation\": {\"targets\": [\"t\"]}}",
            ),
        ];
        for (before, after) in cases {
            assert_eq!(changed(before), after);
        }
    }

    #[test]
    fn what_is_no_object_or_list_is_told() {
        let mut document = Document::new("{\"a\": [1], \"b\": 2}".into());
        for path in [&["a"][..], &["b"], &["c"], &["b", "c"]] {
            assert!(document.set(path, "k", "v").is_err(), "{path:?}");
        }
        assert!(document.push(&["b"], "v").is_err());
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<i32>().prop_map(|n| Value::from(f64::from(n) / 8.0)),
            "[ -~\"\\\\{}\\[\\]:,äß]{0,12}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 24, 5, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                proptest::collection::btree_map("[a-z\"\\\\{}, ]{0,6}", inner, 0..5)
                    .prop_map(|m| Value::Object(m.into_iter().collect())),
            ]
        })
    }

    proptest! {
        /// The text changes as the value would, whatever else the document holds and however it is laid out.
        #[test]
        fn text_changes_as_the_value_does(
            rest in proptest::collection::btree_map("[b-y\"\\\\,{]{1,8}", any_json(), 0..5),
            pretty in any::<bool>(),
        ) {
            let mut value = json!({"assets": {"main": "old"}});
            let object = value.as_object_mut().unwrap();
            object.extend(rest.into_iter().filter(|(k, _)| k != "compilation"));
            let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) }.unwrap();
            value["assets"]["main"] = "new \"x\"".into();
            value["compilation"] = json!({"targets": ["t"]});
            let after = changed(&text);
            prop_assert_eq!(serde_json::from_str::<Value>(&after).unwrap(), value.clone());
            if pretty {
                prop_assert_eq!(after, serde_json::to_string_pretty(&value).unwrap());
            }
        }
    }
}
