//! Hostile bytes: every reader, bytes to graphs and packages.
#![forbid(unsafe_code)]
pub mod gguf;
