//! A model as a whole: its description and its program.

use std::sync::Arc;

use prost::Message;
use prost::bytes::Bytes;
use russet_graph::graph::Module;
use russet_kernels::mem::SharedBytes;

use super::description::Description;
use super::error::{Outcome, Place, Problem, Result};
use super::program::Program;
use super::weights::Weights;
use super::{decode, lower, proto, text, wire};

/// Versions of the specification that hold ML Programs and are known: 5 (iOS 14) to 10 (iOS 26).
const VERSIONS: std::ops::RangeInclusive<i32> = 5..=10;

/// The description in a compiled package.
pub const DESCRIPTION: &str = "coremldata.bin";
/// Where in it the version stands.
const VERSION_AT: usize = 4;
/// Where the length of the message stands; the message follows.
const LENGTH_AT: usize = 0x4B;

/// The version of the specification, and the `ModelDescription` message.
fn compiled_description(bytes: &SharedBytes) -> Outcome<(i32, Description)> {
    let short = || Problem::Value("the file ends inside its header".into());
    let version = bytes.get(VERSION_AT..).and_then(|b| b.first_chunk());
    let version = i32::from_le_bytes(*version.ok_or_else(short)?);
    if !VERSIONS.contains(&version) {
        return Err(Problem::Version(version));
    }
    let length = bytes.get(LENGTH_AT..).and_then(|b| b.first_chunk());
    let length = u64::from_le_bytes(*length.ok_or_else(short)?);
    let start = LENGTH_AT + 8;
    let end = usize::try_from(length)
        .ok()
        .and_then(|n| start.checked_add(n));
    let message = end.and_then(|end| bytes.slice(start..end));
    let message = message.ok_or_else(|| Problem::Value("the description ends too early".into()))?;
    let raw = proto::ModelDescription::decode(Bytes::from_owner(message));
    let raw = raw.map_err(|e| Problem::Wire(e.to_string()))?;
    Ok((version, Description::of(raw)))
}

/// A decoded model.
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
        wire::check(&bytes)?;
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

    /// Decodes the program of a compiled package (`model.mil`) and, where it is there, the description (`coremldata.bin`).
    ///
    /// # Errors
    /// Where either is not what it should be; the error has the byte.
    pub fn read_compiled(text: &[u8], description: Option<SharedBytes>) -> Result<Self> {
        let place = |name: &str, offset: usize| Place::File {
            name: name.into(),
            offset: offset as u64,
        };
        let text = std::str::from_utf8(text).map_err(|e| {
            let problem = Problem::Value("the text is not UTF-8".into());
            problem.at(place(text::FILE, e.valid_up_to()))
        })?;
        let (version, description) = match description {
            None => (*VERSIONS.end(), Description::default()),
            Some(bytes) => compiled_description(&bytes).map_err(|p| p.at(place(DESCRIPTION, 0)))?,
        };
        Ok(Self {
            version,
            description,
            program: text::parse(text)?,
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
