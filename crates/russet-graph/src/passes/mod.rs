//! Passes: graph in, graph out, same values. Each leaves a graph that verifies.

mod cse;
mod inline;

pub use cse::eliminate_common;
pub use inline::flatten;
