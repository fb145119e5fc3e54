//! Arguments of `check`.

use std::path::PathBuf;

use clap::Args;
use russet::check::Limits;

use super::EngineArgs;

/// What is looked at, and what the figures mean.
pub(super) const CHECK: &str = "\
The checkpoint is a Hugging Face folder: config.json, model.safetensors or its
shards, tokenizer.json. It is computed in float32 and continues every prompt
with its likeliest tokens; the package gets the same tokens, in the calls it is
used with. At every token the logits are compared:

  cosine        of the logits; 1 is the same direction
  KL            divergence of the package's distribution from the checkpoint's,
                in nats; 0 is the same distribution
  top-1         share of tokens that both find likeliest
  perplexity    of the checkpoint's tokens, by the checkpoint and the package

A package fails where a mean is outside the limits. Those that hold by default
suit weights of four bits; with weights of float16 a cosine below 0.999 or a KL
above 0.01 already tells of a mistake.

Exit codes: 0 within the limits, 1 outside them or failed, 2 wrong usage.

Examples:
  russet check ./exports/qwen3_4bit --hf ./Qwen3-0.6B
  russet check ./anemll/qwen3 --hf ./Qwen3-0.6B --layers --plan
  russet check model.gguf --hf ./SmolLM2-135M --min-cosine 0.999 --json";

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// A bundle, a folder of Core ML packages, a GGUF file or a name
    pub(crate) package: String,
    /// The checkpoint it was made from, a Hugging Face folder
    #[arg(long, value_name = "CHECKPOINT")]
    pub(crate) hf: String,
    /// A text to continue, several times if need be [default: four]
    #[arg(long, value_name = "TEXT")]
    pub(crate) prompt: Vec<String>,
    /// A file of such texts, one a line, or JSON texts in quotes
    #[arg(long, value_name = "FILE")]
    pub(crate) prompts: Option<PathBuf>,
    /// Tokens after every prompt
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) tokens: u32,
    /// Compare what every layer leaves as well, and tell the worst
    #[arg(long)]
    pub(crate) layers: bool,
    /// Measure how fast the package reads prompts and generates
    #[arg(long)]
    pub(crate) bench: bool,
    /// Show every step: kernel, kind, share of the time
    #[arg(long)]
    pub(crate) plan: bool,
    /// Fail below this mean cosine
    #[arg(long, value_name = "X", default_value_t = Limits::default().min_cosine)]
    pub(crate) min_cosine: f64,
    /// Fail above this mean KL
    #[arg(long, value_name = "X", default_value_t = Limits::default().max_kl)]
    pub(crate) max_kl: f64,
    /// Fail below this share of places with the same likeliest token
    #[arg(long, value_name = "X", default_value_t = Limits::default().min_top1)]
    pub(crate) min_top1: f64,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
    /// Print JSON, with every place
    #[arg(long)]
    pub(crate) json: bool,
}

impl CheckArgs {
    pub(crate) fn limits(&self) -> Limits {
        Limits {
            min_cosine: self.min_cosine,
            max_kl: self.max_kl,
            min_top1: self.min_top1,
        }
    }
}
