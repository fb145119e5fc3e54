//! What an engine holds, to go on from later, and the file it is kept in.
//!
//! The file is a `.safetensors` file: every state under its name, of caches only the rows in use; the tokens under `tokens`; and in its
//! notes what it is and for which model. It is replaced in one step, so that an interrupted save leaves the old one.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use russet_graph::exec::{PlanState, States};
use russet_graph::tensor::Tensor;
use russet_graph::types::{DType, TensorType};
use russet_kernels::mem::{SharedBytes, bytes_of};

use super::{EngineError, StateKind, StateRole, Token};
use crate::bundle::regular;
use crate::open::Error;
use crate::replace::replace;
use crate::tensors::{self, NamedTensors, Notes, TensorFileError};

/// The name of the tokens in the file.
const TOKENS: &str = "tokens";
/// The note that says what a file is, and its value.
const FORMAT: (&str, &str) = ("format", "russet session 1");

/// The note that says which window it is of.
const WINDOW: &str = "window";
/// The most bytes of a header: it holds the messages.
const LONGEST_HEADER: u64 = 64 << 20;

/// The tokens that an engine holds, and its states after them.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    tokens: Vec<Token>,
    states: NamedTensors,
    /// Of a window, its size and its sinks: they say which of the tokens the states are those after.
    window: Option<[usize; 2]>,
}

impl Snapshot {
    pub(crate) fn new(tokens: &[Token], states: NamedTensors) -> Self {
        Self {
            tokens: tokens.to_vec(),
            states,
            window: None,
        }
    }

    /// The tokens.
    pub fn tokens(&self) -> &[Token] {
        &self.tokens
    }

    /// The same states, said to be those after other tokens: a window holds fewer than the conversation has.
    pub(crate) fn with_tokens(&self, tokens: &[Token], window: Option<[usize; 2]>) -> Self {
        Self {
            window,
            ..Self::new(tokens, self.states.clone())
        }
    }

    /// The window that it is of.
    pub(crate) fn window(&self) -> Option<[usize; 2]> {
        self.window
    }

    /// The states for a function, in its order, where all fit.
    pub(crate) fn check<'a>(
        &'a self,
        states: &[(&str, &TensorType)],
        roles: &[StateRole],
    ) -> Result<Vec<&'a Tensor>, EngineError> {
        let misfit = |what: String| Err(EngineError::Snapshot(what));
        if let Some([size, sinks]) = self.window {
            return misfit(format!(
                "it is of a window of {size} tokens with {sinks} sinks"
            ));
        }
        if self.states.len() != states.len() {
            let (got, want) = (self.states.len(), states.len());
            return misfit(format!("it has {got} states, the model has {want}"));
        }
        let mut found = Vec::with_capacity(states.len());
        for ((state, ty), role) in states.iter().zip(roles) {
            let held = self.states.iter().find(|(name, _)| name == state);
            let Some((_, held)) = held else {
                return misfit(format!("it has no state {state:?}"));
            };
            if !fits(held, ty, role, self.tokens.len()) {
                let got = held.ty();
                let rows = self.tokens.len();
                return misfit(format!(
                    "state {state:?} is {got} behind {rows} tokens, of a model's {ty}"
                ));
            }
            found.push(held);
        }
        Ok(found)
    }

    /// Writes it to a file, with `notes` beside.
    ///
    /// # Errors
    /// [`Error::Tensors`]; what was at the path before is then still there.
    pub fn write(&self, path: &Path, mut notes: Notes) -> Result<(), Error> {
        let (name, value) = FORMAT;
        if path.exists() {
            // A pipe would be waited for.
            regular(path).map_err(|source| io(path, source))?;
        }
        notes.insert(name.into(), value.into());
        if let Some([size, sinks]) = self.window {
            notes.insert(WINDOW.into(), format!("{size} {sinks}"));
        }
        let ids = SharedBytes::from_vec(bytes_of(&self.tokens).to_vec());
        let ids = Tensor::new(DType::U32, vec![self.tokens.len()], ids)
            .map_err(|e| EngineError::Snapshot(e.to_string()))?;
        let mut all = self.states.clone();
        all.push((TOKENS.into(), ids));
        let bytes = tensors::write_noted(&all, notes);
        let bytes = bytes.map_err(|problem| content(path, problem))?;
        replace(path, &bytes).map_err(|source| io(path, source))
    }

    /// Reads a file that [`Snapshot::write`] wrote, and its notes.
    ///
    /// # Errors
    /// [`Error::Tensors`] where it cannot be read or is damaged, [`EngineError::Snapshot`] where it is something else.
    pub fn read(path: &Path) -> Result<(Self, Notes), Error> {
        let none = |what: &str| Error::Missing(format!("{} {what}", path.display()));
        let bytes = regular(path).and_then(|()| read_marked(path));
        let bytes = bytes.map_err(|source| io(path, source))?;
        let bytes = bytes.ok_or_else(|| none("is no saved session"))?;
        let read = tensors::read_noted(&bytes);
        let (mut states, notes) = read.map_err(|problem| content(path, problem))?;
        if notes.get(FORMAT.0).is_none_or(|v| v != FORMAT.1) {
            return Err(none("is no saved session"));
        }
        let at = states.iter().position(|(n, _)| n == TOKENS);
        let tokens = at.map(|at| states.swap_remove(at).1);
        let tokens = tokens.filter(|t| t.dtype == DType::U32 && t.shape.len() == 1);
        let tokens = tokens.ok_or_else(|| none("has no tokens"))?;
        let ids = tokens.bytes().as_chunks::<4>().0;
        let tokens = ids.iter().map(|b| Token::from_le_bytes(*b)).collect();
        let window = notes.get(WINDOW).map(|text| {
            let mut numbers = text.split(' ').map(str::parse);
            match (numbers.next(), numbers.next()) {
                (Some(Ok(size)), Some(Ok(sinks))) => Ok([size, sinks]),
                _ => Err(none("has a window that is none")),
            }
        });
        let this = Self {
            tokens,
            states,
            window: window.transpose()?,
        };
        Ok((this, notes))
    }
}

/// The content of a file whose header says that it is a session; `None` where it does not, and then no more than that is read.
fn read_marked(path: &Path) -> std::io::Result<Option<Vec<u8>>> {
    let mut file = File::open(path)?;
    let mut start = Vec::new();
    file.by_ref().take(8).read_to_end(&mut start)?;
    let length = start.first_chunk().map(|b| u64::from_le_bytes(*b));
    let Some(length) = length.filter(|n| *n <= LONGEST_HEADER) else {
        return Ok(None);
    };
    file.by_ref().take(length).read_to_end(&mut start)?;
    let mark = format!("\"{}\"", FORMAT.1);
    if !start.windows(mark.len()).any(|w| w == mark.as_bytes()) {
        return Ok(None);
    }
    file.read_to_end(&mut start)?;
    Ok(Some(start))
}

/// A state of an engine that holds `held` tokens.
pub(crate) fn held_state(states: &States, index: usize, role: &StateRole, held: usize) -> Tensor {
    let (dtype, shape) = states.ty(index);
    let mut shape = shape.to_vec();
    let rows = if role.kind == StateKind::Fixed {
        shape[role.axis]
    } else {
        held.min(shape[role.axis])
    };
    shape[role.axis] = rows;
    let bytes = SharedBytes::from_vec(states.part(index, role.axis, rows));
    Tensor::new(dtype, shape, bytes).expect("a part of a state has the bytes of its shape")
}

/// Puts a state back that [`Snapshot::check`] found to fit.
pub(crate) fn put_state(states: &mut States, index: usize, role: &StateRole, held: &Tensor) {
    states.set_part(index, role.axis, held.shape[role.axis], held.bytes());
}

/// Names and types of the states of a plan.
pub(crate) fn typed(states: &[PlanState]) -> Vec<(&str, &TensorType)> {
    states.iter().map(|s| (&*s.name, &s.ty)).collect()
}

fn fits(held: &Tensor, ty: &TensorType, role: &StateRole, tokens: usize) -> bool {
    let rank = ty.rank();
    let fixed = |i: usize| ty.shape[i].as_const().and_then(|n| usize::try_from(n).ok());
    let extents = held
        .shape
        .iter()
        .enumerate()
        .all(|(i, &n)| match (fixed(i), role.kind) {
            (want, StateKind::KvCache | StateKind::SlidingCache) if i == role.axis => {
                n == tokens.min(want.unwrap_or(usize::MAX))
            }
            (Some(want), _) => n == want,
            (None, _) => false,
        });
    held.dtype == ty.dtype && held.shape.len() == rank && extents
}

fn io(path: &Path, source: std::io::Error) -> Error {
    TensorFileError::Io {
        path: path.into(),
        source,
    }
    .into()
}

fn content(path: &Path, problem: tensors::Problem) -> Error {
    TensorFileError::Content {
        path: path.into(),
        problem,
    }
    .into()
}
