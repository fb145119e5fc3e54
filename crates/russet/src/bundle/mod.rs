//! Bundles: `metadata.json` 0.2, assets and a tokenizer in one directory (contract B §2).
//!
//! Reading follows the order that the contract fixes: the path's extension before any read, the version before any other
//! field, the kind before the fields of the kind, all fields before any asset. Fields this version does not know are kept in
//! [`ModelBundle::raw`]: exporters have added some without a new version (F 10).

mod source;

use std::path::{Component, Path, PathBuf};

use serde_json::{Map, Value};

pub(crate) use source::regular;
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
    /// A video generator (F 10).
    VideoDiffusion,
    /// A video segmenter (F 10).
    VideoSegmenter,
}

impl BundleKind {
    const NAMES: [(Self, &'static str); 7] = [
        (Self::Llm, "llm"),
        (Self::Vlm, "vlm"),
        (Self::Diffusion, "diffusion"),
        (Self::Segmenter, "segmenter"),
        (Self::SpeechRecognizer, "speech_recognizer"),
        (Self::VideoDiffusion, "video-diffusion"),
        (Self::VideoSegmenter, "video_segmenter"),
    ];

    /// The name in `metadata.json`.
    pub fn name(self) -> &'static str {
        Self::NAMES
            .iter()
            .find(|(k, _)| *k == self)
            .map_or("", |(_, n)| n)
    }

    fn parse(name: &str) -> Option<Self> {
        Self::NAMES
            .iter()
            .find(|(_, n)| *n == name)
            .map(|(k, _)| *k)
    }
}

/// Why a bundle cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BundleError {
    /// The path is a model asset.
    #[error(
        "{0} is a model asset, not a bundle: give the directory with metadata.json that contains it"
    )]
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
    /// Only a compiled asset is there, which no other machine can run.
    #[error(
        "asset '{key}' is compiled for {architecture} ({path}): put the .aimodel it was compiled from beside it"
    )]
    CompiledAsset {
        /// Its role.
        key: String,
        /// The compiled asset.
        path: String,
        /// What it was compiled for.
        architecture: String,
    },
    /// An asset outside the bundle.
    #[error("asset '{key}' is outside the bundle: {path}")]
    OutsideAsset {
        /// Its role.
        key: String,
        /// The path that leads outside.
        path: String,
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
        if self.path.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.path)
        }
    }

    fn get<T>(
        &self,
        key: &str,
        what: &str,
        read: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, BundleError> {
        match self.map.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => read(value).map(Some).ok_or_else(|| BundleError::Malformed {
                file: "metadata.json".into(),
                reason: format!("field '{}' is not {what}", self.name(key)),
            }),
        }
    }

    fn require<T>(
        &self,
        key: &str,
        what: &str,
        read: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<T, BundleError> {
        self.get(key, what, read)?
            .ok_or_else(|| BundleError::MissingField(self.name(key)))
    }

    fn size(&self, key: &str) -> Result<Option<usize>, BundleError> {
        self.get(key, "a positive integer", |v| {
            v.as_u64()
                .and_then(|n| usize::try_from(n).ok())
                .filter(|&n| n > 0)
        })
    }
}

fn object(value: &Value) -> Option<&Map<String, Value>> {
    value.as_object()
}

/// String pairs of an object; `None` where a value is not text.
fn texts(value: &Value) -> Option<Vec<(String, String)>> {
    value
        .as_object()?
        .iter()
        .map(|(k, v)| Some((k.clone(), v.as_str()?.to_owned())))
        .collect()
}

/// Roles and their functions; `None` where an entry is not a list of texts.
fn functions(value: &Value) -> Option<Vec<(String, Vec<String>)>> {
    let names = |v: &Value| {
        v.as_array()?
            .iter()
            .map(|n| n.as_str().map(str::to_owned))
            .collect::<Option<Vec<_>>>()
    };
    value
        .as_object()?
        .iter()
        .map(|(role, v)| Some((role.clone(), names(v)?)))
        .collect()
}

impl ModelBundle {
    /// Reads the metadata of a bundle.
    pub fn read(source: &dyn Source) -> Result<Self, BundleError> {
        let location = source.location();
        let asset = |e: &std::ffi::OsStr| {
            e.eq_ignore_ascii_case("aimodel") || e.eq_ignore_ascii_case("aimodelc")
        };
        if location.extension().is_some_and(asset) {
            return Err(BundleError::PointedAtModelAsset(location.to_owned()));
        }
        let bytes = match source.read("metadata.json") {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                return Err(BundleError::MissingMetadata(location.join("metadata.json")));
            }
            other => other.map_err(|source| BundleError::Io {
                file: "metadata.json".into(),
                source,
            })?,
        };
        Self::parse(&bytes)
    }

    fn parse(bytes: &[u8]) -> Result<Self, BundleError> {
        let malformed = |reason: String| BundleError::Malformed {
            file: "metadata.json".into(),
            reason,
        };
        let value: Value = serde_json::from_slice(bytes).map_err(|e| malformed(e.to_string()))?;
        let Value::Object(raw) = value else {
            return Err(malformed("it is not an object".into()));
        };
        let top = Fields {
            map: &raw,
            path: "",
        };
        let version = match raw.get("metadata_version") {
            None => "0.1".to_owned(),
            Some(Value::String(v)) => v.clone(),
            Some(other) => other.to_string(),
        };
        if version != METADATA_VERSION {
            return Err(BundleError::UnsupportedVersion(version));
        }
        let kind = top.require("kind", "text", Value::as_str)?;
        let kind =
            BundleKind::parse(kind).ok_or_else(|| malformed(format!("unknown kind '{kind}'")))?;
        let name = top.require("name", "text", Value::as_str)?.to_owned();
        let assets = top
            .get("assets", "an object of paths", texts)?
            .unwrap_or_default();
        let user_data = top
            .get("user_data", "an object of texts", texts)?
            .unwrap_or_default();
        Ok(Self {
            kind,
            name,
            assets,
            user_data,
            raw,
        })
    }

    /// The relative path that the metadata gives an asset.
    ///
    /// # Errors
    /// [`BundleError::MissingField`] for a role the bundle does not have, [`BundleError::OutsideAsset`] for a path that leaves
    /// the bundle.
    pub fn asset(&self, key: &str) -> Result<&str, BundleError> {
        let missing = || BundleError::MissingField(format!("assets.{key}"));
        let (_, path) = self
            .assets
            .iter()
            .find(|(k, _)| k == key)
            .ok_or_else(missing)?;
        let inside = |c: Component<'_>| matches!(c, Component::Normal(_) | Component::CurDir);
        if path.is_empty() || !Path::new(path).components().all(inside) {
            return Err(BundleError::OutsideAsset {
                key: key.into(),
                path: path.clone(),
            });
        }
        Ok(path)
    }

    /// The relative path of an asset that is there and can run anywhere.
    ///
    /// # Errors
    /// Those of [`ModelBundle::asset`]; [`BundleError::CompiledAsset`] where only a compiled form is there (`x.aimodelc` or
    /// `x.ARCHITECTURE.aimodelc` for `x.aimodel`, contract B §2.10), [`BundleError::MissingAsset`] where nothing is.
    pub fn require(&self, source: &dyn Source, key: &str) -> Result<&str, BundleError> {
        let path = self.asset(key)?;
        if let Some(stem) = path
            .strip_suffix(".aimodelc")
            .filter(|_| source.exists(path))
        {
            return Err(self.compiled(
                key,
                path,
                stem.rsplit_once('.').map(|(_, architecture)| architecture),
            ));
        }
        if source.exists(path) {
            return Ok(path);
        }
        match compiled_form(source, path) {
            Some((path, architecture)) => Err(self.compiled(key, &path, architecture.as_deref())),
            None => Err(BundleError::MissingAsset {
                key: key.into(),
                path: source.location().join(path).display().to_string(),
            }),
        }
    }

    /// Checks that every asset is there and can run anywhere.
    ///
    /// # Errors
    /// Those of [`ModelBundle::require`] for the first asset in the order of the file that is not.
    pub fn verify(&self, source: &dyn Source) -> Result<(), BundleError> {
        self.assets
            .iter()
            .try_for_each(|(key, _)| self.require(source, key).map(drop))
    }

    /// The architecture comes from the asset's name, else from `compilation.targets`.
    fn compiled(&self, key: &str, path: &str, architecture: Option<&str>) -> BundleError {
        let targets = self
            .raw
            .get("compilation")
            .and_then(|c| c.get("targets"))
            .and_then(Value::as_array);
        let targets: Vec<&str> = targets
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let architecture = match architecture {
            Some(name) => name.to_owned(),
            None if targets.is_empty() => "a device".to_owned(),
            None => targets.join(", "),
        };
        BundleError::CompiledAsset {
            key: key.into(),
            path: path.into(),
            architecture,
        }
    }
}

/// A compiled form of `x.aimodel`, with the architecture where its name has one.
fn compiled_form(source: &dyn Source, path: &str) -> Option<(String, Option<String>)> {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let stem = name.strip_suffix(".aimodel")?;
    source.list(folder).ok()?.into_iter().find_map(|file| {
        let middle = file.strip_prefix(stem)?.strip_suffix(".aimodelc")?;
        let architecture = if middle.is_empty() {
            None
        } else {
            Some(middle.strip_prefix('.')?.to_owned())
        };
        Some((
            if folder.is_empty() {
                file.clone()
            } else {
                format!("{folder}/{file}")
            },
            architecture,
        ))
    })
}

impl LanguageBundle {
    /// Reads a language bundle: its kind, the path of its main asset, its language part, for a vision-language model that it
    /// has a `vision` part, in this order; then that the main asset is there.
    ///
    /// # Errors
    /// Any [`BundleError`], for the first of these that fails.
    pub fn read(source: &dyn Source) -> Result<Self, BundleError> {
        let model = ModelBundle::read(source)?;
        if !matches!(model.kind, BundleKind::Llm | BundleKind::Vlm) {
            return Err(BundleError::KindMismatch {
                expected: "llm",
                got: model.kind.name().into(),
            });
        }
        model.asset("main")?;
        let top = Fields {
            map: &model.raw,
            path: "",
        };
        let language = LanguageConfig::read(&Fields {
            map: top.require("language", "an object", object)?,
            path: "language",
        })?;
        if model.kind == BundleKind::Vlm {
            top.require("vision", "an object", object)?;
        }
        let main = model.require(source, "main")?.to_owned();
        Ok(Self {
            model,
            language,
            main,
        })
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

    fn read(fields: &Fields<'_>) -> Result<Self, BundleError> {
        let ids = |v: &Value| match v {
            Value::Array(items) => items
                .iter()
                .map(|i| u32::try_from(i.as_u64()?).ok())
                .collect(),
            one => Some(vec![u32::try_from(one.as_u64()?).ok()?]),
        };
        let missing = |key: &str| BundleError::MissingField(fields.name(key));
        Ok(Self {
            tokenizer: fields
                .require("tokenizer", "text", Value::as_str)?
                .to_owned(),
            vocab_size: fields
                .size("vocab_size")?
                .ok_or_else(|| missing("vocab_size"))?,
            max_context_length: fields
                .size("max_context_length")?
                .ok_or_else(|| missing("max_context_length"))?,
            embedded_tokenizer: fields
                .get("embedded_tokenizer", "true or false", Value::as_bool)?
                .unwrap_or(true),
            function_map: fields
                .get("function_map", "an object of lists of names", functions)?
                .unwrap_or_default(),
            states: fields
                .get("states", "an object of kinds", texts)?
                .unwrap_or_default(),
            eos_token_ids: fields
                .get("eos_token_ids", "a token or a list of tokens", ids)?
                .unwrap_or_default(),
            prefill_chunk_size: fields.size("prefill_chunk_size")?,
            prefill_chunk_threshold: fields.size("prefill_chunk_threshold")?,
        })
    }
}

#[cfg(test)]
mod tests;
