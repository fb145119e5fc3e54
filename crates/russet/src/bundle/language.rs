//! Language-model bundles: the `language` part of `metadata.json` (contract B §2.6, §2.7).

use serde_json::Value;

use super::error::BundleError;
use super::fields::{Faults, Fields, strictly, texts};
use super::kind::BundleKind;
use super::model::{ModelBundle, raw_metadata};
use super::source::Source;
use super::vision::VisionConfig;

/// The `language` part of a language bundle.
#[derive(Clone, Debug, PartialEq)]
pub struct LanguageConfig {
    /// Where the tokenizer comes from when it is not embedded.
    pub tokenizer: String,
    /// Entries of the vocabulary.
    pub vocab_size: usize,
    /// The most tokens the model takes.
    pub max_context_length: usize,
    /// Whether the tokenizer is inside the bundle.
    pub embedded_tokenizer: bool,
    /// Role and functions of every entry of `function_map`, in the order of the file.
    pub function_map: Vec<(String, Vec<String>)>,
    /// What states are for, by name, where the exporter says.
    pub states: Vec<(String, String)>,
    /// Further tokens that end a turn.
    pub eos_token_ids: Vec<u32>,
    /// Tokens of a prompt to process at once.
    pub prefill_chunk_size: Option<usize>,
    /// Prompts up to this length are processed in one piece.
    pub prefill_chunk_threshold: Option<usize>,
}

/// A language-model bundle.
#[derive(Clone, Debug)]
pub struct LanguageBundle {
    /// What all bundles have.
    pub model: ModelBundle,
    /// The language part.
    pub language: LanguageConfig,
    /// The vision part, which a vision-language model must have.
    pub vision: Option<VisionConfig>,
    /// Relative path of the asset to run.
    pub main: String,
}

impl LanguageBundle {
    /// Reads a language bundle: its kind, the path of its main asset, its language part, for a vision-language model that it
    /// has a `vision` part, in this order; then that the main asset is there.
    ///
    /// # Errors
    /// Any [`BundleError`], for the first of these that fails.
    pub fn read(source: &dyn Source) -> Result<Self, BundleError> {
        let raw = raw_metadata(source)?;
        strictly(|faults| Self::of(ModelBundle::of(raw, faults)?, source, faults))
    }

    /// The language bundle that metadata describes.
    pub(crate) fn of(model: ModelBundle, source: &dyn Source, faults: &Faults) -> Option<Self> {
        model.expect(&[BundleKind::Llm, BundleKind::Vlm], faults);
        let path = faults.note(model.asset("main").map(drop));
        let (language, vision) = language_parts(&model, faults);
        path?;
        let main = faults.note(model.require(source, "main"))?.to_owned();
        Some(Self {
            language: language?,
            vision,
            main,
            model,
        })
    }
}

/// The parts of a language bundle's metadata.
pub(crate) fn language_parts(
    model: &ModelBundle,
    faults: &Faults,
) -> (Option<LanguageConfig>, Option<VisionConfig>) {
    let top = Fields::top(&model.raw, faults);
    let part = top.object("language");
    let language = part.as_ref().and_then(LanguageConfig::read);
    let vision = vision(&top, part.as_ref(), model.kind, faults);
    (language, vision)
}

/// The vision part, from the top level alone: there is where other readers look for it.
fn vision(
    top: &Fields<'_>,
    language: Option<&Fields<'_>>,
    kind: BundleKind,
    faults: &Faults,
) -> Option<VisionConfig> {
    let nested = language.is_some_and(|l| l.has("vision"));
    match (top.optional_object("vision"), kind) {
        (Some(part), _) => VisionConfig::read(&part),
        (None, BundleKind::Vlm) if !top.has("vision") => {
            faults.add(match nested {
                true => BundleError::NestedVision,
                false => BundleError::MissingField("vision".into()),
            });
            None
        }
        (None, _) => None,
    }
}

impl LanguageConfig {
    /// The function to run: the first of role `main`, by default `main`.
    pub fn main_function(&self) -> &str {
        let names = self
            .function_map
            .iter()
            .find(|(role, _)| role == "main")
            .map(|(_, names)| names);
        names.and_then(|n| n.first()).map_or("main", String::as_str)
    }

    fn read(fields: &Fields<'_>) -> Option<Self> {
        let tokenizer = fields.text("tokenizer");
        let vocab_size = fields.require_size("vocab_size");
        let max_context_length = fields.require_size("max_context_length");
        let embedded = fields.flag("embedded_tokenizer");
        let functions = fields.get("function_map", "an object of lists of names", functions);
        let states = fields.get("states", "an object of kinds", texts);
        let stops = fields.get("eos_token_ids", "a token or a list of tokens", tokens);
        let chunk = fields.size("prefill_chunk_size");
        let threshold = fields.size("prefill_chunk_threshold");
        Some(Self {
            tokenizer: tokenizer?,
            vocab_size: vocab_size?,
            max_context_length: max_context_length?,
            embedded_tokenizer: embedded.unwrap_or(true),
            function_map: functions.unwrap_or_default(),
            states: states.unwrap_or_default(),
            eos_token_ids: stops.unwrap_or_default(),
            prefill_chunk_size: chunk,
            prefill_chunk_threshold: threshold,
        })
    }
}

/// Roles and their functions; `None` where an entry is not a list of texts.
fn functions(value: &Value) -> Option<Vec<(String, Vec<String>)>> {
    let name = |n: &Value| n.as_str().map(str::to_owned);
    let names = |v: &Value| v.as_array()?.iter().map(name).collect::<Option<Vec<_>>>();
    let role = |(role, v): (&String, &Value)| Some((role.clone(), names(v)?));
    value.as_object()?.iter().map(role).collect()
}

fn tokens(value: &Value) -> Option<Vec<u32>> {
    let token = |v: &Value| u32::try_from(v.as_u64()?).ok();
    match value {
        Value::Array(items) => items.iter().map(token).collect(),
        one => Some(vec![token(one)?]),
    }
}
