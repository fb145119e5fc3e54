//! Core ML's ML Programs: `.mlpackage` folders (a manifest, a protobuf `model.mlmodel`, `weights/weight.bin`), and the compiled
//! `.mlmodelc` (a program as text, `model.mil`, and a description, `coremldata.bin`).
//!
//! Reading goes in steps, each a module: [`manifest`] finds the specification in a package, `proto` is its wire form, `decode`
//! and [`text`] make a [`program`] of it (the Model Intermediate Language, MIL: operations with named arguments), [`weights`] finds
//! values in weight files, `lower` turns a program into a [`russet_graph::graph::Module`]. No step touches the bytes of the
//! weights: constants of the graph share the file.
//!
//! Field numbers are those of coremltools' `mlmodel/format/*.proto`; operations mean what coremltools 9 documents for their
//! opset (iOS 15 to iOS 18), arguments included.

mod decode;
pub mod description;
pub mod error;
mod lower;
pub mod manifest;
mod model;
pub mod program;
mod proto;
#[cfg(test)]
mod tests;
pub mod text;
pub mod weights;
mod wire;

pub use description::Description;
pub use error::{CoremlError, Place, Problem};
pub use lower::VERSION;
pub use model::{CoremlModel, DESCRIPTION};
pub use weights::Weights;
