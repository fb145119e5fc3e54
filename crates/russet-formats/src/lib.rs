//! Hostile bytes: every reader, bytes to graphs and packages.
#![forbid(unsafe_code)]
#![deny(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]
#![cfg_attr(
    test,
    allow(
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic
    )
)]
pub mod aimodel;
mod builder;
pub mod checkpoint;
pub mod coreml;
pub mod gguf;
pub mod safetensors;
