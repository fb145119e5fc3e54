//! One file per command.

mod assets;
pub(crate) mod audit;
pub(crate) mod bench;
pub(crate) mod call;
pub(crate) mod chat;
mod constraint;
pub(crate) mod eval;
pub(crate) mod inspect;
pub(crate) mod pull;
pub(crate) mod retarget;
pub(crate) mod run;
mod schemas;
pub(crate) mod talk;
