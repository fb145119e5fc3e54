//! Core ML's ML Programs: `.mlpackage` folders (a manifest, a protobuf `model.mlmodel`, `weights/weight.bin`).
//!
//! Reading goes in steps, each a module: [`manifest`] finds the specification in a package, `proto` is its wire form, `decode`
//! makes a [`program`] of it (the Model Intermediate Language, MIL: operations with named arguments), [`weights`] finds
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
pub mod weights;

pub use description::Description;
pub use error::{CoremlError, Place, Problem};
pub use model::CoremlModel;
pub use weights::Weights;
