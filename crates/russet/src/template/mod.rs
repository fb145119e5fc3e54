//! Chat templates: messages to the text a model was trained on, by `minijinja` with the extensions of Hugging Face.
//!
//! A template comes from `chat_template.jinja` with further named ones in `additional_chat_templates/`, or from `chat_template`
//! in `tokenizer_config.json`: one text, or a list of named ones (`default`, `tool_use`). The files win over the config, as in
//! the `transformers` library.

mod date;
mod dialect;

use std::collections::BTreeMap;

use minijinja::value::Value as Jinja;
use minijinja::{Error, context};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::bundle::{BundleError, Source, inside};

/// One message of a conversation. Further fields reach the template as they are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Who speaks: `system`, `user`, `assistant`, `tool`.
    pub role: String,
    /// The text.
    #[serde(default)]
    pub content: String,
    /// Anything else a template may look at (`tool_calls`, `name` …).
    #[serde(flatten)]
    pub extra: BTreeMap<String, Value>,
}

impl Message {
    /// A message of this role and text.
    pub fn new(role: &str, content: impl Into<String>) -> Self {
        Self {
            role: role.into(),
            content: content.into(),
            extra: BTreeMap::new(),
        }
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
    tokens: BTreeMap<String, Value>,
}

/// What to render besides the messages.
#[derive(Clone, Debug, Default)]
pub struct RenderOptions {
    /// End with the beginning of the assistant's turn.
    pub add_generation_prompt: bool,
    /// Tools in the form the template expects (JSON schemas).
    pub tools: Vec<Value>,
    /// Documents to answer from, in the form the template expects.
    pub documents: Vec<Value>,
    /// Further variables (`enable_thinking` …). They win over all others.
    pub variables: BTreeMap<String, Value>,
    /// The template to use; by default `tool_use` with tools where there is one, else `default`.
    pub template: Option<String>,
}

/// Keys of `tokenizer_config.json` that templates see as variables.
const TOKENS: [&str; 7] = [
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
];
/// The one among them that is a list.
const MORE_TOKENS: &str = "additional_special_tokens";

impl ChatTemplate {
    /// A single template.
    pub fn new(text: impl Into<String>) -> Self {
        Self {
            templates: vec![("default".into(), text.into())],
            tokens: BTreeMap::new(),
        }
    }

    /// The templates of a tokenizer directory; `config` is its `tokenizer_config.json`. `None` where there are none.
    ///
    /// # Errors
    /// [`BundleError::Io`] for a template that cannot be read, [`BundleError::Malformed`] for one that is not UTF-8.
    pub fn read(
        source: &dyn Source,
        directory: &str,
        config: Option<&Value>,
    ) -> Result<Option<Self>, BundleError> {
        let file = inside(directory, "chat_template.jinja");
        let mut templates = Vec::new();
        if source.exists(&file) {
            templates.push(("default".to_owned(), read_text(source, &file)?));
        }
        let more = inside(directory, "additional_chat_templates");
        for entry in source.list(&more).map_err(|source| BundleError::Io {
            file: more.clone(),
            source,
        })? {
            if let Some(name) = entry.strip_suffix(".jinja") {
                templates.push((
                    name.to_owned(),
                    read_text(source, &format!("{more}/{entry}"))?,
                ));
            }
        }
        if templates.is_empty() {
            return Ok(Self::find(None, config));
        }
        Ok(Some(Self {
            templates,
            tokens: tokens(config),
        }))
    }

    /// The templates of a model: `file` is `chat_template.jinja`, `config` is `tokenizer_config.json`. `None` where neither has
    /// one.
    pub fn find(file: Option<&str>, config: Option<&Value>) -> Option<Self> {
        let one = |text: &str| vec![("default".to_owned(), text.to_owned())];
        let templates = match (file, config.and_then(|c| c.get("chat_template"))) {
            (Some(text), _) => one(text),
            (None, Some(Value::String(text))) => one(text),
            (None, Some(Value::Array(list))) => list.iter().filter_map(named).collect(),
            _ => return None,
        };
        (!templates.is_empty()).then(|| Self {
            templates,
            tokens: tokens(config),
        })
    }

    /// Adds a named template, in place of one of this name.
    pub fn add(&mut self, name: &str, text: impl Into<String>) {
        self.templates.retain(|(n, _)| n != name);
        self.templates.push((name.into(), text.into()));
    }

    /// Sets a token that templates see, such as `bos_token`.
    pub fn set_token(&mut self, name: &str, text: impl Into<String>) {
        self.tokens.insert(name.into(), Value::String(text.into()));
    }

    /// The text of a template.
    pub fn source(&self, name: &str) -> Option<&str> {
        self.templates
            .iter()
            .find(|(n, _)| n == name)
            .map(|(_, t)| t.as_str())
    }

    /// Renders a conversation.
    ///
    /// # Errors
    /// [`TemplateError::Refused`] where the template itself says no, [`TemplateError::Template`] with the line where it is
    /// broken or never ends, [`TemplateError::NoTemplate`] for a name it does not have.
    pub fn render(
        &self,
        messages: &[Message],
        options: &RenderOptions,
    ) -> Result<String, TemplateError> {
        let (name, text) = self.choose(options)?;
        let fail = |e: Error| located(name, &e);
        let env = dialect::environment();
        let text = dialect::without_generation(text);
        let template = env.template_from_named_str(name, &text).map_err(fail)?;
        let list = |items: &[Value]| {
            if items.is_empty() {
                Jinja::from(())
            } else {
                Jinja::from_serialize(items)
            }
        };
        // Where names meet, the earlier one counts.
        let variables = context! {
            ..Jinja::from_serialize(&options.variables),
            ..context! {
                messages => messages,
                tools => list(&options.tools),
                documents => list(&options.documents),
                add_generation_prompt => options.add_generation_prompt,
            },
            ..Jinja::from_serialize(&self.tokens),
        };
        template.render(variables).map_err(fail)
    }

    /// Name and text of the template to render.
    fn choose<'a>(
        &'a self,
        options: &'a RenderOptions,
    ) -> Result<(&'a str, &'a str), TemplateError> {
        let tool_use = !options.tools.is_empty() && self.source("tool_use").is_some();
        let wanted =
            options
                .template
                .as_deref()
                .unwrap_or(if tool_use { "tool_use" } else { "default" });
        let only = match &self.templates[..] {
            [(_, only)] if options.template.is_none() => Some(only.as_str()),
            _ => None,
        };
        let missing = || TemplateError::NoTemplate {
            wanted: wanted.into(),
            known: self
                .templates
                .iter()
                .map(|(n, _)| n.as_str())
                .collect::<Vec<_>>()
                .join(", "),
        };
        self.source(wanted)
            .or(only)
            .map(|text| (wanted, text))
            .ok_or_else(missing)
    }
}

fn read_text(source: &dyn Source, file: &str) -> Result<String, BundleError> {
    let bytes = source.read(file).map_err(|source| BundleError::Io {
        file: file.into(),
        source,
    })?;
    String::from_utf8(bytes).map_err(|e| BundleError::Malformed {
        file: file.into(),
        reason: e.to_string(),
    })
}

fn named(entry: &Value) -> Option<(String, String)> {
    Some((
        entry.get("name")?.as_str()?.to_owned(),
        entry.get("template")?.as_str()?.to_owned(),
    ))
}

/// The special tokens of a `tokenizer_config.json`, each a text or an object with `content`.
fn tokens(config: Option<&Value>) -> BTreeMap<String, Value> {
    let text = |v: &Value| {
        v.as_str()
            .or_else(|| v.get("content")?.as_str())
            .map(|t| Value::String(t.to_owned()))
    };
    let single = TOKENS
        .iter()
        .filter_map(|key| Some(((*key).to_owned(), text(config?.get(key)?)?)));
    let list = config
        .and_then(|c| c.get(MORE_TOKENS))
        .and_then(Value::as_array);
    let list = list.map(|l| {
        (
            MORE_TOKENS.to_owned(),
            Value::Array(l.iter().filter_map(text).collect()),
        )
    });
    single.chain(list).collect()
}

fn located(name: &str, error: &Error) -> TemplateError {
    let detail = error.detail().unwrap_or_default();
    if let Some(reason) = detail.strip_prefix(dialect::RAISED) {
        return TemplateError::Refused(reason.to_owned());
    }
    let reason = if detail.is_empty() {
        error.kind().to_string()
    } else {
        format!("{}: {detail}", error.kind())
    };
    TemplateError::Template {
        name: name.into(),
        line: error.line().unwrap_or(0),
        reason,
    }
}

#[cfg(test)]
mod tests;
