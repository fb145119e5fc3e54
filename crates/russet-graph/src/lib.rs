//! Meaning: types, graph, op table, passes, planner and executor.
//!
//! A [`graph::Module`] holds graphs of operations on tensors with symbolic shapes. Every operation has one meaning, in
//! [`ops`]; [`text`] prints a module and parses it back; [`verify`](verify::verify) says which value breaks which rule;
//! [`interpret`] runs a graph by the references, slowly; [`exec`] plans it and runs it fast, with the same results.
//!
//! This crate reads no files, knows no file format and contains no `unsafe`.
#![forbid(unsafe_code)]
#![allow(
    clippy::needless_range_loop,
    clippy::type_complexity,
    reason = "references walk several shapes by one axis, and tables pair functions with names"
)]

pub mod attr;
mod dim;
pub mod error;
pub mod exec;
pub mod graph;
pub mod infer;
pub mod interpret;
mod minifloat;
pub mod ops;
pub mod passes;
pub mod tensor;
pub mod text;
pub mod types;
pub mod verify;
