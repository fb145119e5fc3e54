//! `cargo xtask peers`: russet beside other runtimes, on the same weights, prompts and threads.
//!
//! Peers are installed from the Python package index into an environment of their own. Every round measures each in turn, in a
//! process of its own that opens the model, warms up with one trial and counts the next, so that what else the machine does
//! falls on all alike. The table has medians over the rounds. A bundle is read by russet alone: its peers are those of the GGUF
//! files named, or of `smollm2`. A peer that cannot be installed, or fails, is in the table with the reason.

mod contender;
mod environment;
mod table;

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use contender::{Contender, label};
use environment::{Environment, PEERS, Peer, answer};
use table::Row;

use crate::tally::Failure;

/// What the peers read where no model named is a GGUF file.
const DEFAULT_MODEL: &str = "smollm2";
const RUSSET: &str = "russet";

/// What to compare, and how.
#[derive(Debug, clap::Args)]
pub(crate) struct PeersArgs {
    /// A GGUF file, a bundle or a name; repeat it for several
    #[arg(long = "model", value_name = "MODEL", num_args = 1.., default_value = DEFAULT_MODEL)]
    models: Vec<String>,
    /// Threads of each
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..))]
    threads: u16,
    /// Tokens of the prompt
    #[arg(long, short = 'p', value_name = "N", default_value_t = 512)]
    prompt_tokens: usize,
    /// Tokens to generate
    #[arg(long, short = 'g', value_name = "N", default_value_t = 128)]
    generation_tokens: usize,
    /// Tokens of context before the prompt, not measured
    #[arg(long, value_name = "N", default_value_t = 0)]
    depth: usize,
    /// How often each is measured
    #[arg(long, value_name = "N", default_value_t = 5)]
    rounds: usize,
    /// Leave out all but these
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = ["russet", "llama.cpp", "openvino"])]
    only: Vec<String>,
    /// Where peers are installed [default: peers, in the target folder]
    #[arg(long, value_name = "DIR")]
    env: Option<PathBuf>,
    /// The command to measure [default: it is built, as this one was]
    #[arg(long, value_name = "FILE")]
    russet: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl PeersArgs {
    fn takes_part(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|n| n == name)
    }
}

/// Measures, and prints. It succeeds if every russet could be measured.
pub(crate) fn run(args: &PeersArgs) -> Result<ExitCode, Failure> {
    let mut field = field(args)?;
    for round in 0..args.rounds {
        for contender in &mut field {
            eprintln!(
                "round {} of {}: {} {}",
                round + 1,
                args.rounds,
                contender.engine,
                contender.weights
            );
            contender.take_turn(round);
        }
    }
    let rows: Vec<Row> = field.iter().map(Row::of).collect();
    if args.json {
        println!("{}", serde_json::to_string_pretty(&table::value(&rows))?);
    } else {
        println!(
            "{} tokens behind {}, then {} more; {} threads; medians of {} rounds\n\n{}",
            args.prompt_tokens,
            args.depth,
            args.generation_tokens,
            args.threads,
            args.rounds,
            table::text(&rows)
        );
    }
    let failed = field.iter().any(|c| c.is_russet && c.failure.is_some());
    Ok(if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// Everybody who takes part: russet on every model, then the peers on every GGUF file.
fn field(args: &PeersArgs) -> Result<Vec<Contender>, Failure> {
    let binary = match &args.russet {
        Some(file) => file.clone(),
        None => built()?,
    };
    let named = args.models.iter().map(|name| located(&binary, name));
    let models = named.collect::<Result<Vec<_>, _>>()?;
    let mut field = Vec::new();
    if args.takes_part(RUSSET) {
        field.extend(models.iter().map(|m| Contender::russet(&binary, m, args)));
    }
    let peers: Vec<&Peer> = PEERS.iter().filter(|p| args.takes_part(p.name)).collect();
    if peers.is_empty() {
        return Ok(field);
    }
    let mut files: Vec<PathBuf> = models.into_iter().filter(|m| m.is_file()).collect();
    if files.is_empty() {
        files.push(located(&binary, DEFAULT_MODEL)?);
    }
    let home = match &args.env {
        Some(folder) => folder.clone(),
        None => target()?.join("peers"),
    };
    let home = Environment::open(&home)?;
    for peer in peers {
        field.extend(entries(&home, peer, &files, args));
    }
    Ok(field)
}

/// A peer on every file, as it is and in its own format.
fn entries(home: &Environment, peer: &Peer, files: &[PathBuf], args: &PeersArgs) -> Vec<Contender> {
    let version = match home.install(peer) {
        Ok(version) => version,
        Err(failure) => return vec![Contender::absent(peer.name, String::new(), &failure)],
    };
    let mut entries = Vec::new();
    for file in files {
        entries.push(Contender::peer(home, peer, file, args));
        if peer.requantises {
            entries.push(match home.requantised(file) {
                Ok(own) => Contender::peer(home, peer, &own, args),
                Err(failure) => Contender::absent(peer.name, label(file), &failure),
            });
        }
    }
    for entry in &mut entries {
        entry.version.clone_from(&version);
    }
    entries
}

/// A model as a path: itself, or where russet has it, which may download it.
fn located(binary: &Path, name: &str) -> Result<PathBuf, Failure> {
    if Path::new(name).exists() {
        return Ok(name.into());
    }
    let mut command = Command::new(binary);
    command.args(["pull", name]);
    let printed = answer(command)?;
    let path = printed.lines().last().unwrap_or_default();
    if Path::new(path).exists() {
        Ok(path.into())
    } else {
        Err(format!("there is no model {name:?}").into())
    }
}

/// The command, built with the profile of this program.
fn built() -> Result<PathBuf, Failure> {
    let this = env::current_exe()?;
    let folder = this.parent().ok_or("this program lies nowhere")?;
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args([
        "build",
        "--quiet",
        "--package",
        "russet-cli",
        "--manifest-path",
    ]);
    cargo.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml"));
    if folder.ends_with("release") {
        cargo.arg("--release");
    }
    answer(cargo)?;
    let name = format!("russet{}", env::consts::EXE_SUFFIX);
    Ok(folder.join(name))
}

/// The target folder: this program lies in one of its profiles.
fn target() -> Result<PathBuf, Failure> {
    let this = env::current_exe()?;
    let folder = this.ancestors().nth(2).ok_or("this program lies nowhere")?;
    Ok(folder.into())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: PeersArgs,
    }

    fn parse(words: &[&str]) -> Result<PeersArgs, clap::Error> {
        let words = ["peers"].iter().chain(words);
        Line::try_parse_from(words).map(|line| line.args)
    }

    #[test]
    fn everybody_takes_part_unless_named() {
        let all = parse(&[]).expect("defaults");
        assert!(all.takes_part(RUSSET) && PEERS.iter().all(|p| all.takes_part(p.name)));
        let some = parse(&["--only", "russet,llama.cpp"]).expect("two names");
        assert!(some.takes_part(RUSSET) && some.takes_part("llama.cpp"));
        assert!(!some.takes_part("openvino"));
    }

    #[test]
    fn every_peer_can_be_named_and_nobody_else() {
        for peer in &PEERS {
            let one = parse(&["--only", peer.name]).expect(peer.name);
            assert!(one.takes_part(peer.name));
        }
        assert!(parse(&["--only", "someone"]).is_err());
    }
}
