//! Plans: a graph ordered, folded and bound to memory once, then run many times without allocating.
//!
//! [`Plan::build`] flattens a function, follows its shape arithmetic until only symbolic dims are left of it, turns every
//! operation that only moves elements around (slices, reshapes, transposes, broadcasts) into a *view*, and what remains into
//! steps. A value lives in a *slot* (shared by values whose lifetimes do not meet), in a *state* (bound for as long as its
//! owner keeps it) or in the file's constant. Dynamic lengths change numbers in one table of dims, never the plan.
//!
//! A plan is exact (every step rounds where the file rounds) or fast: see [`Precision`].

mod build;
mod cache;
mod dims;
mod fuse;
mod kernels;
mod layout;
mod lower;
mod run;
mod states;
mod view;
mod work;

pub use build::{CacheKind, Plan, PlanError, PlanOptions, PlanState, Precision, StepInfo, Sums};
pub use run::{Executor, Input, RunError};
pub use states::States;
pub use view::{MAX_RANK, View};
pub use work::StepWork;

#[cfg(test)]
mod programs;
#[cfg(test)]
mod tests;
