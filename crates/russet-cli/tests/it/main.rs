//! The built command, run as a user runs it.

mod bench;
mod call;
mod inspect;
mod session;
mod tools;
