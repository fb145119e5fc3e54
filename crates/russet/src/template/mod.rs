//! Chat templates: messages to the text a model was trained on, by `minijinja` with the extensions of Hugging Face.
//!
//! A template comes from `chat_template.jinja`, or from `chat_template` in `tokenizer_config.json`: one text, or a list of
//! named ones (`default`, `tool_use`). The file wins over the config, as in the `transformers` library.

use std::collections::BTreeMap;

use minijinja::value::{Kwargs, Value as Jinja, ValueKind};
use minijinja::{Environment, Error, ErrorKind, UndefinedBehavior, context};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One message of a conversation. Further fields reach the template as they are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Who speaks: `system`, `user`, `assistant`, `tool`.
    pub role: String,
    /// The text.
    pub content: String,
    /// Anything else a template may look at (`tool_calls`, `name` …).
    #[serde(flatten)]
    pub extra: BTreeMap<String, Value>,
}

impl Message {
    /// A message of this role and text.
    pub fn new(role: &str, content: impl Into<String>) -> Self {
        Self { role: role.into(), content: content.into(), extra: BTreeMap::new() }
    }
}

/// Why a template does not compile or render.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TemplateError {
    /// The template is broken.
    #[error("chat template {name:?}, line {line}: {reason}")]
    Template {
        /// Its name.
        name: String,
        /// Line, from 1; 0 where it is not known.
        line: usize,
        /// What is wrong.
        reason: String,
    },
    /// The template refuses the conversation (`raise_exception`).
    #[error("the chat template refuses the conversation: {0}")]
    Refused(String),
    /// There is no such template.
    #[error("there is no chat template {wanted:?} (there are: {known})")]
    NoTemplate {
        /// The name asked for.
        wanted: String,
        /// The names there are.
        known: String,
    },
}

/// Texts of templates by name, and the special tokens they may use.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChatTemplate {
    templates: Vec<(String, String)>,
    tokens: BTreeMap<String, String>,
}

/// What to render besides the messages.
#[derive(Clone, Debug, Default)]
pub struct RenderOptions {
    /// End with the beginning of the assistant's turn.
    pub add_generation_prompt: bool,
    /// Tools in the form the template expects (JSON schemas).
    pub tools: Vec<Value>,
    /// Further variables (`enable_thinking`, `documents` …).
    pub variables: BTreeMap<String, Value>,
    /// The template to use; by default `tool_use` with tools where there is one, else `default`.
    pub template: Option<String>,
}

/// Keys of `tokenizer_config.json` that templates see as variables.
const TOKENS: [&str; 5] = ["bos_token", "eos_token", "unk_token", "pad_token", "cls_token"];

impl ChatTemplate {
    /// A single template.
    pub fn new(text: impl Into<String>) -> Self {
        Self { templates: vec![("default".into(), text.into())], tokens: BTreeMap::new() }
    }

    /// The templates of a model: `file` is `chat_template.jinja`, `config` is `tokenizer_config.json`. `None` where neither has
    /// one.
    pub fn find(file: Option<&str>, config: Option<&Value>) -> Option<Self> {
        let mut this = match (file, config.and_then(|c| c.get("chat_template"))) {
            (Some(text), _) => Self::new(text),
            (None, Some(Value::String(text))) => Self::new(text.as_str()),
            (None, Some(Value::Array(list))) => Self { templates: list.iter().filter_map(named).collect(), tokens: BTreeMap::new() },
            _ => return None,
        };
        let text = |v: &Value| v.as_str().or_else(|| v.get("content")?.as_str()).map(str::to_owned);
        for key in TOKENS {
            if let Some(token) = config.and_then(|c| c.get(key)).and_then(text) {
                this.tokens.insert(key.into(), token);
            }
        }
        (!this.templates.is_empty()).then_some(this)
    }

    /// Sets a token that templates see, such as `bos_token`.
    pub fn set_token(&mut self, name: &str, text: impl Into<String>) {
        self.tokens.insert(name.into(), text.into());
    }

    /// The text of a template.
    pub fn source(&self, name: &str) -> Option<&str> {
        self.templates.iter().find(|(n, _)| n == name).map(|(_, t)| t.as_str())
    }

    /// Renders a conversation.
    pub fn render(&self, messages: &[Message], options: &RenderOptions) -> Result<String, TemplateError> {
        let tool_use = !options.tools.is_empty() && self.source("tool_use").is_some();
        let wanted = options.template.as_deref().unwrap_or(if tool_use { "tool_use" } else { "default" });
        let source = self.source(wanted).or_else(|| match &self.templates[..] {
            [(_, only)] if options.template.is_none() => Some(only),
            _ => None,
        });
        let source = source.ok_or_else(|| TemplateError::NoTemplate {
            wanted: wanted.into(),
            known: self.templates.iter().map(|(n, _)| n.as_str()).collect::<Vec<_>>().join(", "),
        })?;
        let env = environment();
        let template = env.template_from_named_str(wanted, source).map_err(|e| located(wanted, &e))?;
        let tools = if options.tools.is_empty() { Jinja::from(()) } else { Jinja::from_serialize(&options.tools) };
        let base = context! {
            messages => messages,
            add_generation_prompt => options.add_generation_prompt,
            tools => tools,
        };
        let all = context! { ..base, ..Jinja::from_serialize(&self.tokens), ..Jinja::from_serialize(&options.variables) };
        template.render(all).map_err(|e| located(wanted, &e))
    }
}

fn named(entry: &Value) -> Option<(String, String)> {
    Some((entry.get("name")?.as_str()?.to_owned(), entry.get("template")?.as_str()?.to_owned()))
}

/// Marks an error that a template raised itself.
const RAISED: &str = "raised by the template: ";

fn located(name: &str, error: &Error) -> TemplateError {
    let detail = error.detail().unwrap_or_default();
    if let Some(reason) = detail.strip_prefix(RAISED) {
        return TemplateError::Refused(reason.to_owned());
    }
    let reason = if detail.is_empty() { error.kind().to_string() } else { format!("{}: {detail}", error.kind()) };
    TemplateError::Template { name: name.into(), line: error.line().unwrap_or(0), reason }
}

/// The dialect of Hugging Face's templates.
fn environment() -> Environment<'static> {
    let mut env = Environment::new();
    env.set_trim_blocks(true);
    env.set_lstrip_blocks(true);
    env.set_keep_trailing_newline(false);
    env.set_undefined_behavior(UndefinedBehavior::Lenient);
    env.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    env.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    env.add_function("raise_exception", |text: String| -> Result<String, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, format!("{RAISED}{text}")))
    });
    env.add_function("strftime_now", strftime_now);
    env.add_filter("tojson", tojson);
    env
}

/// `tojson(indent=…)`: no HTML escapes, other scripts as they are, `", "` and `": "` between, like Python's `json.dumps`.
fn tojson(value: &Jinja, options: Kwargs) -> Result<Jinja, Error> {
    let indent: Option<usize> = options.get("indent")?;
    let invalid = |e: serde_json::Error| Error::new(ErrorKind::InvalidOperation, e.to_string());
    let mut out = Vec::new();
    let value = if value.kind() == ValueKind::Undefined { &Jinja::from(()) } else { value };
    match indent {
        Some(n) => {
            let indent = " ".repeat(n.min(32));
            let formatter = serde_json::ser::PrettyFormatter::with_indent(indent.as_bytes());
            value.serialize(&mut serde_json::Serializer::with_formatter(&mut out, formatter)).map_err(invalid)?;
        }
        None => value.serialize(&mut serde_json::Serializer::with_formatter(&mut out, Spaced)).map_err(invalid)?,
    }
    Ok(Jinja::from_safe_string(String::from_utf8_lossy(&out).into_owned()))
}

/// JSON on one line with a space after commas and colons.
struct Spaced;

impl serde_json::ser::Formatter for Spaced {
    fn begin_array_value<W: ?Sized + std::io::Write>(&mut self, w: &mut W, first: bool) -> std::io::Result<()> {
        if first { Ok(()) } else { w.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + std::io::Write>(&mut self, w: &mut W, first: bool) -> std::io::Result<()> {
        if first { Ok(()) } else { w.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + std::io::Write>(&mut self, w: &mut W) -> std::io::Result<()> {
        w.write_all(b": ")
    }
}

/// Today's date in UTC: `%d %b %Y` and the other common fields of `strftime`.
fn strftime_now(format: &str) -> String {
    let seconds = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_secs());
    strftime(format, seconds)
}

const MONTHS: [&str; 12] =
    ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"];
const DAYS: [&str; 7] = ["Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday"];

fn strftime(format: &str, seconds: u64) -> String {
    let (day, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, date) = civil(day);
    let (month_name, day_name) = (MONTHS[month - 1], DAYS[(day % 7) as usize]);
    let mut out = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('Y') => out += &year.to_string(),
            Some('m') => out += &format!("{month:02}"),
            Some('d') => out += &format!("{date:02}"),
            Some('B') => out += month_name,
            Some('b') => out += &month_name[..3],
            Some('A') => out += day_name,
            Some('a') => out += &day_name[..3],
            Some('H') => out += &format!("{:02}", second / 3600),
            Some('M') => out += &format!("{:02}", second / 60 % 60),
            Some('S') => out += &format!("{:02}", second % 60),
            Some('%') => out.push('%'),
            Some(other) => out.extend(['%', other]),
            None => out.push('%'),
        }
    }
    out
}

/// Year, month and day of the Gregorian calendar for a day since 1970-01-01 (Howard Hinnant, "chrono-compatible low-level
/// date algorithms").
fn civil(day: u64) -> (u64, usize, u64) {
    let z = day + 719_468;
    let (era, doe) = (z / 146_097, z % 146_097);
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    (yoe + era * 400 + u64::from(month <= 2), month as usize, doy - (153 * mp + 2) / 5 + 1)
}

#[cfg(test)]
mod tests;
