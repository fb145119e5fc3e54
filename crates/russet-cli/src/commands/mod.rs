//! One file per command.

pub(crate) mod bench;
pub(crate) mod call;
pub(crate) mod chat;
pub(crate) mod inspect;
pub(crate) mod pull;
pub(crate) mod run;
mod talk;
