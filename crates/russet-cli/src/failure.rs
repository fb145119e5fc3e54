//! What a command can fail with, printed as one chain.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use russet_formats::aimodel::AssetError;
use russet_formats::checkpoint::CheckpointError;

use crate::locate::LocateError;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// No model.
    #[error(transparent)]
    Locate(#[from] LocateError),
    /// What is at a path is no model, or an answer failed.
    #[error(transparent)]
    Russet(#[from] russet::Error),
    /// A function that cannot be called on the tensors given.
    #[error(transparent)]
    Call(#[from] russet::CallError),
    /// A file of tensors.
    #[error(transparent)]
    Tensors(#[from] russet::tensors::TensorFileError),
    /// Metadata that cannot be changed.
    #[error(transparent)]
    Retarget(#[from] russet::bundle::RetargetError),
    /// A model that is no bundle, where only a bundle will do.
    #[error("{} is no bundle: give a folder with metadata.json, a zip archive of one, or an .aimodel folder", .0.display())]
    NoBundle(PathBuf),
    /// A model that cannot be opened.
    #[error("cannot open {}", path.display())]
    Open {
        path: PathBuf,
        #[source]
        source: Box<russet::Error>,
    },
    /// Options that make no sense.
    #[error(transparent)]
    Usage(#[from] russet::SamplingError),
    /// Arguments that do not go together, or a name that is none.
    #[error("{0}")]
    Wrong(String),
    /// A file that cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// Something that cannot be judged.
    #[error(transparent)]
    Evaluation(#[from] russet::EvaluationError),
    /// An engine or a cache strategy that does not exist.
    #[error(transparent)]
    Engine(#[from] russet::EngineError),
    /// A file of states without any.
    #[error("{} holds no state: they are called state.NAME", .0.display())]
    NoState(PathBuf),
    /// An asset that is broken, or not the one its digest is of.
    #[error("{}", path.display())]
    Asset {
        path: PathBuf,
        #[source]
        source: AssetError,
    },
    /// A checkpoint of an architecture that is not known.
    #[error("{}", path.display())]
    Checkpoint {
        path: PathBuf,
        #[source]
        source: CheckpointError,
    },
    /// Reading the prompt or writing the answer.
    #[error("cannot {action}")]
    Stream {
        action: &'static str,
        #[source]
        source: io::Error,
    },
    /// The terminal.
    #[error("cannot read from the terminal")]
    Terminal(#[from] rustyline::error::ReadlineError),
}

impl Failure {
    /// Output that failed.
    pub(crate) fn write(source: io::Error) -> Self {
        Self::Stream {
            action: "write to standard output",
            source,
        }
    }

    /// What was read from a file.
    pub(crate) fn reading<T>(path: &Path, read: io::Result<T>) -> Result<T, Self> {
        read.map_err(|source| Self::Read {
            path: path.into(),
            source,
        })
    }

    /// The exit code: 2 for wrong usage, as for arguments that do not parse.
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::Usage(_) | Self::Engine(_) | Self::Wrong(_) => ExitCode::from(2),
            _ => ExitCode::FAILURE,
        }
    }

    /// Whether this only means that nobody reads the output any more (`russet inspect … | head`).
    pub(crate) fn is_broken_pipe(&self) -> bool {
        matches!(self, Self::Stream { source, .. } if source.kind() == io::ErrorKind::BrokenPipe)
    }
}

/// An error and its reasons on one line, outermost first. A reason that repeats what was said is left out.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut line = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let text = cause.to_string();
        if !line.ends_with(&text) {
            line.push_str(": ");
            line.push_str(&text);
        }
        source = cause.source();
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_names_every_reason_once() {
        #[derive(Debug, thiserror::Error)]
        #[error("outer")]
        struct Outer(#[source] Inner);
        #[derive(Debug, thiserror::Error)]
        #[error("inner: cause")]
        struct Inner(#[source] io::Error);
        let error = Outer(Inner(io::Error::other("cause")));
        assert_eq!(chain(&error), "outer: inner: cause");
    }
}
