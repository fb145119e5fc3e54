//! States: read and written in the order of the program.

use russet_graph::graph::ValueId;
use russet_graph::ops::read_handle::ReadHandle;
use russet_graph::ops::write_handle::WriteHandle;

use super::Lowering;
use crate::coreml::error::Outcome;
use crate::coreml::program::Operation;

impl Lowering<'_> {
    fn token(&mut self, state: ValueId) -> Outcome<ValueId> {
        match self.tokens.get(&state) {
            Some(token) => Ok(*token),
            None => self.first_token(),
        }
    }
}

/// `read_state`: the value as of now.
pub(super) fn read(l: &mut Lowering<'_>, op: &Operation) -> Outcome<ValueId> {
    let state = l.state(op, "input")?;
    let token = l.token(state)?;
    let [value, token] = l.b.ops(ReadHandle, &[state, token])?;
    l.tokens.insert(state, token);
    Ok(value)
}

/// `write_state`: another value from now on.
pub(super) fn write(l: &mut Lowering<'_>, op: &Operation) -> Outcome<Vec<ValueId>> {
    let (state, data) = (l.state(op, "input")?, l.value(op, "data")?);
    let token = l.token(state)?;
    let [token] = l.b.ops(WriteHandle, &[state, data, token])?;
    l.tokens.insert(state, token);
    Ok(Vec::new())
}
