//! Chores of the repository: conformance runs and tidy checks. Not shipped.
#![forbid(unsafe_code)]
fn main() {}
