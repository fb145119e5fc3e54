//! Opening a model: a bundle (a folder, a zip archive, any [`Source`]), a bare `.aimodel`, a GGUF file, a folder of Core ML
//! packages in ANEMLL's layout, or a Hugging Face checkpoint.

use std::fs;
use std::io::Read;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use russet_formats::aimodel::{self, AimodelAsset};
use russet_formats::checkpoint as formats;
use russet_formats::coreml::CoremlError;
use russet_formats::gguf::{self, Gguf, GgufTokenizer};
use russet_graph::exec::{CacheKind, Plan, PlanError, Precision};
use russet_graph::graph::Module;
use russet_graph::infer::NodeError;
use russet_graph::passes;
use russet_graph::verify::{Violation, verify};
use russet_kernels::mem::{FileMap, SharedBytes};
use serde_json::Value;

use crate::bundle::{
    AnemllBundle, ArchiveSource, BundleError, DirectorySource, LanguageBundle, Source, inside,
    regular,
};
use crate::checkpoint;
use crate::coreml;
use crate::engine::{
    AnemllEngine, Engine, EngineError, EngineVariant, KvCacheStrategy, SequentialEngine, Token,
};
use crate::grammar::{Constraint, Grammar, GrammarError, Vocabulary};
use crate::response::{ReasoningFormat, ResponseFormat};
use crate::runnable::{Runnable, digest};
use crate::sample::SamplingError;
use crate::session::Session;
use crate::stop::{StopSources, stop_tokens};
use crate::template::{ChatTemplate, Message, RenderOptions, TemplateError};
use crate::tensors::TensorFileError;
use crate::tokenizer::{self, Tokenizer, TokenizerError};

/// The function that runs where nothing says another.
const MAIN: &str = "main";
/// The folder of the tokenizer's files in a bundle.
const TOKENIZER: &str = "tokenizer";
/// The most tokens to hold where nothing says.
const DEFAULT_CONTEXT: usize = 4096;

/// Anything that can go wrong between a path and an answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The bundle.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// A file that cannot be read.
    #[error("cannot read {path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A file of another kind.
    #[error(
        "{0} is no model: russet reads bundles (folders or zip archives with a metadata.json), folders of Core ML packages (with a meta.yaml), checkpoints (folders with a config.json and model.safetensors), .aimodel folders and GGUF files"
    )]
    NoModel(PathBuf),
    /// A model asset that is broken.
    #[error("{path}: {source}")]
    Asset {
        /// The asset.
        path: PathBuf,
        /// Why.
        #[source]
        source: aimodel::AssetError,
    },
    /// A Core ML package that is broken.
    #[error("{path}: {source}")]
    Coreml {
        /// The package.
        path: PathBuf,
        /// Why.
        #[source]
        source: CoremlError,
    },
    /// A graph that cannot be widened.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// A GGUF file that is broken.
    #[error("{path}: {source}")]
    Gguf {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: gguf::GgufError,
    },
    /// A checkpoint that cannot become a graph.
    #[error("{path}: {source}")]
    Checkpoint {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: formats::CheckpointError,
    },
    /// A graph that breaks a rule.
    #[error("the program is inconsistent: {0}")]
    Graph(#[from] Violation),
    /// A function that cannot be planned.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The engine.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The tokenizer.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The chat template.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// A sampling number.
    #[error(transparent)]
    Sampling(#[from] SamplingError),
    /// A constraint of what is generated.
    #[error(transparent)]
    Grammar(#[from] GrammarError),
    /// A file of tensors: a saved session.
    #[error(transparent)]
    Tensors(#[from] TensorFileError),
    /// Something the model lacks.
    #[error("{0}")]
    Missing(String),
}

/// How to open a model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenOptions {
    /// Plan the model and pack its weights when they are first needed, not when it is opened.
    pub lazy: bool,
    /// Threads; 0 for one a CPU.
    pub threads: usize,
    /// The most tokens to hold; the model's own limit by default, and never more than that.
    pub max_context: Option<usize>,
    /// How closely to follow the file's arithmetic; fast by default.
    pub precision: Precision,
    /// Compute in f32 what the file says in f16, states included; weights keep their values. Wants exact precision, and costs
    /// memory and time: it tells errors of a program from those of its arithmetic. Of Core ML packages only; checkpoints are
    /// computed so in any case.
    pub float32: bool,
    /// Read weights where the file's map has them, and keep no copy in another layout: less memory, slower products.
    pub no_repack: bool,
    /// Make logits for every token of a prompt, as the function does, and not for the last one only.
    pub all_logits: bool,
    /// Which engine; `None` leaves it to the model's structure ([`EngineVariant::select`]).
    pub variant: Option<EngineVariant>,
    /// How caches get their memory.
    pub kv_cache: KvCacheStrategy,
    /// What keys and values are kept as; codes of eight bits only in fast precision.
    pub kv_cache_kind: CacheKind,
    /// Tokens that growing caches have room for at first, and caches of fixed size for good.
    pub kv_capacity: Option<usize>,
    /// Of [`KvCacheStrategy::Chunked`], the tokens at the start that are never forgotten; 4 where nothing is said.
    pub attention_sinks: Option<usize>,
    /// Tokens of a long prompt that are processed at once; the bundle's word, else 512.
    pub chunk: Option<usize>,
    /// Prompts up to this length are processed in one piece; the bundle's word, else twice the chunk.
    pub chunk_threshold: Option<usize>,
    /// The same where neither the caller nor the bundle says anything; longer prompts are then cut into chunks of this length, or
    /// 512 (`COREAI_CHUNK_THRESHOLD`, contract F 1.5).
    pub default_chunk_threshold: Option<usize>,
}

/// Where a model came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelSource {
    /// A bundle directory.
    Bundle,
    /// A bare model asset.
    Asset,
    /// A GGUF file.
    Gguf,
    /// A bundle in a zip archive.
    Archive,
    /// A Core ML package.
    Coreml,
    /// A folder of Core ML packages in ANEMLL's layout.
    Anemll,
    /// A Hugging Face checkpoint: weights with a config.
    Checkpoint,
}

/// Kinds of folders by the extension of their names.
const FOLDERS: [(&str, ModelSource); 3] = [
    ("aimodel", ModelSource::Asset),
    ("mlmodelc", ModelSource::Coreml),
    ("mlpackage", ModelSource::Coreml),
];

impl ModelSource {
    /// What is at a path: a folder is a bundle; without a `metadata.json`, ANEMLL's where it has a `meta.yaml`, and a checkpoint where
    /// it has a `config.json` and `model.safetensors` or the index of its shards; or an asset or package
    /// where its name ends in `.aimodel`, `.mlpackage` or `.mlmodelc`; a file is a GGUF file or a zip archive where its name or its first bytes
    /// say so.
    ///
    /// # Errors
    /// [`Error::Io`] where nothing is there, [`Error::NoModel`] for any other file.
    pub fn of(path: &Path) -> Result<Self, Error> {
        let io = |source| Error::Io {
            path: path.into(),
            source,
        };
        let ends = |end: &str| {
            path.extension()
                .is_some_and(|e| e.eq_ignore_ascii_case(end))
        };
        let kind = fs::metadata(path).map_err(io)?;
        if kind.is_dir() {
            let folder = DirectorySource::new(path);
            let files: &dyn Source = &folder;
            let named = FOLDERS.iter().find(|(end, _)| ends(end));
            let otherwise = match files {
                _ if files.exists("metadata.json") => Self::Bundle,
                _ if AnemllBundle::is_at(files) => Self::Anemll,
                _ if checkpoint::is_at(files) => Self::Checkpoint,
                _ => Self::Bundle,
            };
            return Ok(named.map_or(otherwise, |(_, kind)| *kind));
        }
        if ends("gguf") {
            return Ok(Self::Gguf);
        }
        if ends("zip") {
            return Ok(Self::Archive);
        }
        let mut start = Vec::new();
        if kind.is_file() {
            let mut file = fs::File::open(path).map_err(io)?.take(4);
            file.read_to_end(&mut start).map_err(io)?;
        }
        match &start[..] {
            b"GGUF" => Ok(Self::Gguf),
            b"PK\x03\x04" => Ok(Self::Archive),
            _ => Err(Error::NoModel(path.into())),
        }
    }
}

/// What can be done with a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ModelCapabilities {
    /// It has a way to call tools.
    pub tool_calling: bool,
    /// It marks what it says to itself.
    pub reasoning: bool,
    /// It has a tokenizer; without one it takes and gives tokens only.
    pub text: bool,
    /// Answers can be held to a grammar: whatever engine runs it, where it has a tokenizer.
    pub guided_generation: bool,
}

/// A model ready to run: planned once, shared by all conversations over it. A clone is the same model.
#[derive(Clone, Debug)]
pub struct Model {
    name: String,
    source: ModelSource,
    runnable: Arc<Runnable>,
    fingerprint: Arc<OnceLock<String>>,
    words: Arc<Words>,
    decoder: Option<DecoderSize>,
}

/// The size of a decoder whose config was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DecoderSize {
    /// Width of the residual stream.
    pub(crate) hidden: usize,
    /// Layers.
    pub(crate) layers: usize,
}

impl DecoderSize {
    fn of(config: &formats::DecoderConfig) -> Option<Self> {
        Some(Self {
            hidden: config.hidden,
            layers: config.layers.len(),
        })
    }
}

/// What turns text into tokens and back.
#[derive(Debug, Default)]
struct Words {
    tokenizer: Option<Tokenizer>,
    template: Option<ChatTemplate>,
    stops: Vec<Token>,
    format: ResponseFormat,
    /// The tokens as grammars see them, made when the first is asked for.
    vocabulary: OnceLock<Arc<Vocabulary>>,
}

impl Words {
    /// Says how the model marks what it writes, and that a turn ends where its channels do.
    fn finished(mut self) -> Self {
        if let Some(tokenizer) = &self.tokenizer {
            self.format = ResponseFormat::of(tokenizer, self.template.as_ref());
            let end = tokenizer.id("<|eot|>");
            if self.format.reasoning == ReasoningFormat::Channels {
                self.stops.extend(end.filter(|t| !self.stops.contains(t)));
            }
        }
        self
    }

    /// Tokenizer, template and stop tokens from a folder; nothing where it has no tokenizer.
    fn of_folder(source: &dyn Source, folder: &str, ids: &[u32]) -> Result<Self, Error> {
        let Some(bytes) = optional(source, &inside(folder, "tokenizer.json"))? else {
            return Ok(Self::default());
        };
        let tokenizer = Tokenizer::from_json(&bytes)?;
        let config = optional_json(source, &inside(folder, "tokenizer_config.json"))?;
        let generation = optional_json(source, &inside(folder, "generation_config.json"))?;
        let template = ChatTemplate::read(source, folder, config.as_ref())?;
        let sources = StopSources {
            tokenizer_config: config.as_ref(),
            generation_config: generation.as_ref(),
            ids,
        };
        let this = Self {
            stops: stop_tokens(&tokenizer, sources),
            tokenizer: Some(tokenizer),
            template,
            ..Self::default()
        };
        Ok(this.finished())
    }

    /// Tokenizer, templates and stop tokens from the metadata of a GGUF file; nothing where it has none.
    fn of_gguf(file: &Gguf, path: &Path) -> Result<Self, Error> {
        let vocabulary = file.tokenizer().map_err(|source| Error::Gguf {
            path: path.into(),
            source,
        })?;
        vocabulary.map_or_else(|| Ok(Self::default()), |v| Self::of_vocabulary(&v))
    }

    fn of_vocabulary(vocabulary: &GgufTokenizer) -> Result<Self, Error> {
        let tokenizer = tokenizer::from_gguf(vocabulary)?;
        let sources = StopSources {
            ids: &vocabulary.stop_tokens(),
            ..StopSources::default()
        };
        let stops = stop_tokens(&tokenizer, sources);
        let mut template = vocabulary.chat_template.as_deref().map(ChatTemplate::new);
        if let Some(template) = &mut template {
            for (name, text) in &vocabulary.named_templates {
                template.add(name, &**text);
            }
            for (name, id) in [("bos_token", vocabulary.bos), ("eos_token", vocabulary.eos)] {
                if let Some(text) = id.and_then(|id| tokenizer.token(id)) {
                    template.set_token(name, text);
                }
            }
        }
        let this = Self {
            tokenizer: Some(tokenizer),
            template,
            stops,
            ..Self::default()
        };
        Ok(this.finished())
    }
}

/// Does both at once: reading a tokenizer takes about as long as packing a small model's weights. The first error is `model`'s.
fn beside<T: Send>(
    words: impl FnOnce() -> Result<Words, Error> + Send,
    model: impl FnOnce() -> Result<T, Error>,
) -> Result<(T, Words), Error> {
    std::thread::scope(|scope| {
        let words = scope.spawn(words);
        let model = model()?;
        let words = words.join().unwrap_or_else(|panic| resume_unwind(panic))?;
        Ok((model, words))
    })
}

impl Model {
    /// Opens whatever is at a path.
    ///
    /// # Errors
    /// Any [`Error`]: what is at the path is no model, a part of it is broken or missing, or it cannot be planned.
    pub fn open(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Self, Error> {
        let path = path.as_ref();
        match ModelSource::of(path)? {
            ModelSource::Gguf => Self::open_gguf(path, options),
            ModelSource::Asset => Self::open_asset(path, options),
            ModelSource::Anemll => Self::open_anemll(&DirectorySource::new(path), options),
            ModelSource::Checkpoint => Self::open_checkpoint(&DirectorySource::new(path), options),
            ModelSource::Coreml => Err(Error::Missing(format!(
                "{}: one package is a part of a model; open the folder with the meta.yaml that names it",
                path.display()
            ))),
            kind => Ok(Self {
                source: kind,
                ..Self::open_source(&*files(path)?, options)?
            }),
        }
    }

    /// Opens the bundle of a source: a folder, an archive, memory.
    ///
    /// # Errors
    /// As for [`Model::open`].
    pub fn open_source(source: &dyn Source, options: &OpenOptions) -> Result<Self, Error> {
        let bundle = LanguageBundle::read(source)?;
        let language = &bundle.language;
        let (this, words) = beside(
            || Words::of_folder(source, TOKENIZER, &language.eos_token_ids),
            || {
                let module = module_in(source, &bundle.main)?;
                let (main, name) = (language.main_function(), bundle.model.name.clone());
                let context = language.max_context_length;
                let mut runnable = Runnable::new(module, main, context, options)?;
                runnable.configure(language, options);
                Ok(Self::new(name, ModelSource::Bundle, runnable))
            },
        )?;
        let this = this.with(words);
        if this.words.tokenizer.is_none() && !bundle.language.embedded_tokenizer {
            return Err(Error::Missing(format!(
                "{}: the tokenizer is not in the bundle; put the tokenizer.json of {} into its tokenizer/ directory",
                source.location().display(),
                bundle.language.tokenizer
            )));
        }
        Ok(this)
    }

    fn open_asset(path: &Path, options: &OpenOptions) -> Result<Self, Error> {
        let module = module_in(&DirectorySource::new(path), "")?;
        let runnable = Runnable::new(module, MAIN, DEFAULT_CONTEXT, options)?;
        let this = Self::new(stem(path), ModelSource::Asset, runnable);
        // An asset inside a bundle's directory has the bundle's tokenizer beside it.
        let words = path
            .parent()
            .map(|p| Words::of_folder(&DirectorySource::new(p), TOKENIZER, &[]));
        Ok(this.with(words.transpose()?.unwrap_or_default()))
    }

    /// Opens a folder of Core ML packages in ANEMLL's layout.
    ///
    /// # Errors
    /// As for [`Model::open`].
    pub fn open_anemll(source: &dyn Source, options: &OpenOptions) -> Result<Self, Error> {
        let mut bundle = AnemllBundle::read(source)?;
        let config = optional_json(source, "config.json")?;
        let ids = config.as_ref().map(stop_ids).unwrap_or_default();
        let (this, words) = beside(
            || Words::of_folder(source, "", &ids),
            || {
                let mut module = coreml::joined(source, &mut bundle)?;
                if options.float32 {
                    passes::widen(&mut module)?;
                }
                let name = bundle.name.clone();
                let runnable = Runnable::of_parts(module, bundle, options)?;
                Ok(Self::new(name, ModelSource::Anemll, runnable))
            },
        )?;
        Ok(this.with(words))
    }

    /// Opens a Hugging Face checkpoint: in f32, whatever its weights are kept in.
    ///
    /// # Errors
    /// As for [`Model::open`].
    pub fn open_checkpoint(source: &dyn Source, options: &OpenOptions) -> Result<Self, Error> {
        let config = optional_json(source, formats::CONFIG)?;
        let ids = config.as_ref().map(stop_ids).unwrap_or_default();
        let (this, words) = beside(
            || Words::of_folder(source, "", &ids),
            || {
                let folder = checkpoint::read_checkpoint_in(source)?;
                let model = checkpoint::build_checkpoint_in(source, &folder, context(options))?;
                let (context, decoder) = (model.config.context, DecoderSize::of(&model.config));
                let runnable = Runnable::new(model.module, MAIN, context, options)?;
                let name = source.location().file_name().unwrap_or_default();
                let name = name.to_string_lossy().into_owned();
                let this = Self::new(name, ModelSource::Checkpoint, runnable);
                Ok(Self { decoder, ..this })
            },
        )?;
        Ok(this.with(words))
    }

    fn open_gguf(path: &Path, options: &OpenOptions) -> Result<Self, Error> {
        let file = read_gguf(path)?;
        let context = context(options);
        let model = formats::from_gguf(&file, context).map_err(|source| Error::Checkpoint {
            path: path.into(),
            source,
        })?;
        let (this, words) = beside(
            || Words::of_gguf(&file, path),
            || {
                let context = model.config.context;
                let runnable = Runnable::new(model.module, MAIN, context, options)?;
                Ok(Self::new(stem(path), ModelSource::Gguf, runnable))
            },
        )?;
        Ok(this.with(words))
    }

    /// A model of a program alone, without words.
    #[cfg(test)]
    pub(crate) fn of_module(
        module: Module,
        context: usize,
        options: &OpenOptions,
    ) -> Result<Self, Error> {
        let runnable = Runnable::new(module, MAIN, context, options)?;
        Ok(Self::new("module".into(), ModelSource::Asset, runnable))
    }

    fn new(name: String, source: ModelSource, runnable: Runnable) -> Self {
        Self {
            name,
            source,
            runnable: Arc::new(runnable),
            fingerprint: Arc::default(),
            words: Arc::default(),
            decoder: None,
        }
    }

    fn with(self, words: Words) -> Self {
        Self {
            words: Arc::new(words),
            ..self
        }
    }

    /// Plans the model and packs its weights, unless that is done. Several threads that ask share one load; one that failed is tried
    /// again.
    ///
    /// # Errors
    /// [`Error::Plan`] where a function cannot be planned.
    pub fn load(&self) -> Result<(), Error> {
        self.runnable.load()
    }

    /// Whether it is planned.
    pub fn is_loaded(&self) -> bool {
        self.runnable.is_loaded()
    }

    /// Lets go of plans and packed weights; what is needed again is loaded again. Conversations that go on keep theirs, so nothing
    /// is pulled from under an answer.
    pub fn unload(&self) {
        self.runnable.unload();
    }

    /// What can be done with it: the same whether it is loaded or not (contract B §8.2, §7.8).
    pub fn capabilities(&self) -> ModelCapabilities {
        ModelCapabilities {
            tool_calling: self.words.format.tools,
            reasoning: self.words.format.reasoning != ReasoningFormat::None,
            text: self.words.tokenizer.is_some(),
            guided_generation: self.words.tokenizer.is_some(),
        }
    }

    /// How it marks reasoning and calls of tools.
    pub fn response_format(&self) -> &ResponseFormat {
        &self.words.format
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it came from.
    pub fn source(&self) -> ModelSource {
        self.source
    }

    /// The program.
    pub fn module(&self) -> &Module {
        &self.runnable.module
    }

    /// Its size, where a config told it.
    pub(crate) fn decoder(&self) -> Option<DecoderSize> {
        self.decoder
    }

    /// The functions that take single tokens, in the order they run; none where all take several.
    pub fn main_functions(&self) -> Vec<String> {
        self.runnable.main_functions()
    }

    /// Whether several programs run one after another.
    pub(crate) fn in_parts(&self) -> bool {
        self.runnable.in_parts()
    }

    /// The same model with another program, which is planned when it is needed.
    pub(crate) fn with_module(&self, module: Module) -> Self {
        Self {
            runnable: Arc::new(self.runnable.with_module(module)),
            fingerprint: Arc::default(),
            ..self.clone()
        }
    }

    /// The plan of the function that runs; `None` for a model whose functions have fixed shapes, which has many.
    ///
    /// # Errors
    /// Those of [`Model::load`].
    pub fn function(&self) -> Result<Option<Arc<Plan>>, Error> {
        self.runnable.plan()
    }

    /// The engine that runs it.
    pub fn variant(&self) -> EngineVariant {
        self.runnable.variant
    }

    /// The threads it computes with.
    pub fn threads(&self) -> usize {
        self.runnable.pool.threads()
    }

    /// The most tokens it holds.
    pub fn max_context(&self) -> usize {
        self.runnable.context()
    }

    /// Whether a call gives the logits of every token it processes.
    pub(crate) fn makes_all_logits(&self) -> bool {
        self.runnable.makes_all_logits()
    }

    /// Entries of the vocabulary, as the logits have them; `usize::MAX` where the program does not say.
    pub fn vocabulary(&self) -> usize {
        self.runnable.vocabulary()
    }

    /// Its name and a number that tells its program from others: what saved sessions are of.
    pub fn fingerprint(&self) -> &str {
        let make = || format!("{} {:016x}", self.name, digest(self.module()));
        self.fingerprint.get_or_init(make)
    }

    /// The tokenizer; an error where the model has none.
    pub fn tokenizer(&self) -> Result<&Tokenizer, Error> {
        self.words.tokenizer.as_ref().ok_or_else(|| {
            Error::Missing(format!(
                "{}: there is no tokenizer beside the model; put its tokenizer.json into a folder tokenizer/ there",
                self.name
            ))
        })
    }

    /// Compiles a constraint for what is generated, for [`GenerateOptions::constraint`](crate::GenerateOptions::constraint); the
    /// same one a second time is there already.
    ///
    /// # Errors
    /// [`GrammarError`] with the place in the schema or grammar; [`Error::Missing`] without a tokenizer.
    pub fn grammar(&self, constraint: &Constraint) -> Result<Grammar, Error> {
        Ok(Grammar::new(self.grammar_vocabulary()?, constraint)?)
    }

    /// The tokens that a grammar sees, with a mask as wide as the logits; made once.
    ///
    /// # Errors
    /// [`Error::Missing`] without a tokenizer, [`GrammarError::Vocabulary`](crate::grammar::GrammarError) for one that grammars cannot use.
    pub fn grammar_vocabulary(&self) -> Result<&Arc<Vocabulary>, Error> {
        if let Some(made) = self.words.vocabulary.get() {
            return Ok(made);
        }
        let tokenizer = self.tokenizer()?;
        // A program that does not say how many logits it gives has one for each token.
        let tokens = tokenizer.largest_id() as usize + 1;
        let logits = Some(self.vocabulary()).filter(|n| *n != usize::MAX);
        let made = Vocabulary::new(tokenizer, self.stop_tokens(), logits.unwrap_or(tokens))?;
        Ok(self.words.vocabulary.get_or_init(|| made))
    }

    /// The chat template, where there is one.
    pub fn template(&self) -> Option<&ChatTemplate> {
        self.words.template.as_ref()
    }

    /// Tokens that end a turn.
    pub fn stop_tokens(&self) -> &[Token] {
        &self.words.stops
    }

    /// The text of a conversation, by the chat template; and whether the tokenizer shall put its own tokens around it. Without a
    /// template, the messages' texts joined by line breaks.
    pub(crate) fn render(
        &self,
        messages: &[Message],
        options: &RenderOptions,
    ) -> Result<(String, bool), Error> {
        if let Some(template) = &self.words.template {
            return Ok((template.render(messages, options)?, false));
        }
        let texts: Vec<&str> = messages.iter().map(|m| m.content.as_str()).collect();
        Ok((texts.join("\n"), true))
    }

    /// The tokens of a conversation, by the chat template. Without one, of the messages' texts joined by line breaks.
    ///
    /// # Errors
    /// Those of the template and the tokenizer.
    pub fn prompt(
        &self,
        messages: &[Message],
        options: &RenderOptions,
    ) -> Result<Vec<Token>, Error> {
        let (text, special) = self.render(messages, options)?;
        Ok(self.tokenizer()?.encode(&text, special)?)
    }

    /// The tokens of a text as it stands, with the tokens the tokenizer puts around a text.
    pub fn plain_prompt(&self, text: &str) -> Result<Vec<Token>, Error> {
        Ok(self.tokenizer()?.encode(text, true)?)
    }

    /// A new engine with empty caches.
    ///
    /// # Errors
    /// [`Error::Engine`] where the functions are none of a language model, the caches cannot be as they were asked to be, or
    /// memory is short.
    pub fn engine(&self) -> Result<Box<dyn Engine>, Error> {
        self.runnable.engine()
    }

    /// A new engine over one dynamic function, with its calls and states open to view.
    ///
    /// # Errors
    /// Those of [`Model::engine`]; where the model has functions of fixed shapes.
    pub fn sequential(&self) -> Result<SequentialEngine, Error> {
        self.runnable.sequential()
    }

    /// A new engine over a model in parts, with its states open to view.
    ///
    /// # Errors
    /// Those of [`Model::engine`]; where the model is not in ANEMLL's layout.
    pub fn anemll(&self) -> Result<AnemllEngine, Error> {
        self.runnable.anemll()
    }

    /// A new conversation.
    ///
    /// # Errors
    /// Those of [`Model::engine`].
    pub fn session(&self) -> Result<Session, Error> {
        Ok(Session::new(self.clone(), self.engine()?))
    }
}

/// How long the caches of a checkpoint are.
fn context(options: &OpenOptions) -> formats::Options {
    formats::Options {
        context: options.max_context,
        ..formats::Options::default()
    }
}

/// The tokens that end an answer by a checkpoint's `config.json`: a number or several.
fn stop_ids(config: &Value) -> Vec<u32> {
    let id = |v: &Value| u32::try_from(v.as_u64()?).ok();
    match &config["eos_token_id"] {
        Value::Array(list) => list.iter().filter_map(id).collect(),
        one => id(one).into_iter().collect(),
    }
}

/// The name of a file or folder without its extension.
fn stem(path: &Path) -> String {
    let stem = path.file_stem().map(|s| s.to_string_lossy());
    stem.map_or_else(String::new, |s| s.into_owned())
}

fn map(path: &Path) -> Result<SharedBytes, Error> {
    let map = regular(path).and_then(|()| FileMap::open(path));
    let map = map.map_err(|source| Error::Io {
        path: path.into(),
        source,
    })?;
    Ok(SharedBytes::from_map(map))
}

/// The files of a bundle at a path: those of a folder, or of a zip archive.
///
/// # Errors
/// [`Error::Io`] where nothing is there, [`Error::Bundle`] for an archive that is refused.
pub fn files(path: &Path) -> Result<Box<dyn Source>, Error> {
    Ok(match ModelSource::of(path)? {
        ModelSource::Archive => Box::new(ArchiveSource::open(path)?),
        _ => Box::new(DirectorySource::new(path)),
    })
}

/// Reads a model asset: the program is mapped, weights are not touched.
pub fn read_asset(path: &Path) -> Result<AimodelAsset, Error> {
    read_asset_in(&DirectorySource::new(path), "")
}

/// Reads the model asset in a folder of a source; `""` is the source itself.
///
/// # Errors
/// [`Error::Io`] where a file cannot be read, [`Error::Asset`] where the asset is broken.
pub fn read_asset_in(source: &dyn Source, folder: &str) -> Result<AimodelAsset, Error> {
    let name = inside(folder, aimodel::PROGRAM);
    let program = source.map(&name).map_err(|e| unread(source, &name, e))?;
    let metadata = optional(source, &inside(folder, aimodel::METADATA))?;
    let text = metadata.as_deref().map(String::from_utf8_lossy);
    let hash = optional(source, &inside(folder, aimodel::HASH))?;
    AimodelAsset::open(program, text.as_deref(), hash.as_deref()).map_err(|error| Error::Asset {
        path: place(source, folder),
        source: error,
    })
}

/// Reads a GGUF file: the file is mapped, weights are not touched.
pub fn read_gguf(path: &Path) -> Result<Gguf, Error> {
    Gguf::read(map(path)?).map_err(|source| Error::Gguf {
        path: path.into(),
        source,
    })
}

/// Reads the program of a model asset as a module that verifies.
pub fn open_module(path: &Path) -> Result<Module, Error> {
    open_module_in(&DirectorySource::new(path), "")
}

/// Reads the program of the asset in a folder of a source as a module that verifies.
///
/// # Errors
/// Those of [`read_asset_in`]; [`Error::Graph`] for a program that is inconsistent.
pub fn open_module_in(source: &dyn Source, folder: &str) -> Result<Module, Error> {
    let module = module_in(source, folder)?;
    verify(&module)?;
    Ok(module)
}

fn module_in(source: &dyn Source, folder: &str) -> Result<Module, Error> {
    if coreml::is_package(source, folder) {
        return coreml::module_in(source, folder);
    }
    read_asset_in(source, folder)?
        .module()
        .map_err(|error| Error::Asset {
            path: place(source, folder),
            source: error,
        })
}

/// What to call a file of a source.
fn place(source: &dyn Source, name: &str) -> PathBuf {
    match name {
        "" => source.location().into(),
        name => source.location().join(name),
    }
}

fn unread(source: &dyn Source, name: &str, error: std::io::Error) -> Error {
    Error::Io {
        path: place(source, name),
        source: error,
    }
}

fn optional(source: &dyn Source, name: &str) -> Result<Option<Vec<u8>>, Error> {
    source
        .read_optional(name)
        .map_err(|e| unread(source, name, e))
}

fn optional_json(source: &dyn Source, name: &str) -> Result<Option<Value>, Error> {
    let Some(bytes) = optional(source, name)? else {
        return Ok(None);
    };
    let value = serde_json::from_slice(&bytes);
    value.map(Some).map_err(|e| {
        BundleError::Malformed {
            file: name.into(),
            reason: e.to_string(),
        }
        .into()
    })
}
