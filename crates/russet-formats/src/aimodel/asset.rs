//! An asset as a whole: program, digest and description.

use russet_graph::graph::Module;
use russet_kernels::mem::SharedBytes;
use serde::Deserialize;
use sha2::{Digest, Sha256};
use thiserror::Error;

use super::error::ReadError;
use super::lower::lower;
use super::raw::RawModule;

/// Names of the files of an asset.
pub const PROGRAM: &str = "main.mlirb";
/// The digest of the program.
pub const HASH: &str = "main.hash";
/// The description.
pub const METADATA: &str = "metadata.json";

/// Why an asset could not be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AssetError {
    /// The program is not sound.
    #[error(transparent)]
    Program(#[from] ReadError),
    /// The description is not sound.
    #[error("metadata.json: {0}")]
    Metadata(#[from] serde_json::Error),
    /// There is no digest to compare with.
    #[error("the asset has no main.hash")]
    NoHash,
    /// The digest is of another program.
    #[error(
        "main.mlirb is not the program that main.hash was made for: its SHA-256 is {found}, main.hash says {expected}"
    )]
    Hash {
        /// Digest of the program, in hexadecimal.
        found: String,
        /// Digest in `main.hash`.
        expected: String,
    },
}

/// The description of an asset. Keys that are not known are kept in `other`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AssetMetadata {
    /// Version of the asset's layout.
    pub asset_version: Option<String>,
    /// Who wrote it.
    pub producer: Option<String>,
    /// When, such as `20261130T024446Z`.
    pub creation_date: Option<String>,
    /// Everything else.
    #[serde(flatten)]
    pub other: serde_json::Map<String, serde_json::Value>,
}

/// A decoded asset. The weights stay in the bytes it was read from.
#[derive(Clone, Debug)]
pub struct AimodelAsset {
    /// The description.
    pub metadata: AssetMetadata,
    /// The decoded program.
    pub raw: RawModule,
    bytes: SharedBytes,
    hash: Option<Vec<u8>>,
}

impl AimodelAsset {
    /// Decodes the program in `bytes` (`main.mlirb`, usually a file map), with the text of `metadata.json` and the bytes of
    /// `main.hash` where there are such files.
    pub fn open(
        bytes: SharedBytes,
        metadata: Option<&str>,
        hash: Option<&[u8]>,
    ) -> Result<Self, AssetError> {
        let metadata = metadata
            .map(serde_json::from_str)
            .transpose()?
            .unwrap_or_default();
        let raw = RawModule::read(&bytes)?;
        Ok(Self {
            metadata,
            raw,
            bytes,
            hash: hash.map(Into::into),
        })
    }

    /// The program's bytes.
    pub fn bytes(&self) -> &SharedBytes {
        &self.bytes
    }

    /// The program as a graph. Constants share the bytes of the asset.
    pub fn module(&self) -> Result<Module, AssetError> {
        Ok(lower(&self.bytes, &self.raw)?)
    }

    /// Compares the SHA-256 of the program with `main.hash`. Reads the whole program, weights and all.
    pub fn verify_hash(&self) -> Result<(), AssetError> {
        let Some(expected) = &self.hash else {
            return Err(AssetError::NoHash);
        };
        let found = Sha256::digest(&self.bytes[..]);
        match found[..] == expected[..] {
            true => Ok(()),
            false => Err(AssetError::Hash {
                found: hex(&found),
                expected: hex(expected),
            }),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
