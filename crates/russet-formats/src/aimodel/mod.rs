//! Core AI's `.aimodel`: a directory with a program and its weights (`main.mlirb`), its digest (`main.hash`) and a
//! description (`metadata.json`).
//!
//! The program is MLIR bytecode that holds one dialect, the versioned `aicode`; `docs/aimodel-format.md` describes it byte by
//! byte. Reading goes in steps, each a module: [`bytecode`] finds the tables, [`records`] decodes attributes and types
//! ([`attrs`], [`types`]), [`ir`] the operations, `lower` turns those into a [`russet_graph::graph::Module`]. No step
//! touches the bytes of the weights: constants of the graph share the file.

mod asset;
pub mod attrs;
pub mod bytecode;
pub mod cursor;
pub mod error;
pub mod ir;
mod lower;
pub mod properties;
pub mod raw;
pub mod records;
pub mod types;

pub use asset::{AimodelAsset, AssetError, AssetMetadata, HASH, METADATA, PROGRAM};
pub use error::{Problem, ReadError, Section};
pub use lower::lower;
