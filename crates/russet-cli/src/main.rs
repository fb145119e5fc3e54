//! The `russet` command: the outside world of the library.
//!
//! Arguments ([`args`]), finding and downloading models ([`locate`], [`pull`]), Ctrl-C ([`interrupt`]), one file per command
//! ([`commands`]). Answers go to standard output, everything else to standard error.
#![forbid(unsafe_code)]

mod args;
mod commands;
mod failure;
mod interrupt;
mod locate;
mod pull;

use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};
use failure::{Failure, chain};

fn main() -> ExitCode {
    match dispatch(&Cli::parse().command) {
        Ok(code) => code,
        Err(failure) if failure.is_broken_pipe() => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {}", chain(&failure));
            failure.exit_code()
        }
    }
}

fn dispatch(command: &Command) -> Result<ExitCode, Failure> {
    let done = |()| ExitCode::SUCCESS;
    match command {
        Command::Run(args) => commands::run::run(args),
        Command::Chat(args) => commands::chat::chat(args).map(done),
        Command::Inspect(args) => commands::inspect::inspect(args).map(done),
        Command::Call(args) => commands::call::call(args).map(done),
        Command::Bench(args) => commands::bench::bench(args).map(done),
        Command::Audit(args) => commands::audit::audit_bundle(args),
        Command::Retarget(args) => commands::retarget::retarget(args).map(done),
        Command::Pull(args) => commands::pull::pull(args).map(done),
    }
}
