//! Run language-model packages: bundles, tokenizer, engines, sampling.
//!
//! ```no_run
//! use russet::{GenerateOptions, Message, Model, OpenOptions};
//!
//! let model = Model::open("smollm2.gguf", &OpenOptions::default())?;
//! let mut session = model.session()?;
//! let reply = session.send("What is the capital of France?", &GenerateOptions::default(), &mut |text| print!("{text}"))?;
//! println!("\n{} tokens", reply.tokens.len());
//! # Ok::<(), russet::Error>(())
//! ```
//!
//! The crate is synchronous, prints nothing and knows no HTTP. What is listed here is the public API; the crates below are not.
#![forbid(unsafe_code)]

pub mod audit;
pub mod bench;
pub mod bundle;
mod call;
pub mod check;
mod checkpoint;
mod choose;
mod coreml;
pub mod detokenize;
pub mod engine;
pub mod evaluate;
mod generate;
pub mod grammar;
mod open;
mod planned;
mod replace;
pub mod response;
mod runnable;
pub mod sample;
mod session;
mod stop;
mod strategy;
pub mod template;
pub mod tensors;
pub mod tokenizer;

pub use audit::{AuditOptions, audit};
pub use bundle::{BundleError, LanguageBundle, ModelBundle};
pub use call::{CallError, Function, Results};
pub use checkpoint::{build_checkpoint_in, read_checkpoint_in};
pub use choose::{Record, TokenLogits};
pub use coreml::{is_package, read_coreml_in};
pub use engine::{
    AnemllEngine, Engine, EngineError, EngineVariant, KvCacheStrategy, Logits, SequentialEngine,
    Snapshot, Token,
};
pub use evaluate::EvaluationError;
pub use generate::{GenerateOptions, Generated, StopReason, generate, generate_ahead};
pub use open::{
    Error, Model, ModelCapabilities, ModelSource, OpenOptions, files, open_module, open_module_in,
    read_asset, read_asset_in, read_gguf,
};
pub use planned::{PlanQuery, Planned, planned};
pub use response::{Piece, ResponseFormat, ResponseParser, ToolCall};
pub use russet_graph::exec::{CacheKind, Precision, StepWork};
pub use russet_kernels::machine;
pub use sample::{FilterOrder, Penalties, Sampler, Sampling, SamplingError};
pub use session::{Event, Overflow, Reply, Session, Tool, Usage, check_session};
pub use strategy::{Strategies, Strategy};
pub use template::{ChatTemplate, Message, RenderOptions, TemplateError};
pub use tokenizer::{Tokenizer, TokenizerError};

/// The snippet of the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
