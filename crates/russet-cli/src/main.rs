//! The `russet` command, with the strategies that it has by itself.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use russet_kernels::mem::{SmallPieces, give_back_at_once};

#[global_allocator]
static ALLOCATOR: SmallPieces = SmallPieces;

fn main() -> ExitCode {
    give_back_at_once();
    russet_cli::CommandLine::new().run(std::env::args_os())
}
