//! Arguments that say what an answer must look like.

use std::path::PathBuf;

use clap::Args;

/// One of these at most.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "What the answer looks like")]
#[group(multiple = true)]
pub(crate) struct ConstraintArgs {
    /// JSON that is valid under a JSON Schema, in a file or as text
    #[arg(long, value_name = "FILE|TEXT", conflicts_with_all = ["json", "regex", "grammar", "choice"])]
    pub(crate) json_schema: Option<String>,
    /// A JSON object
    #[arg(long, conflicts_with_all = ["regex", "grammar", "choice"])]
    pub(crate) json: bool,
    /// A text that a regular expression matches
    #[arg(long, value_name = "EXPRESSION", conflicts_with_all = ["grammar", "choice"])]
    pub(crate) regex: Option<String>,
    /// A text of a grammar in a file, in Lark's notation, GBNF or the W3C's EBNF
    #[arg(long, value_name = "FILE", conflicts_with = "choice")]
    pub(crate) grammar: Option<PathBuf>,
    /// One of these texts; given several times
    #[arg(long, value_name = "TEXT")]
    pub(crate) choice: Vec<String>,
    /// Refuse a schema with keywords that can only be checked when a value is whole
    #[arg(long)]
    pub(crate) schema_strict: bool,
    /// Free text first, until this text or token: `</think>` lets a model think before it answers
    #[arg(long, value_name = "TEXT")]
    pub(crate) free_until: Option<String>,
}
