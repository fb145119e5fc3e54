//! The `russet` command, with the strategies that it has by itself.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    russet_cli::CommandLine::new().run(std::env::args_os())
}
