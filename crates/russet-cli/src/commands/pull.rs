//! `russet pull NAME`.

use crate::args::PullArgs;
use crate::failure::Failure;
use crate::locate::pull_with_bar;

/// Downloads a model and prints where it is.
pub(crate) fn pull(args: &PullArgs) -> Result<(), Failure> {
    println!("{}", pull_with_bar(&args.name)?.display());
    Ok(())
}
