//! `russet retarget BUNDLE --asset ROLE=FILE`: points a bundle's metadata at other assets.

use std::io::{self, Write};

use russet::bundle::Retarget;

use crate::args::RetargetArgs;
use crate::failure::Failure;
use crate::locate::locate;

/// Changes the metadata, or prints what would change.
pub(crate) fn retarget(args: &RetargetArgs) -> Result<(), Failure> {
    let change = Retarget::new(&locate(&args.bundle)?, &args.assets, args.force)?;
    if args.dry_run {
        return io::stdout()
            .lock()
            .write_all(change.diff().as_bytes())
            .map_err(Failure::write);
    }
    match change.changes() {
        true => Ok(change.write()?),
        false => {
            eprintln!("nothing to change");
            Ok(())
        }
    }
}
