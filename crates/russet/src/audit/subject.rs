//! What is audited, read once and as far as it goes: a fault in one part does not hide the others.

use russet_formats::aimodel::AimodelAsset;
use russet_graph::graph::{Graph, Module};
use serde_json::{Map, Value};

use super::AuditOptions;
use super::words::Words;
use crate::bundle::{
    BundleError, BundleKind, DiffusionBundle, Entry, Faults, LanguageConfig, Layout, ModelBundle,
    SPLIT, SegmenterBundle, Source, SpeechBundle, VisionConfig, inside, language_parts,
    raw_metadata,
};
use crate::open::{Error, read_asset_in};

/// The most files that are looked at; a bundle has a few dozen.
const MAX_FILES: usize = 10_000;

/// A bundle, or an asset that stands alone.
pub(super) struct Subject<'a> {
    pub(super) source: &'a dyn Source,
    pub(super) options: &'a AuditOptions,
    pub(super) layout: Option<Layout>,
    /// Whether the source is an asset itself.
    pub(super) is_asset: bool,
    pub(super) model: Option<ModelBundle>,
    pub(super) language: Option<LanguageConfig>,
    pub(super) vision: Option<VisionConfig>,
    /// The tokenizer and what belongs to it.
    pub(super) words: Option<Words>,
    /// What the descriptors complain about.
    pub(super) faults: Vec<BundleError>,
    /// Assets that can be read, or why not.
    pub(super) assets: Vec<Asset>,
    /// Every file with its size, sorted.
    pub(super) files: Vec<(String, u64)>,
    /// What is neither a file nor a folder.
    pub(super) special: Vec<String>,
}

/// An asset with its program.
pub(super) struct Asset {
    pub(super) role: String,
    pub(super) path: String,
    pub(super) asset: Option<AimodelAsset>,
    pub(super) module: Option<Module>,
    /// Why one of these is missing.
    pub(super) error: Option<Error>,
}

impl<'a> Subject<'a> {
    pub(super) fn read(source: &'a dyn Source, options: &'a AuditOptions) -> Self {
        let mut this = Self {
            source,
            options,
            layout: None,
            is_asset: false,
            model: None,
            language: None,
            vision: None,
            words: None,
            faults: Vec::new(),
            assets: Vec::new(),
            files: Vec::new(),
            special: Vec::new(),
        };
        this.walk("", 0);
        let extension = source.location().extension();
        if extension.is_some_and(|e| e.eq_ignore_ascii_case("aimodel")) {
            this.is_asset = true;
            this.assets.push(Asset::open(source, "asset", ""));
            return this;
        }
        match Layout::of(source) {
            Ok(layout) => this.lay_out(layout),
            Err(fault) => this.faults.push(fault),
        }
        this
    }

    fn lay_out(&mut self, layout: Layout) {
        let plain = |names: &[String]| names.iter().map(|n| (String::new(), n.clone())).collect();
        let roles: Vec<(String, String)> = match &layout {
            Layout::Bundle => self.describe(),
            Layout::Speech => plain(&SPLIT.map(String::from)),
            Layout::Assets(names) => plain(names),
            Layout::Diffusion => {
                let found = DiffusionBundle::read(self.source).map(|d| d.components);
                let paths = found.unwrap_or_default().into_iter().map(|(_, path)| path);
                plain(&paths.collect::<Vec<_>>())
            }
        };
        self.layout = Some(layout);
        for (role, path) in roles {
            if path.ends_with(".aimodel") && self.source.exists(&inside(&path, "main.mlirb")) {
                self.assets.push(Asset::open(self.source, &role, &path));
            }
        }
    }

    /// Reads the metadata and the parts of its kind; gives the assets that it names.
    fn describe(&mut self) -> Vec<(String, String)> {
        let raw = match raw_metadata(self.source) {
            Ok(raw) => raw,
            Err(fault) => {
                self.faults.push(fault);
                return Vec::new();
            }
        };
        let faults = Faults::default();
        let model = ModelBundle::of(raw.clone(), &faults).or_else(|| guessed(raw));
        let Some(model) = model else {
            self.faults.extend(faults.all());
            return Vec::new();
        };
        self.describe_kind(&model, &faults);
        let paths = model.assets.iter().map(|(role, _)| role);
        let paths: Vec<(String, String)> = paths
            .filter_map(|role| Some((role.clone(), model.asset(role).ok()?.to_owned())))
            .collect();
        let check = |role: &str| {
            faults.note(model.require(self.source, role).map(drop));
        };
        model.assets.iter().for_each(|(role, _)| check(role));
        required(model.kind).iter().for_each(|role| check(role));
        self.faults.extend(faults.all());
        self.model = Some(model);
        paths
    }

    fn describe_kind(&mut self, model: &ModelBundle, faults: &Faults) {
        match model.kind {
            BundleKind::Llm | BundleKind::Vlm => {
                (self.language, self.vision) = language_parts(model, faults);
                self.words = Some(Words::read(self.source));
            }
            BundleKind::Diffusion => {
                DiffusionBundle::of(model.clone(), self.source, faults);
            }
            BundleKind::SpeechRecognizer => {
                SpeechBundle::of(model.clone(), self.source, faults);
            }
            BundleKind::Segmenter => {
                SegmenterBundle::of(model.clone(), self.source, faults);
            }
            BundleKind::VideoDiffusion | BundleKind::VideoSegmenter => {}
        }
    }

    /// Every file below a folder. Links that lead back to where they are end at a depth.
    fn walk(&mut self, folder: &str, depth: usize) {
        for name in self.source.list(folder).unwrap_or_default() {
            let path = inside(folder, &name);
            if self.files.len() >= MAX_FILES {
                return;
            }
            match self.source.find(&path) {
                Some(Entry::File(bytes)) => self.files.push((path, bytes)),
                Some(Entry::Folder) if depth < 8 => self.walk(&path, depth + 1),
                Some(Entry::Folder) => {}
                Some(Entry::Special) | None => self.special.push(path),
            }
        }
    }

    /// Bytes of all files in a folder.
    pub(super) fn size(&self, folder: &str) -> u64 {
        let prefix = inside(folder, "");
        let files = self
            .files
            .iter()
            .filter(|(path, _)| path.starts_with(&prefix));
        files.map(|(_, bytes)| bytes).sum()
    }

    /// A part of the metadata.
    pub(super) fn raw(&self, key: &str) -> Option<&Value> {
        let value = self.model.as_ref()?.raw.get(key)?;
        (!value.is_null()).then_some(value)
    }

    /// The program of the asset of a role.
    pub(super) fn program(&self, role: &str) -> Option<(&Asset, &Module)> {
        let asset = self.assets.iter().find(|a| a.role == role)?;
        Some((asset, asset.module.as_ref()?))
    }

    /// The language model: its config, its main asset and that asset's program.
    pub(super) fn language_model(&self) -> Option<(&LanguageConfig, &Asset, &Module)> {
        let (asset, module) = self.program("main")?;
        Some((self.language.as_ref()?, asset, module))
    }

    /// Whether the main asset takes tokens, rather than embeddings that another asset makes.
    pub(super) fn takes_tokens(&self) -> bool {
        self.model
            .as_ref()
            .is_some_and(|m| m.kind == BundleKind::Llm)
    }

    /// The function that a language model runs.
    pub(super) fn main_function(&self) -> Option<&Graph> {
        let (language, _, module) = self.language_model()?;
        module.graph(language.main_function())
    }
}

impl Asset {
    fn open(source: &dyn Source, role: &str, path: &str) -> Self {
        let mut this = Self {
            role: role.into(),
            path: path.into(),
            asset: None,
            module: None,
            error: None,
        };
        match read_asset_in(source, path) {
            Ok(asset) => {
                match asset.module() {
                    Ok(module) => this.module = Some(module),
                    Err(error) => {
                        this.error = Some(Error::Asset {
                            path: path.into(),
                            source: error,
                        });
                    }
                }
                this.asset = Some(asset);
            }
            Err(error) => this.error = Some(error),
        }
        this
    }
}

/// Roles that a kind must have.
fn required(kind: BundleKind) -> &'static [&'static str] {
    match kind {
        BundleKind::Llm | BundleKind::Segmenter => &["main"],
        BundleKind::Vlm => &["main", "vision", "embedding"],
        _ => &[],
    }
}

/// A bundle whose name or kind is missing, so that its other parts can be looked at.
fn guessed(mut raw: Map<String, Value>) -> Option<ModelBundle> {
    let is_text = |v: Option<&Value>| v.is_some_and(Value::is_string);
    if !is_text(raw.get("name")) {
        raw.insert("name".into(), "".into());
    }
    let known = |v: Option<&Value>| {
        let name = v.and_then(Value::as_str);
        BundleKind::NAMES.iter().any(|(_, n)| Some(*n) == name)
    };
    if !known(raw.get("kind")) {
        raw.get("language")?;
        raw.insert("kind".into(), "llm".into());
    }
    ModelBundle::of(raw, &Faults::default())
}
