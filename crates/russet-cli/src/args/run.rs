//! Arguments of `run` and `chat`. Flags are those of Apple's `llm-runner` where it has them.

use std::path::PathBuf;

use clap::{ArgAction, Args, ValueEnum};

use super::{ConstraintArgs, EngineArgs};

/// Headings of the help.
const PROMPT: &str = "Prompt";
const SAMPLING: &str = "Sampling";
const LOGITS: &str = "Logits";
const OTHER: &str = "Of llm-runner";

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// A bundle, a GGUF file or a name
    #[arg(value_name = "MODEL", required_unless_present = "model_flag")]
    first: Option<String>,
    /// What to ask; "-" reads it from standard input
    #[arg(value_name = "PROMPT")]
    second: Option<String>,
    /// The model, in place of the first argument
    #[arg(long = "model", value_name = "MODEL", id = "model_flag", help_heading = PROMPT)]
    model: Option<String>,
    /// What to ask, in place of an argument
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["prompt_file", "raw_tokens"], help_heading = PROMPT)]
    prompt: Option<String>,
    /// Read what to ask from a file
    #[arg(long, value_name = "FILE", conflicts_with = "raw_tokens", help_heading = PROMPT)]
    pub(crate) prompt_file: Option<PathBuf>,
    /// Go on with the tokens of a JSON file: {"tokens": [...]}
    #[arg(long, value_name = "FILE", conflicts_with_all = ["system", "session"], help_heading = PROMPT)]
    pub(crate) raw_tokens: Option<PathBuf>,
    /// Give the prompt to the model as it is, without the chat template
    #[arg(long, conflicts_with_all = ["system", "session"], help_heading = PROMPT)]
    no_template: bool,
    /// Whether the prompt goes through the chat template
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set, help_heading = PROMPT)]
    apply_chat_template: bool,
    /// Say how likely this text is after the prompt, and generate nothing (without the chat template)
    #[arg(long, value_name = "TEXT", help_heading = LOGITS)]
    pub(crate) continuation: Option<String>,
    /// Print the five likeliest tokens of every step, on standard error
    #[arg(long, help_heading = LOGITS)]
    pub(crate) print_logits: bool,
    /// Write the likeliest tokens of every step, or all logits, to a JSON file
    #[arg(long, value_name = "FILE", help_heading = LOGITS)]
    pub(crate) save_logits: Option<PathBuf>,
    /// How many of the likeliest tokens to write (up to 20), or "full"
    #[arg(long, value_name = "N|full", default_value = "5", value_parser = kept, help_heading = LOGITS)]
    pub(crate) save_logits_length: russet::Record,
    #[command(flatten)]
    pub(crate) talk: TalkArgs,
    #[command(flatten)]
    pub(crate) other: OtherArgs,
}

/// How many logits to write: a count, or all.
fn kept(text: &str) -> Result<russet::Record, String> {
    match text.parse() {
        Ok(n @ 0..=20) => Ok(russet::Record::Top(n)),
        _ if text == "full" => Ok(russet::Record::Full),
        _ => Err("it is neither a number from 0 to 20 nor \"full\"".into()),
    }
}

impl RunArgs {
    /// The model's name.
    pub(crate) fn model(&self) -> &str {
        self.model
            .as_deref()
            .or(self.first.as_deref())
            .unwrap_or("")
    }

    /// The prompt that stands on the command line, where one does. With `--model` the first argument is the prompt.
    pub(crate) fn prompt(&self) -> Result<Option<&str>, &'static str> {
        let (first, second) = (self.first.as_deref(), self.second.as_deref());
        let words = if self.model.is_some() {
            [first, second]
        } else {
            [None, second]
        };
        let given: Vec<&str> = words
            .into_iter()
            .flatten()
            .chain(self.prompt.as_deref())
            .collect();
        let files =
            usize::from(self.prompt_file.is_some()) + usize::from(self.raw_tokens.is_some());
        match (&given[..], files) {
            ([], 0) => Err(
                "there is no prompt: give it as an argument, with --prompt, --prompt-file or --raw-tokens",
            ),
            ([], _) => Ok(None),
            ([one], 0) => Ok(Some(one)),
            _ => Err("there is more than one prompt"),
        }
    }

    /// Whether the prompt is given to the model as it is.
    pub(crate) fn is_plain(&self) -> bool {
        self.no_template || !self.apply_chat_template
    }
}

#[derive(Debug, Args)]
pub(crate) struct ChatArgs {
    /// A bundle, a GGUF file or a name
    pub(crate) model: String,
    #[command(flatten)]
    pub(crate) talk: TalkArgs,
}

/// What `run` and `chat` have in common.
#[derive(Debug, Args)]
pub(crate) struct TalkArgs {
    /// Instructions that precede the conversation
    #[arg(long, value_name = "TEXT")]
    pub(crate) system: Option<String>,
    /// The most tokens to generate per answer [default: until the model stops or its context is full]
    #[arg(long, value_name = "N")]
    pub(crate) max_tokens: Option<usize>,
    /// A special token or a text that ends the answer and is no part of it; may be given several times
    #[arg(long, value_name = "TEXT")]
    pub(crate) stop_tokens: Vec<String>,
    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,
    #[command(flatten)]
    pub(crate) constraint: ConstraintArgs,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
    /// Goes on with the conversation of this file where it is there, and keeps it there
    #[arg(long, value_name = "FILE")]
    pub(crate) session: Option<PathBuf>,
    /// What happens to a conversation that no longer fits into the context
    #[arg(long, value_enum, default_value_t = OverflowArg::Error)]
    pub(crate) overflow: OverflowArg,
    /// Sets a variable of the chat template, such as enable_thinking=false; may be given several times
    #[arg(long = "template-variable", value_name = "NAME=VALUE", value_parser = variable)]
    pub(crate) variables: Vec<(String, serde_json::Value)>,
    /// Say what is loaded, how the prompt reads and how fast it goes, on standard error
    #[arg(long, short)]
    verbose: bool,
    /// How much to say: nothing at 0, from 1 on as --verbose
    #[arg(long, value_name = "N")]
    verbose_level: Option<u8>,
}

impl TalkArgs {
    /// Whether to say more than the answer.
    pub(crate) fn is_verbose(&self) -> bool {
        self.verbose || self.verbose_level.is_some_and(|n| n > 0)
    }
}

/// A variable: JSON where it is some, else text.
fn variable(text: &str) -> Result<(String, serde_json::Value), String> {
    let (name, value) = text.split_once('=').ok_or("it is not NAME=VALUE")?;
    let json = serde_json::from_str(value);
    Ok((name.into(), json.unwrap_or_else(|_| value.into())))
}

/// What happens to a conversation that no longer fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OverflowArg {
    /// It is an error
    Error,
    /// The oldest turns are forgotten, the instructions are not
    Slide,
}

/// How the next token is chosen.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = SAMPLING)]
pub(crate) struct SamplingArgs {
    /// 0 takes the most likely token; 1 samples as the model says
    #[arg(
        long,
        value_name = "T",
        default_value_t = 0.7,
        allow_negative_numbers = true
    )]
    pub(crate) temperature: f32,
    /// Only the K most likely tokens
    #[arg(long, value_name = "K")]
    pub(crate) top_k: Option<usize>,
    /// Only the most likely tokens that together reach probability P
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    pub(crate) top_p: Option<f32>,
    /// Only tokens at least P times as likely as the most likely one
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    pub(crate) min_p: Option<f32>,
    /// Divides the logits of tokens that have occurred; 1 changes nothing
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub(crate) repetition_penalty: Option<f32>,
    /// How many of the last tokens count for penalties [default: all]
    #[arg(long, value_name = "N", requires = "repetition_penalty")]
    pub(crate) repetition_penalty_window: Option<usize>,
    /// Taken off the logit of a token for every time it has occurred
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub(crate) frequency_penalty: Option<f32>,
    /// Taken off the logit of a token once it has occurred
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub(crate) presence_penalty: Option<f32>,
    /// Whether penalties count the prompt's tokens as well
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set)]
    pub(crate) penalize_prompt: bool,
    /// Added to a token's logit, "-inf" bans it; may be given several times
    #[arg(long, value_name = "TOKEN=X", value_parser = bias, allow_hyphen_values = true)]
    pub(crate) logit_bias: Vec<(String, f32)>,
    /// In which order filters narrow the choice
    #[arg(long, value_enum, default_value_t = OrderArg::Coreai)]
    pub(crate) sampling_order: OrderArg,
    /// "temperature" samples as the flags say, "greedy" takes the most likely token whatever they say
    #[arg(long, value_name = "NAME", default_value = "temperature")]
    pub(crate) sampling_strategy: String,
    /// Makes a random choice repeatable
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
}

/// A token, by number or text, and what is added to its logit.
fn bias(text: &str) -> Result<(String, f32), String> {
    let (token, value) = text.rsplit_once('=').ok_or("it is not TOKEN=NUMBER")?;
    let value = value
        .parse()
        .map_err(|_| format!("{value:?} is no number"))?;
    Ok((token.into(), value))
}

/// In which order filters narrow the choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OrderArg {
    /// Temperature, min-p, top-p, top-k
    Coreai,
    /// Top-k, top-p, min-p, temperature
    LlamaCpp,
}

/// Flags of `llm-runner` that other things here stand for, or nothing.
#[derive(Debug, Args)]
#[command(next_help_heading = OTHER)]
pub(crate) struct OtherArgs {
    /// The model waits for the text of every token instead of going ahead
    #[arg(long)]
    pub(crate) synchronous_sampling: bool,
    /// What to process before the prompt: default and off (or none) nothing, exact as many tokens as --warmup-length says
    #[arg(long, value_name = "MODE", value_parser = ["default", "off", "none", "exact"], default_value = "default",
          requires_if("exact", "warmup_length"))]
    pub(crate) warmup: String,
    /// Tokens of an exact warm-up
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) warmup_length: Option<u32>,
    /// An image to look at, with a model that has a vision part
    #[arg(long, value_name = "FILE", conflicts_with = "video")]
    pub(crate) image: Option<PathBuf>,
    /// How an image is fitted
    #[arg(long, value_name = "NAME", value_parser = ["stretch", "center_crop", "pad"], requires = "image")]
    image_strategy: Option<String>,
    /// Whether the prompt tells the image's size
    #[arg(long, value_name = "MODE", value_parser = ["on", "off", "auto"], default_value = "auto")]
    image_info: String,
    /// A film to look at, with a model that has a vision part
    #[arg(long, value_name = "FILE")]
    pub(crate) video: Option<PathBuf>,
    /// Pictures of a film
    #[arg(long, value_name = "N", requires = "video", value_parser = clap::value_parser!(u32).range(1..))]
    video_frames: Option<u32>,
    /// How pictures of a film are chosen
    #[arg(long, value_name = "NAME", value_parser = ["uniform", "fps"], requires = "video")]
    video_sampling: Option<String>,
    /// Has no effect: queries are not padded to buckets here
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32))]
    pub(crate) bucket_size: Option<u32>,
    /// Has no effect: nothing is compiled for a device, so there is no cache of it
    #[arg(long)]
    pub(crate) clear_coreai_cache: bool,
}

impl OtherArgs {
    /// What was asked for and has no effect.
    pub(crate) fn without_effect(&self) -> Vec<&'static str> {
        let bucket = self.bucket_size.map(|_| {
            "--bucket-size has no effect here: functions take queries of any length, none is padded to a bucket"
        });
        bucket
            .into_iter()
            .chain(cache_note(self.clear_coreai_cache))
            .collect()
    }
}

/// What `--clear-coreai-cache` does.
pub(crate) fn cache_note(asked: bool) -> Option<&'static str> {
    asked.then_some("--clear-coreai-cache has no effect here: nothing is compiled ahead, so there is no cache to clear")
}
