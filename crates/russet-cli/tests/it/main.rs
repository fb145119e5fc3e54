//! The built command, run as a user runs it.

mod audit;
mod bench;
mod call;
mod check;
mod coreml;
mod eval;
mod inspect;
mod retarget;
mod run;
mod session;
mod tools;
