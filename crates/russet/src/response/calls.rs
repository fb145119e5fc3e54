//! What stands between the markers of a tool call: JSON, or one of several styles that look like XML.

use serde_json::{Map, Value};

use super::ToolCall;

/// The calls of a block; `None` where it is none. `schema` gives the parameters' JSON Schema of a tool: it decides whether
/// `5` in an XML style is a number or a text.
pub(super) fn calls<'s>(
    body: &str,
    schema: &dyn Fn(&str) -> Option<&'s Value>,
) -> Option<Vec<ToolCall>> {
    let body = body.trim();
    let styles = [json, arguments_after_name];
    let plain = styles.iter().find_map(|style| style(body));
    let found = plain.or_else(|| XML.iter().find_map(|style| style.calls(body, schema)))?;
    (!found.is_empty()).then_some(found)
}

/// One object with a name and arguments, or a list of them.
fn json(body: &str) -> Option<Vec<ToolCall>> {
    // Some models write one object after the other.
    let values = serde_json::Deserializer::from_str(body).into_iter::<Value>();
    let mut all = Vec::new();
    for value in values {
        match value.ok()? {
            Value::Array(list) => all.extend(list),
            one => all.push(one),
        }
    }
    all.into_iter().map(object).collect()
}

fn object(value: Value) -> Option<ToolCall> {
    let Value::Object(mut map) = value else {
        return None;
    };
    // Where the call is wrapped as in OpenAI's messages.
    if let Some(Value::Object(inner)) = map.remove("function") {
        map = inner;
    }
    let name = map.get("name")?.as_str()?.to_owned();
    let arguments = ["arguments", "parameters"]
        .iter()
        .find_map(|k| map.remove(*k));
    let arguments = match arguments {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(map)) => map,
        Some(Value::String(text)) if text.trim().is_empty() => Map::new(),
        Some(Value::String(text)) => serde_json::from_str(&text).ok()?,
        Some(_) => return None,
    };
    Some(ToolCall { name, arguments })
}

/// Stands between name and arguments in Mistral's later form.
const ARGUMENTS: &str = "[ARGS]";

/// Mistral's later form: `name[ARGS]{…}`, possibly several.
fn arguments_after_name(body: &str) -> Option<Vec<ToolCall>> {
    let mut calls = Vec::new();
    let mut rest = body;
    while !rest.trim().is_empty() {
        let (name, after) = rest.split_once(ARGUMENTS)?;
        let mut values =
            serde_json::Deserializer::from_str(after).into_iter::<Map<String, Value>>();
        let arguments = values.next()?.ok()?;
        rest = &after[values.byte_offset()..];
        calls.push(ToolCall {
            name: name.trim().into(),
            arguments,
        });
    }
    Some(calls)
}

/// A style in which names stand in tags and values between them.
struct Xml {
    call: (&'static str, &'static str, &'static str),
    parameter: (&'static str, &'static str, &'static str),
    /// A line break after the opening tag and one before the closing tag are no part of the value.
    lines: bool,
}

/// `<function=NAME><parameter=KEY>`, and `<atem:invoke name="NAME"><atem:parameter name="KEY">`.
const XML: [Xml; 2] = [
    Xml {
        call: ("<function=", ">", "</function>"),
        parameter: ("<parameter=", ">", "</parameter>"),
        lines: true,
    },
    Xml {
        call: ("<atem:invoke name=\"", "\">", "</atem:invoke>"),
        parameter: ("<atem:parameter name=\"", "\">", "</atem:parameter>"),
        lines: false,
    },
];

impl Xml {
    fn calls<'s>(
        &self,
        body: &str,
        schema: &dyn Fn(&str) -> Option<&'s Value>,
    ) -> Option<Vec<ToolCall>> {
        let mut rest = body;
        let mut calls = Vec::new();
        while let Some((name, inside, after)) = element(rest, self.call)? {
            calls.push(self.call(name, inside, schema(name))?);
            rest = after;
        }
        rest.trim().is_empty().then_some(calls)
    }

    fn call(&self, name: &str, mut inside: &str, schema: Option<&Value>) -> Option<ToolCall> {
        let mut arguments = Map::new();
        while let Some((key, text, after)) = element(inside, self.parameter)? {
            let text = if self.lines {
                one_line_less(text)
            } else {
                text
            };
            let declared = schema.and_then(|s| s.get("properties")?.get(key));
            arguments.insert(key.into(), value(text, declared));
            inside = after;
        }
        inside.trim().is_empty().then(|| ToolCall {
            name: name.into(),
            arguments,
        })
    }
}

/// The next element: its name, what is inside, and what follows. `None` where there is a piece of one, or something else before it.
#[allow(clippy::type_complexity, reason = "three parts of one text")]
fn element<'t>(
    text: &'t str,
    tags: (&str, &str, &str),
) -> Option<Option<(&'t str, &'t str, &'t str)>> {
    let (open, end, close) = tags;
    let Some((before, after)) = text.split_once(open) else {
        return Some(None);
    };
    if !before.trim().is_empty() {
        return None;
    }
    let (name, inside) = after.split_once(end)?;
    let (inside, after) = inside.split_once(close)?;
    Some(Some((name.trim(), inside, after)))
}

fn one_line_less(text: &str) -> &str {
    let text = text.strip_prefix('\n').unwrap_or(text);
    text.strip_suffix('\n').unwrap_or(text)
}

/// A parameter's value: text where the schema says so, else JSON where it is some.
fn value(text: &str, declared: Option<&Value>) -> Value {
    let is_text = declared.is_some_and(|d| d.get("type").is_some_and(|t| t == "string"));
    let json = (!is_text).then(|| serde_json::from_str(text.trim()).ok());
    json.flatten().unwrap_or_else(|| Value::String(text.into()))
}

/// Finds where a JSON list or object ends in a text that arrives in pieces.
#[derive(Clone, Debug, Default)]
pub(super) struct JsonEnd {
    depth: usize,
    in_text: bool,
    escaped: bool,
    seen: usize,
}

impl JsonEnd {
    /// Bytes of `text`, of which a start has been seen before, up to the end of the value; `None` while it is open.
    pub(super) fn find(&mut self, text: &str) -> Option<usize> {
        for (at, byte) in text.bytes().enumerate().skip(self.seen) {
            self.seen = at + 1;
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' if self.in_text => self.escaped = true,
                b'"' => self.in_text = !self.in_text,
                _ if self.in_text => {}
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    let marker = text.as_bytes()[..=at].ends_with(ARGUMENTS.as_bytes());
                    if self.depth == 0 && !marker {
                        return Some(at + 1);
                    }
                }
                _ => {}
            }
        }
        None
    }
}
