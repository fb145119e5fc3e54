//! Passes: graph in, graph out, same values. Each leaves a graph that verifies.

mod bind;
mod cse;
mod inline;

pub use bind::bind_input;
pub use cse::eliminate_common;
pub use inline::flatten;
