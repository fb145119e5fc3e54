//! Arguments of `eval`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{EngineArgs, PrecisionArg};

/// What a model can be judged by.
#[derive(Debug, Subcommand)]
pub(crate) enum EvalCommand {
    /// How well a model predicts a text
    Perplexity(PerplexityArgs),
    /// How likely a text is after another
    Continuation(ContinuationArgs),
    /// Which of several continuations a model finds likeliest, question by question
    #[command(after_help = QUESTIONS)]
    Choices(ChoicesArgs),
    /// How far the distributions of one model are from another's, over the same text
    Compare(CompareArgs),
    /// How much of JSON Schema can be enforced, and how fast
    #[command(after_help = SCHEMAS)]
    Schemas(SchemasArgs),
}

/// What a file of questions looks like.
const QUESTIONS: &str = "\
A line of the file is a question:
  {\"question\": \"The capital of France is\", \"choices\": [\" Paris.\", \" Rome.\"],
   \"answer\": 0}
(in one line). A choice follows its question as it is, with its space; the
answer counts from 0. Printed are the share of questions where the likeliest
choice is right, and where the likeliest by byte of text is.";

/// What files of schemas look like.
const SCHEMAS: &str = "\
A file is a schema with instances, as in MaskBench,
  {\"schema\": {...}, \"tests\": [{\"data\": ..., \"valid\": true}, ...]}
a list of such objects, as in the JSON Schema Test Suite, or a schema alone.
Every token of a valid instance must be allowed, and its end; of an invalid one
something must not. It is a failure when an invalid instance can be written.";

#[derive(Debug, Args)]
pub(crate) struct SchemasArgs {
    /// A file, or a folder whose .json files are all read, those in its folders too
    pub(crate) path: PathBuf,
    /// Whose vocabulary the masks are for: a bundle, a GGUF file or a name
    #[arg(long, value_name = "MODEL", default_value = "smollm2")]
    pub(crate) model: String,
    /// A tokenizer.json in place of a model
    #[arg(long, value_name = "FILE", conflicts_with = "model")]
    pub(crate) tokenizer: Option<PathBuf>,
    /// Print every schema that is refused and every instance that is misjudged
    #[arg(long, conflicts_with = "json")]
    pub(crate) failures: bool,
    /// Refuse schemas with keywords that can only be checked when a value is whole
    #[arg(long)]
    pub(crate) schema_strict: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct PerplexityArgs {
    /// A bundle, a GGUF file or a name
    pub(crate) model: String,
    #[command(flatten)]
    pub(crate) text: TextArgs,
    /// Tokens from one window to the next; those that windows share are context for the later one [default: the window]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) stride: Option<u32>,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// A text, and how it is cut.
#[derive(Debug, Args)]
pub(crate) struct TextArgs {
    /// The text, UTF-8
    #[arg(long, value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Tokens that are looked at together
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(2..))]
    pub(crate) window: u32,
    /// Only the first tokens of the text
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..))]
    pub(crate) tokens: Option<u32>,
}

#[derive(Debug, Args)]
pub(crate) struct ContinuationArgs {
    /// A bundle, a GGUF file or a name
    pub(crate) model: String,
    /// What comes before
    #[arg(long, value_name = "TEXT")]
    pub(crate) context: String,
    /// What is judged
    #[arg(long, value_name = "TEXT")]
    pub(crate) continuation: String,
    /// How many of the likeliest tokens to tell at every place
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u8).range(..=20))]
    pub(crate) top_k: u8,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ChoicesArgs {
    /// A bundle, a GGUF file or a name
    pub(crate) model: String,
    /// Questions, one JSON object a line
    pub(crate) questions: PathBuf,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
    /// Print JSON, with the scores of every choice
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// The model that is taken for right
    pub(crate) first: String,
    /// The model that is judged; the same one to compare precisions
    pub(crate) second: String,
    #[command(flatten)]
    pub(crate) text: TextArgs,
    /// How closely the second model follows its file's arithmetic [default: as --precision]
    #[arg(long, value_enum, value_name = "PRECISION")]
    pub(crate) second_precision: Option<PrecisionArg>,
    /// It is a failure when the mean divergence is larger, in nats
    #[arg(long, value_name = "X")]
    pub(crate) max_divergence: Option<f64>,
    /// It is a failure when a smaller share of places has the same likeliest token
    #[arg(long, value_name = "X")]
    pub(crate) min_same_top: Option<f64>,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
