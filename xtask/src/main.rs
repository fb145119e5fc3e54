//! Chores of this repository: `cargo xtask COMMAND`.
//!
//! `conformance lm` replays recorded conversations, `conformance ops` recorded calls of single operations, `read` reads every asset below a folder, `tidy` checks what neither the
//! compiler nor clippy checks, `peers` measures other runtimes beside this one. Of the checks, each prints a line per case and closes with `N passed, N failed`.
#![forbid(unsafe_code)]

mod answer;
mod caller;
mod checkpoint;
mod compare;
mod coreml;
mod coreml_ops;
mod graphs;
mod lm;
mod ops;
mod peers;
mod precision;
mod random;
mod read;
mod record;
mod statics;
mod tally;
mod tidy;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use caller::Binary;
use clap::{Parser, Subcommand};
use peers::PeersArgs;
use tally::{Failure, Tally};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Chores of this repository")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Compare results with recorded ones
    #[command(subcommand)]
    Conformance(Conformance),
    /// Read, print, parse back and verify every .aimodel below a folder
    Read { folder: PathBuf },
    /// Compare plans of random graphs with the references
    Graphs {
        /// For how long
        #[arg(long, default_value_t = 60)]
        seconds: u64,
        /// Other graphs for another number
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Compare fast mode with exact mode over texts
    Precision {
        model: PathBuf,
        #[arg(required = true)]
        texts: Vec<PathBuf>,
        /// Tokens of each text
        #[arg(long, default_value_t = 1024)]
        tokens: usize,
    },
    /// Measure russet beside other runtimes, on the same weights
    Peers(PeersArgs),
    /// Check the sources: machine paths, large files, long functions, missing stories
    Tidy,
}

#[derive(Subcommand)]
enum Conformance {
    /// Replay the conversation of every bundle DIR/NAME against NAME.safetensors
    Lm {
        /// Bundles, a folder each
        folder: PathBuf,
        /// Recordings, where they do not lie beside the bundles
        #[arg(long, value_name = "DIR")]
        records: Option<PathBuf>,
    },
    /// Repeat the calls of every bundle DIR/NAME with functions of fixed shapes, recorded in DIR/NAME.safetensors
    Static {
        /// Bundles and recordings
        folder: PathBuf,
        /// Run every call by `BINARY call` rather than in this process
        #[arg(long)]
        binary: Option<PathBuf>,
    },
    /// Repeat the call of every one-operation asset DIR/OP/CASE.aimodel that has a recording CASE.safetensors
    Ops {
        /// The suite
        folder: PathBuf,
        /// Run every case by `BINARY call` rather than in this process
        #[arg(long)]
        binary: Option<PathBuf>,
    },
    /// Replay the conversations with every folder of Core ML packages DIR/NAME against NAME.safetensors
    Coreml {
        /// Package folders and recordings
        folder: PathBuf,
        /// The arithmetic
        #[arg(long, value_enum, default_value = "f16")]
        compute: coreml::Compute,
        /// In fast precision
        #[arg(long, conflicts_with = "compute")]
        fast: bool,
    },
    /// Compare every checkpoint DIR/NAME with what transformers computed, NAME.safetensors
    Checkpoint {
        /// Checkpoints and recordings
        folder: PathBuf,
        /// In fast precision
        #[arg(long)]
        fast: bool,
    },
    /// Compute the operations of every Core ML package DIR/GROUP.mlpackage and compare them with GROUP.safetensors
    CoremlOps {
        /// The suite
        folder: PathBuf,
    },
    /// Answer a question greedily with BUNDLE and compare tokens and logits with RECORD (.safetensors)
    Answer {
        bundle: PathBuf,
        record: PathBuf,
        #[arg(long, default_value = "What is the capital of France?")]
        question: String,
    },
}

/// As the reference computes: exact, with logits for every token.
pub(crate) fn reference_options() -> russet::OpenOptions {
    let mut options = russet::OpenOptions::default();
    options.precision = russet::Precision::Exact;
    options.all_logits = true;
    options.kv_cache = russet::KvCacheStrategy::FixedSize;
    options
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Peers(args) => return closed(peers::run(&args)),
        Command::Conformance(suite) => conformance(suite),
        Command::Precision {
            model,
            texts,
            tokens,
        } => precision::compare(&model, &texts, tokens),
        Command::Read { folder } => read::read_all(&folder),
        Command::Graphs { seconds, seed } => {
            let end = Instant::now() + Duration::from_secs(seconds);
            random::run(seed, |_| Instant::now() < end)
        }
        Command::Tidy => tidy::check_all(),
    };
    closed(done.map(Tally::close))
}

fn closed(done: Result<ExitCode, Failure>) -> ExitCode {
    done.unwrap_or_else(|error| {
        eprintln!("error: {error}");
        ExitCode::FAILURE
    })
}

fn conformance(suite: Conformance) -> Result<Tally, Failure> {
    let at = |path: Option<PathBuf>| path.as_deref().map(Binary::new).transpose();
    match suite {
        Conformance::Lm { folder, records } => lm::replay_all(&folder, records.as_deref()),
        Conformance::Static { folder, binary } => {
            statics::replay_all(&folder, at(binary)?.as_ref())
        }
        Conformance::Ops { folder, binary } => ops::replay_all(&folder, at(binary)?.as_ref()),
        Conformance::Coreml {
            folder,
            compute,
            fast,
        } => coreml::replay_all(&folder, coreml::Mode { compute, fast }),
        Conformance::Checkpoint { folder, fast } => checkpoint::replay_all(&folder, fast),
        Conformance::CoremlOps { folder } => coreml_ops::replay_all(&folder),
        Conformance::Answer {
            bundle,
            record,
            question,
        } => answer::replay(&bundle, &record, &question),
    }
}
