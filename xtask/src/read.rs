//! `cargo xtask read DIR`: every asset below a folder is read, printed, parsed back and verified.

use std::fs;
use std::path::{Path, PathBuf};

use russet_graph::text;
use russet_graph::verify::verify;

use crate::tally::{Failure, Tally, chain};

/// Reads every `.aimodel` below a folder.
pub(crate) fn read_all(folder: &Path) -> Result<Tally, Failure> {
    let mut tally = Tally::default();
    for asset in assets(folder)? {
        let result = check(&asset);
        if let Err(failure) = &result {
            println!("{}: {}", asset.display(), chain(&**failure));
        }
        tally.count(result.is_ok());
    }
    Ok(tally)
}

/// All folders that end in `.aimodel`, in order.
fn assets(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    if folder.extension().is_some_and(|e| e == "aimodel") {
        return Ok(vec![folder.into()]);
    }
    let entries = fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut entries = entries.collect::<Result<Vec<_>, _>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    let folders = entries.into_iter().map(|e| e.path()).filter(|p| p.is_dir());
    Ok(folders
        .map(|p| assets(&p))
        .collect::<Result<Vec<_>, _>>()?
        .concat())
}

/// An asset passes if its digest is right, its graph verifies, and its text means the same graph.
fn check(path: &Path) -> Result<(), Failure> {
    let asset = russet::read_asset(path)?;
    asset.verify_hash()?;
    let module = asset.module()?;
    verify(&module)?;
    let printed = text::print(&module);
    let parsed = text::parse(&printed)?;
    verify(&parsed)?;
    if parsed == module {
        Ok(())
    } else {
        Err("the text means another graph".into())
    }
}
