//! Bundles: `metadata.json` 0.2, assets and a tokenizer in one directory (contract B §2).
//!
//! Reading follows the order that the contract fixes: the path's extension before any read, the version before any other
//! field, the kind before the fields of the kind. Fields this version does not know are kept in [`ModelBundle::raw`].

mod source;

use std::path::PathBuf;

use serde_json::{Map, Value};

pub use source::{DirectorySource, Source};

/// The schema version this reader knows.
pub const METADATA_VERSION: &str = "0.2";

/// What a bundle holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BundleKind {
    /// A language model.
    Llm,
    /// A vision-language model.
    Vlm,
    /// An image generator.
    Diffusion,
    /// An image segmenter.
    Segmenter,
    /// Speech to text.
    SpeechRecognizer,
}

impl BundleKind {
    const NAMES: [(Self, &'static str); 5] = [
        (Self::Llm, "llm"),
        (Self::Vlm, "vlm"),
        (Self::Diffusion, "diffusion"),
        (Self::Segmenter, "segmenter"),
        (Self::SpeechRecognizer, "speech_recognizer"),
    ];

    /// The name in `metadata.json`.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(k, _)| *k == self).map_or("", |(_, n)| n)
    }

    fn parse(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(_, n)| *n == name).map(|(k, _)| *k)
    }
}

/// Why a bundle cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BundleError {
    /// The path is a model asset.
    #[error("{0} is a model asset, not a bundle: give the directory with metadata.json that contains it")]
    PointedAtModelAsset(PathBuf),
    /// There is no metadata.
    #[error("metadata.json not found at {0}")]
    MissingMetadata(PathBuf),
    /// The metadata is not JSON, or a field has another type than it must.
    #[error("{file} is malformed: {reason}")]
    Malformed {
        /// Which file.
        file: String,
        /// What is wrong, with line or field.
        reason: String,
    },
    /// Another schema version.
    #[error("unsupported metadata_version '{0}' (known: 0.2)")]
    UnsupportedVersion(String),
    /// Another kind of bundle.
    #[error("expected bundle kind {expected}, got {got}")]
    KindMismatch {
        /// What was asked for.
        expected: &'static str,
        /// What it is.
        got: String,
    },
    /// A field is missing.
    #[error("metadata is missing required field '{0}'")]
    MissingField(String),
    /// An asset named by the metadata is not there.
    #[error("asset '{key}' not found at {path}")]
    MissingAsset {
        /// Its role.
        key: String,
        /// Where it should be.
        path: String,
    },
    /// Only a compiled asset is there.
    #[error("asset '{key}' is compiled for a device ({path}{architectures}): russet runs the source .aimodel, export it beside")]
    CompiledAsset {
        /// Its role.
        key: String,
        /// The compiled asset.
        path: String,
        /// What it was compiled for, where that can be told.
        architectures: String,
    },
    /// A file cannot be read.
    #[error("cannot read {file}: {source}")]
    Io {
        /// Which file.
        file: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

/// Any bundle: what all kinds share.
#[derive(Clone, Debug)]
pub struct ModelBundle {
    /// What it holds.
    pub kind: BundleKind,
    /// Its name.
    pub name: String,
    /// Role and relative path of every asset, in the order of the file.
    pub assets: Vec<(String, String)>,
    /// Free text that exporters and apps keep.
    pub user_data: Vec<(String, String)>,
    /// The whole metadata, unknown keys included.
    pub raw: Map<String, Value>,
}

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
    /// The function to run, from `function_map.main`.
    pub function: String,
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
    /// Relative path of the asset to run.
    pub main: String,
}

/// Fields of one JSON object, with errors that name the field by its path.
struct Fields<'a> {
    map: &'a Map<String, Value>,
    path: &'a str,
}

impl<'a> Fields<'a> {
    fn name(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    fn get<T>(&self, key: &str, what: &str, read: impl Fn(&'a Value) -> Option<T>) -> Result<Option<T>, BundleError> {
        match self.map.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => read(value).map(Some).ok_or_else(|| BundleError::Malformed {
                file: "metadata.json".into(),
                reason: format!("field '{}' is not {what}", self.name(key)),
            }),
        }
    }

    fn require<T>(&self, key: &str, what: &str, read: impl Fn(&'a Value) -> Option<T>) -> Result<T, BundleError> {
        self.get(key, what, read)?.ok_or_else(|| BundleError::MissingField(self.name(key)))
    }

    fn size(&self, key: &str) -> Result<Option<usize>, BundleError> {
        self.get(key, "a positive integer", |v| v.as_u64().and_then(|n| usize::try_from(n).ok()).filter(|&n| n > 0))
    }
}

fn object(value: &Value) -> Option<&Map<String, Value>> {
    value.as_object()
}

/// String pairs of an object; `None` where a value is not text.
fn texts(value: &Value) -> Option<Vec<(String, String)>> {
    value.as_object()?.iter().map(|(k, v)| Some((k.clone(), v.as_str()?.to_owned()))).collect()
}

impl ModelBundle {
    /// Reads the metadata of a bundle.
    pub fn read(source: &dyn Source) -> Result<Self, BundleError> {
        let location = source.location();
        if location.extension().is_some_and(|e| e == "aimodel" || e == "aimodelc") {
            return Err(BundleError::PointedAtModelAsset(location.to_owned()));
        }
        let bytes = match source.read("metadata.json") {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                return Err(BundleError::MissingMetadata(location.join("metadata.json")));
            }
            other => other.map_err(|source| BundleError::Io { file: "metadata.json".into(), source })?,
        };
        Self::parse(&bytes)
    }

    fn parse(bytes: &[u8]) -> Result<Self, BundleError> {
        let malformed = |reason: String| BundleError::Malformed { file: "metadata.json".into(), reason };
        let value: Value = serde_json::from_slice(bytes).map_err(|e| malformed(e.to_string()))?;
        let Value::Object(raw) = value else { return Err(malformed("it is not an object".into())) };
        let top = Fields { map: &raw, path: "" };
        let version = match raw.get("metadata_version") {
            None => "0.1".to_owned(),
            Some(Value::String(v)) => v.clone(),
            Some(other) => other.to_string(),
        };
        if version != METADATA_VERSION {
            return Err(BundleError::UnsupportedVersion(version));
        }
        let kind = top.require("kind", "text", Value::as_str)?;
        let kind = BundleKind::parse(kind).ok_or_else(|| malformed(format!("unknown kind '{kind}'")))?;
        let name = top.require("name", "text", Value::as_str)?.to_owned();
        let assets = top.get("assets", "an object of paths", texts)?.unwrap_or_default();
        let user_data = top.get("user_data", "an object of texts", texts)?.unwrap_or_default();
        Ok(Self { kind, name, assets, user_data, raw })
    }

    /// The relative path of an asset that is there. Where only the compiled form is there, the error says so.
    pub fn asset(&self, source: &dyn Source, key: &str) -> Result<String, BundleError> {
        let missing = || BundleError::MissingField(format!("assets.{key}"));
        let (_, path) = self.assets.iter().find(|(k, _)| k == key).ok_or_else(missing)?;
        let compiled = if path.ends_with(".aimodelc") { path.clone() } else { format!("{path}c") };
        if !path.ends_with(".aimodelc") && source.exists(path) {
            return Ok(path.clone());
        }
        if source.exists(&compiled) {
            return Err(BundleError::CompiledAsset { key: key.into(), path: compiled, architectures: self.targets() });
        }
        Err(BundleError::MissingAsset { key: key.into(), path: source.location().join(path).display().to_string() })
    }

    /// What `compilation.targets` says, for messages.
    fn targets(&self) -> String {
        let targets = self.raw.get("compilation").and_then(|c| c.get("targets")).and_then(Value::as_array);
        let names: Vec<String> = targets.into_iter().flatten().map(|t| t.to_string()).collect();
        if names.is_empty() { String::new() } else { format!(", for {}", names.join(", ")) }
    }
}

impl LanguageBundle {
    /// Reads a language bundle: its kind, its main asset, its language part, in this order.
    pub fn read(source: &dyn Source) -> Result<Self, BundleError> {
        let model = ModelBundle::read(source)?;
        if !matches!(model.kind, BundleKind::Llm | BundleKind::Vlm) {
            return Err(BundleError::KindMismatch { expected: "llm", got: model.kind.name().into() });
        }
        let main = model.asset(source, "main")?;
        let top = Fields { map: &model.raw, path: "" };
        let language = LanguageConfig::read(&Fields { map: top.require("language", "an object", object)?, path: "language" })?;
        Ok(Self { model, language, main })
    }
}

impl LanguageConfig {
    fn read(fields: &Fields<'_>) -> Result<Self, BundleError> {
        let map = fields.get("function_map", "an object", object)?;
        let main = map.map(|map| Fields { map, path: "language.function_map" });
        let names = |v: &Value| -> Option<Vec<String>> { v.as_array()?.iter().map(|n| n.as_str().map(str::to_owned)).collect() };
        let functions = match main {
            Some(f) => f.get("main", "a list of names", names)?.unwrap_or_default(),
            None => Vec::new(),
        };
        let ids = |v: &Value| match v {
            Value::Array(items) => items.iter().map(|i| u32::try_from(i.as_u64()?).ok()).collect(),
            one => Some(vec![u32::try_from(one.as_u64()?).ok()?]),
        };
        let missing = |key: &str| BundleError::MissingField(fields.name(key));
        Ok(Self {
            tokenizer: fields.require("tokenizer", "text", Value::as_str)?.to_owned(),
            vocab_size: fields.size("vocab_size")?.ok_or_else(|| missing("vocab_size"))?,
            max_context_length: fields.size("max_context_length")?.ok_or_else(|| missing("max_context_length"))?,
            embedded_tokenizer: fields.get("embedded_tokenizer", "true or false", Value::as_bool)?.unwrap_or(true),
            function: functions.into_iter().next().unwrap_or_else(|| "main".into()),
            states: fields.get("states", "an object of kinds", texts)?.unwrap_or_default(),
            eos_token_ids: fields.get("eos_token_ids", "a token or a list of tokens", ids)?.unwrap_or_default(),
            prefill_chunk_size: fields.size("prefill_chunk_size")?,
            prefill_chunk_threshold: fields.size("prefill_chunk_threshold")?,
        })
    }
}

#[cfg(test)]
mod tests;
