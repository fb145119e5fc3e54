//! Tokenizer, stop tokens and chat template: what turns a language model's numbers into words.

use serde_json::Value;

use super::finding::{self as rules, At, Findings};
use super::functions::is_static;
use super::subject::Subject;
use crate::bundle::{LanguageConfig, Source};
use crate::stop::{StopSources, stop_tokens};
use crate::template::{ChatTemplate, Message, RenderOptions, TemplateError};
use crate::tokenizer::Tokenizer;

const FOLDER: &str = "tokenizer";
const TOKENIZER: &str = "tokenizer/tokenizer.json";
const CONFIG: &str = "tokenizer/tokenizer_config.json";
const GENERATION: &str = "tokenizer/generation_config.json";

/// A file that was read, is not there, or is broken.
type Read<T> = Result<Option<T>, String>;

/// The files of a tokenizer.
pub(super) struct Words {
    tokenizer: Read<Tokenizer>,
    config: Read<Value>,
    generation: Read<Value>,
}

impl Words {
    pub(super) fn read(source: &dyn Source) -> Self {
        let json = |bytes: &[u8]| serde_json::from_slice(bytes).map_err(|e| e.to_string());
        let tokenizer = |bytes: &[u8]| Tokenizer::from_json(bytes).map_err(|e| e.to_string());
        Self {
            tokenizer: file(source, TOKENIZER, tokenizer),
            config: file(source, CONFIG, json),
            generation: file(source, GENERATION, json),
        }
    }

    fn tokenizer(&self) -> Option<&Tokenizer> {
        self.tokenizer.as_ref().ok()?.as_ref()
    }

    fn config(&self) -> Option<&Value> {
        self.config.as_ref().ok()?.as_ref()
    }

    fn stops(&self, language: &LanguageConfig) -> Option<Vec<u32>> {
        let sources = StopSources {
            tokenizer_config: self.config(),
            generation_config: self.generation.as_ref().ok().and_then(Option::as_ref),
            ids: &language.eos_token_ids,
        };
        Some(stop_tokens(self.tokenizer()?, sources))
    }
}

fn file<T>(source: &dyn Source, name: &str, parse: impl Fn(&[u8]) -> Result<T, String>) -> Read<T> {
    let bytes = source.read_optional(name).map_err(|e| e.to_string())?;
    bytes.map(|b| parse(&b)).transpose()
}

/// The tokenizer is there, whole, and meant to be used.
pub(super) fn tokenizer(subject: &Subject<'_>, findings: &mut Findings) -> Option<()> {
    let (language, words) = (subject.language.as_ref()?, subject.words.as_ref()?);
    if !language.embedded_tokenizer {
        findings.add(
            &rules::TOKENIZER_ELSEWHERE,
            At::metadata("language.embedded_tokenizer"),
            format!(
                "it is false: {} is asked from a network, which a user's device may not have",
                language.tokenizer
            ),
            "put the tokenizer's files into tokenizer/ and set it to true",
        );
    }
    missing(subject, language, words, findings);
    let broken = [
        (TOKENIZER, words.tokenizer.as_ref().err()),
        (CONFIG, words.config.as_ref().err()),
        (GENERATION, words.generation.as_ref().err()),
    ];
    for (name, reason) in broken {
        if let Some(reason) = reason {
            findings.add(
                &rules::TOKENIZER_BROKEN,
                At::file(name),
                format!("it cannot be read: {reason}"),
                format!(
                    "copy it again from {}; a write that was cut off leaves such files",
                    language.tokenizer
                ),
            );
        }
    }
    Some(())
}

fn missing(
    subject: &Subject<'_>,
    language: &LanguageConfig,
    words: &Words,
    findings: &mut Findings,
) {
    if matches!(words.tokenizer, Ok(None)) {
        let flat = subject.source.exists("tokenizer.json");
        let mend = match flat {
            true => "move tokenizer.json and what belongs to it into a folder tokenizer/".into(),
            false => format!(
                "put the tokenizer.json and tokenizer_config.json of {} into tokenizer/; see that nothing on the way leaves out *.json or flattens folders",
                language.tokenizer
            ),
        };
        findings.add(
            &rules::TOKENIZER_MISSING,
            At::file(TOKENIZER),
            format!(
                "it is not there: {} is asked from a network, where it works until there is none",
                language.tokenizer
            ),
            mend,
        );
    } else if matches!(words.config, Ok(None)) {
        findings.add(
            &rules::TOKENIZER_CONFIG,
            At::file(CONFIG),
            "it is not there: chat template and end of an answer may be lost with it",
            format!("copy it from {}", language.tokenizer),
        );
    }
}

/// Width of the logits of the function that runs, or rows of the embeddings.
fn width(subject: &Subject<'_>) -> Option<usize> {
    let (language, _, module) = subject.language_model()?;
    let name = match is_static(module) {
        true => "load_embeddings",
        false => language.main_function(),
    };
    let graph = module.graph(name)?;
    let logits = crate::engine::logits_of(graph);
    let mut outputs = graph.outputs.iter();
    let port = match is_static(module) {
        true => outputs.find(|p| p.ty.as_tensor().is_some()),
        false => outputs.find(|p| Some(&*p.name) == logits.as_deref()),
    }?;
    let shape = &port.ty.as_tensor()?.shape;
    let extent = if is_static(module) {
        shape.first()
    } else {
        shape.last()
    };
    usize::try_from(extent?.as_const()?).ok()
}

/// `vocab_size`, the logits and the tokenizer agree.
pub(super) fn vocabulary(subject: &Subject<'_>, findings: &mut Findings) -> Option<()> {
    let language = subject.language.as_ref()?;
    let width = width(subject);
    if let Some(width) = width.filter(|w| *w != language.vocab_size) {
        findings.add(
            &rules::VOCABULARY_LOGITS,
            At::metadata("language.vocab_size"),
            format!(
                "it is {}, and the model has {width} logits",
                language.vocab_size
            ),
            format!("make it {width}"),
        );
    }
    let limit = width.unwrap_or(language.vocab_size);
    let Some(tokenizer) = subject.words.as_ref().and_then(Words::tokenizer) else {
        return Some(());
    };
    let largest = tokenizer.largest_id() as usize;
    if largest >= limit {
        findings.add(
            &rules::VOCABULARY_TOKENIZER,
            At::file(TOKENIZER),
            format!("it has a token {largest}, and the model knows {limit}"),
            "use the tokenizer of the checkpoint that was exported",
        );
    } else if 2 * (largest + 1) < limit {
        findings.add(
            &rules::VOCABULARY_SMALL,
            At::file(TOKENIZER),
            format!("its largest token is {largest}, and the model knows {limit}: it may be another model's"),
            "use the tokenizer of the checkpoint that was exported",
        );
    }
    Some(())
}

/// Some token ends an answer, and the model knows it.
pub(super) fn stops(subject: &Subject<'_>, findings: &mut Findings) -> Option<()> {
    let language = subject.language.as_ref()?;
    let stops = subject.words.as_ref()?.stops(language)?;
    if stops.is_empty() {
        findings.add(
            &rules::STOP_NONE,
            At::file(CONFIG),
            "no token is known to end an answer: each goes on until its limit",
            "name it as eos_token in tokenizer_config.json, or by number in language.eos_token_ids",
        );
    }
    let limit = width(subject).unwrap_or(language.vocab_size);
    for token in stops.iter().filter(|t| **t as usize >= limit) {
        findings.add(
            &rules::STOP_OUTSIDE,
            At::metadata("language.eos_token_ids"),
            format!("the stop token {token} is outside the vocabulary of {limit}: no answer ends with it"),
            "take the tokens from the checkpoint's generation_config.json",
        );
    }
    Some(())
}

/// A chat template is there and renders a conversation.
pub(super) fn template(subject: &Subject<'_>, findings: &mut Findings) -> Option<()> {
    let words = subject.words.as_ref()?;
    words.tokenizer()?;
    let at = At::file(FOLDER);
    let mend = "copy chat_template.jinja or tokenizer_config.json from the checkpoint again";
    let template = match ChatTemplate::read(subject.source, FOLDER, words.config()) {
        Ok(Some(template)) => template,
        Ok(None) => {
            findings.add(
                &rules::TEMPLATE_MISSING,
                At::file(CONFIG),
                "there is no chat template: messages are joined as plain text, which only a base model understands",
                "copy it from the checkpoint (chat_template in tokenizer_config.json, or chat_template.jinja)",
            );
            return Some(());
        }
        Err(error) => {
            findings.add(&rules::TEMPLATE_BROKEN, at, error.to_string(), mend);
            return Some(());
        }
    };
    if let Err(error) = renders(&template) {
        findings.add(&rules::TEMPLATE_BROKEN, at, error.to_string(), mend);
    }
    Some(())
}

/// A question alone, or behind instructions: a template may refuse one of these.
fn renders(template: &ChatTemplate) -> Result<(), TemplateError> {
    let options = RenderOptions {
        add_generation_prompt: true,
        ..RenderOptions::default()
    };
    let question = Message::new("user", "Hello");
    match template.render(std::slice::from_ref(&question), &options) {
        Err(TemplateError::Refused(_)) => {
            let both = [Message::new("system", "Be brief."), question];
            template.render(&both, &options).map(drop)
        }
        other => other.map(drop),
    }
}
