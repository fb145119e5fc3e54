//! Any bundle: what all kinds share (contract B §2.2).

use std::path::{Component, Path};

use russet_formats::aimodel;
use serde_json::{Map, Value};

use super::error::BundleError;
use super::fields::{Faults, Fields, malformed, strictly, texts};
use super::kind::BundleKind;
use super::source::{Entry, Source, inside};

/// The schema version this reader knows.
pub const METADATA_VERSION: &str = "0.2";

/// The file that makes a folder a bundle.
pub const METADATA: &str = "metadata.json";

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

/// The metadata of a bundle whose version is known, before any other field is looked at.
///
/// # Errors
/// A location that is an asset's, no metadata, metadata that is no object, another version: in this order.
pub(crate) fn raw_metadata(source: &dyn Source) -> Result<Map<String, Value>, BundleError> {
    let location = source.location();
    let is_asset = |e: &std::ffi::OsStr| {
        e.eq_ignore_ascii_case("aimodel") || e.eq_ignore_ascii_case("aimodelc")
    };
    if location.extension().is_some_and(is_asset) {
        return Err(BundleError::PointedAtModelAsset(location.to_owned()));
    }
    let bytes = match source.read(METADATA) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            return Err(BundleError::MissingMetadata(location.join(METADATA)));
        }
        other => other.map_err(|source| BundleError::Io {
            file: METADATA.into(),
            source,
        })?,
    };
    let value = serde_json::from_slice(&bytes).map_err(|e| malformed(e.to_string()))?;
    let Value::Object(raw) = value else {
        return Err(malformed("it is not an object".into()));
    };
    let version = match raw.get("metadata_version") {
        None => "0.1".to_owned(),
        Some(Value::String(v)) => v.clone(),
        Some(other) => other.to_string(),
    };
    match version == METADATA_VERSION {
        true => Ok(raw),
        false => Err(BundleError::UnsupportedVersion(version)),
    }
}

impl ModelBundle {
    /// Reads the metadata of a bundle.
    ///
    /// # Errors
    /// The first of: a path that is an asset's, no metadata, no JSON, another version, a field.
    pub fn read(source: &dyn Source) -> Result<Self, BundleError> {
        let raw = raw_metadata(source)?;
        strictly(|faults| Self::of(raw, faults))
    }

    /// The bundle that metadata of a known version describes.
    pub(crate) fn of(raw: Map<String, Value>, faults: &Faults) -> Option<Self> {
        let top = Fields::top(&raw, faults);
        let kind = top.text("kind").and_then(|name| {
            let kind = BundleKind::parse(&name);
            faults.note(kind.ok_or(BundleError::UnknownKind(name)))
        });
        let name = top.text("name");
        let assets = top.get("assets", "an object of paths", texts);
        let user_data = top.get("user_data", "an object of texts", texts);
        Some(Self {
            kind: kind?,
            name: name?,
            assets: assets.unwrap_or_default(),
            user_data: user_data.unwrap_or_default(),
            raw,
        })
    }

    /// Refuses kinds other than these; the first is named.
    pub(super) fn expect(&self, kinds: &[BundleKind], faults: &Faults) {
        if !kinds.contains(&self.kind) {
            faults.add(BundleError::KindMismatch {
                expected: kinds.first().map_or("", |k| k.name()),
                got: self.kind.name().into(),
            });
        }
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
        if !stays_inside(path) {
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
    /// `x.ARCHITECTURE.aimodelc` for `x.aimodel`, contract B §2.10), [`BundleError::MissingAsset`] where nothing is,
    /// [`BundleError::InvalidAsset`] for an `.aimodel` that is not a folder with a program.
    pub fn require(&self, source: &dyn Source, key: &str) -> Result<&str, BundleError> {
        let path = self.asset(key)?;
        match find_asset(source, path) {
            Found::Whole => Ok(path),
            Found::Compiled(path, architecture) => Err(self.compiled(key, &path, architecture)),
            Found::Nothing => Err(BundleError::MissingAsset {
                key: key.into(),
                path: source.location().join(path).display().to_string(),
            }),
            Found::Broken(reason) => Err(BundleError::InvalidAsset {
                key: key.into(),
                path: path.into(),
                reason,
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

    /// What ahead-of-time compilation was for, as the metadata says.
    pub fn compilation_targets(&self) -> Vec<&str> {
        let targets = self.raw.get("compilation").and_then(|c| c.get("targets"));
        let targets = targets.and_then(Value::as_array).into_iter().flatten();
        targets.filter_map(Value::as_str).collect()
    }

    /// The architecture comes from the asset's name, else from `compilation.targets`.
    fn compiled(&self, key: &str, path: &str, architecture: Option<String>) -> BundleError {
        let targets = self.compilation_targets();
        let architecture = match architecture {
            Some(name) => name,
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

/// Whether a relative path leads to something inside the bundle.
pub(super) fn stays_inside(path: &str) -> bool {
    let inside = |c: Component<'_>| matches!(c, Component::Normal(_) | Component::CurDir);
    !path.is_empty() && Path::new(path).components().all(inside)
}

/// What is there for the path of an asset.
enum Found {
    Whole,
    /// A compiled form: its path, and the architecture where its name has one.
    Compiled(String, Option<String>),
    Broken(&'static str),
    Nothing,
}

fn find_asset(source: &dyn Source, path: &str) -> Found {
    let compiled = path.strip_suffix(".aimodelc");
    match (source.find(path), compiled) {
        (Some(_), Some(stem)) => {
            let name = stem.rsplit('/').next().unwrap_or(stem);
            let architecture = name.rsplit_once('.').map(|(_, a)| a.to_owned());
            Found::Compiled(path.into(), architecture)
        }
        (None, _) => compiled_form(source, path),
        (Some(_), None) if !path.ends_with(".aimodel") => Found::Whole,
        (Some(Entry::Folder), None) if source.exists(&inside(path, aimodel::PROGRAM)) => {
            Found::Whole
        }
        (Some(Entry::Folder), None) => Found::Broken("it is a folder without main.mlirb"),
        (Some(_), None) => Found::Broken("it is not a folder"),
    }
}

/// A compiled form of `x.aimodel`, with the architecture where its name has one.
fn compiled_form(source: &dyn Source, path: &str) -> Found {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let Some(stem) = name.strip_suffix(".aimodel") else {
        return Found::Nothing;
    };
    let form = |file: String| {
        let middle = file.strip_prefix(stem)?.strip_suffix(".aimodelc")?;
        let architecture = match middle {
            "" => None,
            named => Some(named.strip_prefix('.')?.to_owned()),
        };
        Some(Found::Compiled(inside(folder, &file), architecture))
    };
    let files = source.list(folder).unwrap_or_default();
    files.into_iter().find_map(form).unwrap_or(Found::Nothing)
}
