//! Passes: graph in, graph out, same values ([`widen()`] says which it changes). Each leaves a graph that verifies.

mod bind;
mod cse;
mod inline;
mod prune;
mod recognise;
mod widen;

pub use bind::bind_input;
pub use cse::eliminate_common;
pub use inline::flatten;
pub use prune::prune;
pub use recognise::recognise;
pub use widen::widen;
