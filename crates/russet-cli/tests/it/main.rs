//! The built command, run as a user runs it.

mod audit;
mod bench;
mod call;
mod coreml;
mod inspect;
mod retarget;
mod session;
mod tools;
