//! The `russet` command.
#![forbid(unsafe_code)]
fn main() {}
