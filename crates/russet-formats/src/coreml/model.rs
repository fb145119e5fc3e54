//! A model as a whole: its description and its program.

use std::sync::Arc;

use prost::Message;
use prost::bytes::Bytes;
use russet_graph::graph::Module;
use russet_kernels::mem::SharedBytes;

use super::description::Description;
use super::error::{Place, Problem, Result};
use super::program::Program;
use super::weights::Weights;
use super::{decode, lower, proto};

/// Versions of the specification that hold ML Programs and are known: 5 (iOS 14) to 10 (iOS 26).
const VERSIONS: std::ops::RangeInclusive<i32> = 5..=10;

/// A decoded `model.mlmodel`.
#[derive(Clone, Debug, PartialEq)]
pub struct CoremlModel {
    /// The version of the specification; 9 is the first with states and several functions.
    pub version: i32,
    /// Inputs, outputs, states and metadata.
    pub description: Description,
    /// The program.
    pub program: Program,
}

impl CoremlModel {
    /// Decodes a specification. Immediate values share its bytes.
    ///
    /// # Errors
    /// Where the bytes are no specification of an ML Program; the error names the field, function or operation.
    pub fn read(bytes: SharedBytes) -> Result<Self> {
        let raw = proto::Model::decode(Bytes::from_owner(bytes));
        let raw = raw.map_err(|e| Problem::Wire(e.to_string()).at(Place::Model))?;
        if !VERSIONS.contains(&raw.specification_version) {
            return Err(Problem::Version(raw.specification_version).at(Place::Model));
        }
        let program = raw
            .program
            .ok_or_else(|| Problem::NoProgram.at(Place::Model))?;
        Ok(Self {
            version: raw.specification_version,
            description: Description::of(raw.description.unwrap_or_default()),
            program: decode::program(program)?,
        })
    }

    /// The weight files it needs, as its values name them.
    pub fn weight_files(&self) -> Vec<Arc<str>> {
        self.program.files()
    }

    /// The program as a graph, a function a graph. Constants share the bytes of the weight files.
    ///
    /// # Errors
    /// Where an operation is not known, or cannot take its arguments; where a value is not in the weight files.
    pub fn module(&self, weights: &Weights) -> Result<Module> {
        lower::lower(self, weights)
    }
}
