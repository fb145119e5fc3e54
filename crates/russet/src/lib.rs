//! Run language-model packages: bundles, tokenizer, engines, sampling.
//!
//! ```no_run
//! use russet::{GenerateOptions, Message, Model, OpenOptions};
//!
//! let model = Model::open("smollm2.gguf", &OpenOptions::default())?;
//! let mut chat = model.chat()?;
//! let reply = chat.send("What is the capital of France?", &GenerateOptions::default(), &mut |text| print!("{text}"))?;
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
pub mod detokenize;
pub mod engine;
mod generate;
pub mod grammar;
mod open;
mod planned;
mod replace;
mod runnable;
pub mod sample;
mod session;
mod stop;
pub mod template;
pub mod tensors;
pub mod tokenizer;

pub use audit::{AuditOptions, audit};
pub use bundle::{BundleError, LanguageBundle, ModelBundle};
pub use call::{CallError, Function, Results};
pub use engine::{
    Engine, EngineError, EngineVariant, KvCacheStrategy, SequentialEngine, Snapshot, Token,
};
pub use generate::{GenerateOptions, Generated, StopReason, generate, generate_ahead};
pub use open::{
    Error, Model, ModelSource, OpenOptions, files, open_module, open_module_in, read_asset,
    read_asset_in, read_gguf,
};
pub use planned::{PlanQuery, Planned, planned};
pub use russet_graph::exec::{CacheKind, Precision, StepWork};
pub use russet_kernels::machine;
pub use sample::{Sampler, Sampling, SamplingError};
pub use session::{Chat, Reply, check_session};
pub use template::{ChatTemplate, Message, RenderOptions, TemplateError};
pub use tokenizer::{Tokenizer, TokenizerError};

/// The snippet of the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
