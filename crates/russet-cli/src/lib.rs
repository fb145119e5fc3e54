//! The `russet` command: the outside world of the library.
//!
//! Arguments, finding and downloading models, Ctrl-C, one file per command. Answers go to standard output, everything else to
//! standard error. It is a library so that a program of one's own can be this command with ways of sampling added:
//!
//! ```
//! use russet::{Strategies, Strategy, Token};
//! # use std::sync::Arc;
//! # use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
//!
//! /// A repetition penalty with a list of tokens that never come.
//! struct Careful { said: Vec<Token>, banned: Vec<Token>,
//! #   steps: Arc<AtomicUsize>,
//! }
//!
//! impl Strategy for Careful {
//!     fn adjust(&mut self, logits: &mut [f32]) {
//! #       self.steps.fetch_add(1, Relaxed);
//!         for token in &self.said {
//!             logits[*token as usize] -= 1.5;
//!         }
//!         for token in &self.banned {
//!             logits[*token as usize] = f32::NEG_INFINITY;
//!         }
//!     }
//!     fn accept(&mut self, token: Token) {
//!         assert!(!self.banned.contains(&token));
//!         self.said.push(token);
//!     }
//! }
//!
//! # let bundle = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/turns/llama");
//! # let arguments = ["russet", "run", bundle, "hello", "--max-tokens", "5", "--temperature", "0", "--sampling-strategy", "careful"];
//! # let steps = Arc::new(AtomicUsize::new(0));
//! # let counter = steps.clone();
//! // fn main() -> ExitCode, with std::env::args_os() for the arguments
//! let careful = Strategies::new(move || Careful { said: vec![], banned: vec![60, 61, 62],
//! #   steps: counter.clone(),
//! });
//! let code = russet_cli::CommandLine::new().strategy("careful", careful).run(arguments);
//! # assert_eq!(code, std::process::ExitCode::SUCCESS);
//! # assert!(steps.load(Relaxed) > 0);
//! ```
#![forbid(unsafe_code)]

mod args;
mod commands;
mod failure;
mod interrupt;
mod locate;
mod pull;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;
use russet::Strategies;

use args::{Cli, Command};
use commands::talk::Named;
use failure::{Failure, chain};

/// The command, and the ways of sampling that `--sampling-strategy` knows.
#[derive(Debug, Default)]
pub struct CommandLine {
    strategies: Named,
}

impl CommandLine {
    /// With the strategies that are always there.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a strategy under a name.
    #[must_use]
    pub fn strategy(mut self, name: impl Into<String>, strategy: Strategies) -> Self {
        self.strategies.add(name.into(), strategy);
        self
    }

    /// Does what the arguments say; the first is the program's name.
    pub fn run<T: Into<OsString> + Clone>(
        &self,
        arguments: impl IntoIterator<Item = T>,
    ) -> ExitCode {
        let cli = match Cli::try_parse_from(arguments) {
            Ok(cli) => cli,
            Err(error) => {
                // Where the terminal is gone there is nobody to tell.
                error.print().ok();
                return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
            }
        };
        match self.dispatch(&cli.command) {
            Ok(code) => code,
            Err(failure) if failure.is_broken_pipe() => ExitCode::SUCCESS,
            Err(failure) => {
                eprintln!("error: {}", chain(&failure));
                failure.exit_code()
            }
        }
    }

    fn dispatch(&self, command: &Command) -> Result<ExitCode, Failure> {
        let done = |()| ExitCode::SUCCESS;
        match command {
            Command::Run(args) => commands::run::run(args, &self.strategies),
            Command::Chat(args) => commands::chat::chat(args, &self.strategies).map(done),
            Command::Inspect(args) => commands::inspect::inspect(args).map(done),
            Command::Call(args) => commands::call::call(args).map(done),
            Command::Bench(args) => commands::bench::bench(args).map(done),
            Command::Eval(args) => commands::eval::eval(args),
            Command::Check(args) => commands::check::check_package(args),
            Command::Audit(args) => commands::audit::audit_bundle(args),
            Command::Retarget(args) => commands::retarget::retarget(args).map(done),
            Command::Pull(args) => commands::pull::pull(args).map(done),
        }
    }
}
