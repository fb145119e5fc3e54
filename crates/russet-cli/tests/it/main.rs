//! The built command, run as a user runs it.

mod call;
mod inspect;
mod tools;
