//! The model assets that a path on the command line means: the path itself, or those of the bundle there.

use std::path::{Path, PathBuf};

use russet::bundle::{AnemllBundle, BundleError, ModelBundle, Source};
use russet::{Error, ModelSource};

use crate::failure::Failure;

/// Folders of assets, and where they are.
pub(crate) struct Assets {
    pub(crate) files: Box<dyn Source>,
    pub(crate) folders: Vec<String>,
}

impl Assets {
    /// The asset at a path, or all assets of the bundle there.
    pub(crate) fn all(path: &Path) -> Result<Self, Failure> {
        Self::of(path, |bundle, files| {
            let roles = bundle.assets.iter();
            let folder =
                |(role, _): &(String, String)| bundle.require(files, role).map(str::to_owned);
            roles.map(folder).collect()
        })
    }

    /// The asset at a path, or the main one of the bundle there.
    pub(crate) fn main(path: &Path) -> Result<Self, Failure> {
        Self::of(path, |bundle, files| {
            Ok(vec![bundle.require(files, "main")?.to_owned()])
        })
    }

    fn of(
        path: &Path,
        choose: impl Fn(&ModelBundle, &dyn Source) -> Result<Vec<String>, BundleError>,
    ) -> Result<Self, Failure> {
        let files = russet::files(path)?;
        let kind = ModelSource::of(path)?;
        if matches!(kind, ModelSource::Asset | ModelSource::Coreml) {
            let folders = vec![String::new()];
            return Ok(Self { files, folders });
        }
        if kind == ModelSource::Anemll {
            let bundle = AnemllBundle::read(&*files).map_err(|error| Failure::Open {
                path: path.into(),
                source: Box::new(Error::from(error)),
            })?;
            let folders = bundle.parts.files().map(str::to_owned).collect();
            return Ok(Self { files, folders });
        }
        let chosen = ModelBundle::read(&*files).and_then(|bundle| choose(&bundle, &*files));
        let folders = chosen.map_err(|error| Failure::Open {
            path: path.into(),
            source: Box::new(Error::from(error)),
        })?;
        Ok(Self { files, folders })
    }

    /// What to call an asset.
    pub(crate) fn path(&self, folder: &str) -> PathBuf {
        match folder {
            "" => self.files.location().into(),
            folder => self.files.location().join(folder),
        }
    }
}
