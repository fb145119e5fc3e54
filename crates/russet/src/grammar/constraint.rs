//! What may be generated, in the notations that people write it in.

use serde_json::{Value, json};

use super::ebnf;
use super::error::GrammarError;

/// What an answer must look like. Compile it to a [`Grammar`](super::Grammar).
#[derive(Clone, Debug)]
pub struct Constraint {
    pub(super) kind: Kind,
    pub(super) options: JsonOptions,
}

/// The notation of a constraint.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    Schema(Value),
    Regex(String),
    Lark(String),
    /// Free text, then, after the marker, the body.
    After(String, Box<Constraint>),
    Tools(ToolCalls),
}

/// How JSON is written and how strictly its schema is taken.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct JsonOptions {
    /// White space between two tokens of JSON: one space or tab, or one line break and fewer than this many spaces or tabs behind
    /// it; 0 for compact JSON. Where white space is unbounded, models write line breaks until their limit.
    pub whitespace: usize,
    /// Refuse keywords that can only be checked when a value is whole: such a check may find that nothing can follow.
    pub strict: bool,
    /// Allow integers with a fraction of zero (`1.0`) and escaped slashes (`\/`), as JSON Schema and JSON do. Readers that want an
    /// integer often refuse the former.
    pub other_forms: bool,
}

impl Default for JsonOptions {
    fn default() -> Self {
        Self {
            whitespace: 32,
            strict: false,
            other_forms: true,
        }
    }
}

/// Functions that a model may call, and how a call is written.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ToolCalls {
    /// Names, each with the JSON Schema of its arguments.
    pub tools: Vec<(String, Value)>,
    /// What is written before a call, the name of the special token or other text.
    pub begin: String,
    /// What is written after it.
    pub end: String,
    /// Whether the answer must be a call; otherwise it may be text, or text and then calls.
    pub required: bool,
    /// Whether there may be several calls.
    pub parallel: bool,
}

impl ToolCalls {
    /// Calls as the Qwen and Hermes models write them: `{"name": …, "arguments": …}` between `<tool_call>` and `</tool_call>`,
    /// one or several or plain text.
    pub fn new(tools: impl IntoIterator<Item = (String, Value)>) -> Self {
        Self {
            tools: tools.into_iter().collect(),
            begin: "<tool_call>".to_owned(),
            end: "</tool_call>".to_owned(),
            required: false,
            parallel: true,
        }
    }

    /// The schema of one call.
    pub(super) fn schema(&self) -> Value {
        let call = |(name, arguments): &(String, Value)| {
            json!({
                "type": "object",
                "properties": {"name": {"const": name}, "arguments": arguments},
                "required": ["name", "arguments"],
                "additionalProperties": false,
            })
        };
        json!({"anyOf": self.tools.iter().map(call).collect::<Vec<_>>()})
    }
}

impl Constraint {
    fn of(kind: Kind) -> Self {
        Self {
            kind,
            options: JsonOptions::default(),
        }
    }

    /// JSON that is valid under a schema of draft 4 to 2020-12. Members come in the schema's order.
    pub fn json_schema(schema: Value) -> Self {
        Self::of(Kind::Schema(schema))
    }

    /// [`Constraint::json_schema`] of a schema as text.
    ///
    /// # Errors
    /// [`GrammarError::Syntax`] where the text is no JSON.
    pub fn json_schema_text(schema: &str) -> Result<Self, GrammarError> {
        let schema = serde_json::from_str(schema);
        let schema = schema.map_err(|e| GrammarError::syntax("JSON schema", e.to_string()))?;
        Ok(Self::json_schema(schema))
    }

    /// Any JSON object.
    pub fn json_object() -> Self {
        Self::json_schema(json!({"type": "object"}))
    }

    /// A text that the whole of a regular expression matches (Rust's syntax without look-around; `.` is no line end).
    pub fn regex(expression: impl Into<String>) -> Self {
        Self::of(Kind::Regex(expression.into()))
    }

    /// A context-free grammar in Lark's notation, as llguidance extends it; it starts at the rule `start`.
    pub fn lark(grammar: impl Into<String>) -> Self {
        Self::of(Kind::Lark(grammar.into()))
    }

    /// A context-free grammar in GBNF (llama.cpp) or in the EBNF of the W3C. It starts at `root`, or at the first rule.
    ///
    /// # Errors
    /// [`GrammarError::Syntax`] with the line.
    pub fn ebnf(grammar: &str) -> Result<Self, GrammarError> {
        Ok(Self::lark(ebnf::to_lark(grammar)?))
    }

    /// A grammar in whichever notation it is written: GBNF where a rule is `name ::=`, else Lark.
    ///
    /// # Errors
    /// [`GrammarError::Syntax`] with the line, where it is no GBNF.
    pub fn grammar(text: &str) -> Result<Self, GrammarError> {
        if text.lines().any(|l| l.contains("::=")) {
            Self::ebnf(text)
        } else {
            Ok(Self::lark(text))
        }
    }

    /// One of these texts.
    pub fn choice<S: Into<String>>(choices: impl IntoIterator<Item = S>) -> Self {
        let quoted = choices
            .into_iter()
            .map(|c| ebnf::lark_string(&c.into()))
            .collect::<Vec<_>>();
        Self::lark(format!("start: {}\n", quoted.join(" | ")))
    }

    /// Calls of functions.
    pub fn tool_calls(calls: ToolCalls) -> Self {
        Self::of(Kind::Tools(calls))
    }

    /// Free text until a marker, and after it the body: `</think>`, a fence, a heading. A marker that is a special token is
    /// that token.
    pub fn structural(marker: impl Into<String>, body: Self) -> Self {
        Self::of(Kind::After(marker.into(), Box::new(body)))
    }

    /// The same constraint with other options for the JSON in it.
    #[must_use]
    pub fn with_options(mut self, options: JsonOptions) -> Self {
        if let Kind::After(_, body) = &mut self.kind {
            body.options = options.clone();
        }
        self.options = options;
        self
    }

    /// A text that is the same for the same constraint: the key of the cache. Keys of objects stay in order, it matters.
    pub(super) fn key(&self) -> String {
        format!("{self:?}")
    }
}
